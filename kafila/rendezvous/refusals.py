"""What the keeper of a private rendezvous reads of those that it refuses. Sans-IO.

A line for each, until they come in a flood: then the rest are counted in the next line.
"""

from kafila import defaults as d
from kafila.net.limits import Bucket
from kafila.rendezvous.actions import Log


class Refusals:
    """Refused clients, in lines that a flood of them makes no more than a few."""

    def __init__(self) -> None:
        self._lines = Bucket(d.REFUSALS_PER_SECOND, d.REFUSALS_BURST, d.REFUSALS_BURST, 0.0)
        self._untold = 0

    def tell(self, host: str, key: bytes, why: str, now: float) -> list[Log]:
        """A client was refused; `key` in full, as it would stand in the list."""
        if not self._lines.take(now):
            self._untold += 1
            return []
        others = f" ({self._untold} more since the last such line)" if self._untold else ""
        self._untold = 0
        return [Log(f"refused {host}, key {key.hex()}: {why}{others}")]
