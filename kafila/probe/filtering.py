"""Whether a NAT filters by port, asked at a socket that has sent to one port only. Sans-IO.

Every ask is answered from the port that was asked (the control) and from another one. Silence of
the other means a filter only where enough controls came in.
"""

import math
from collections.abc import Callable

from kafila import defaults as d
from kafila.address import Address
from kafila.net.reflecting import TRANSACTION_SIZE, Answer, Ask


class Filtering:
    """The test, from `began` (seconds) until it has `ended`."""

    def __init__(
        self,
        cookie: bytes,
        server: Address,
        began: float,
        random: Callable[[int], bytes],
        *,
        second: bool,
    ) -> None:
        """`server` is the rendezvous' first port; `second`: it has another."""
        self.controls = 0
        """Answers from the port that was asked."""
        self.passed = False
        """An answer from the other port came in."""
        self.seen: Address | None = None
        """How the socket is seen from outside."""
        self.ended: float | None = None
        self._cookie = cookie
        self._server = server
        self._began = began
        self._random = random
        self._second = second
        self._asks: set[bytes] = set()
        self._due = began
        self._enough = math.inf  # when there were CONTROLS

    @property
    def by_port(self) -> bool | None:
        """Whether it filters by port; None: that was not seen."""
        if self.passed:
            return False
        return True if self._second and self.controls >= d.CONTROLS_LEAST else None

    @property
    def due(self) -> float:
        """When to call `poll` next."""
        if self.ended is not None:
            return math.inf
        return min(self._due, self._limit)

    def poll(self, now: float) -> bytes | None:
        """The ask to send to the server, if one is due."""
        if self.ended is None and self._over(now):
            self.ended = now
        if self.ended is not None or now < self._due:
            return None
        if self.controls >= d.CONTROLS:
            self._due = math.inf
            return None
        self._due = now + d.ASK_AGAIN
        transaction = self._random(TRANSACTION_SIZE)
        self._asks.add(transaction)
        ports = frozenset((0, 1) if self._second else (0,))
        return Ask(self._cookie, transaction, ports).encode()

    def answered(self, answer: Answer, source: Address, now: float) -> None:
        """An answer came in at the socket."""
        if answer.transaction not in self._asks:
            return
        if answer.port == 0 and source == self._server:
            self.controls += 1
            self.seen = answer.observed
            if self.controls == d.CONTROLS:
                self._enough = now
        elif answer.port == 1 and source != self._server:
            self.passed = True

    def _over(self, now: float) -> bool:
        shown = self.controls and (self.passed or not self._second)
        return bool(shown) or now >= self._limit

    @property
    def _limit(self) -> float:
        """When it ends by time alone."""
        return min(self._enough + d.LATE_ANSWER, self._began + d.FILTERING_SECONDS)
