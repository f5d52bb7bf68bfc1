"""One way to the peer, and what its checks say of it: when to ask again, its size, its round trip,
whether it is silent. In virtual time; knows neither other paths nor the wire format.
"""

import math
from collections import deque
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from kafila.address import Address
from kafila.defaults import (
    ANSWER_PATIENCE,
    ANSWER_TRIPS,
    LOST_AFTER,
    MORE_PINGS,
    PATH_SIZES,
    PING_AGAIN,
    PING_AGAIN_MOST,
    PING_SIZES_ROUNDS,
    PUNCH_SECONDS,
    SEEK_AGAIN_MOST,
)
from kafila.net.checks import CHECK_SIZE
from kafila.net.relaying import FRAME_HEAD

Kind = Literal["direct", "relayed"]

_RECENT: Final = 8
"""Round trips of which the shortest counts: a path that got slower shows it after so many."""

_PUNCHES: Final = round(PUNCH_SECONDS / PING_AGAIN_MOST)
"""PINGs to an address before it is asked only now and then."""

_OUTSTANDING: Final = 24
"""PINGs whose answers are still awaited."""


@dataclass(eq=False)
class Path:
    """A carrier and an address. Two are the same only if they are the same object."""

    kind: Kind
    """`direct`: from socket to socket; `relayed`: through the relay."""
    socket: Any
    address: Address
    round: int = 0
    """The round of punching it was found in."""
    size: int = 0
    """The largest datagram in bytes that came through; 0: none of QUIC's minimum yet."""
    alive: bool = False
    """Whether it has answered, and was not given up since."""
    met: bool = False
    """Whether a check of the peer came over it."""
    heard_at: float = -math.inf
    """When something last came over it."""
    answered_at: float = -math.inf
    """When a PING was last answered."""
    asked_at: float | None = None
    """When the first PING since then was sent; None: nothing is unanswered."""
    pinged_at: float = -math.inf
    """When the last PING was sent."""
    next: float = math.inf
    """When the next PING is due."""
    tries: int = 0
    """Rounds of PINGs since the path was new, began to answer or fell silent."""
    more: int = 0
    """PINGs still to send after success, for the peer, who may need them."""
    _trips: deque[float] = field(default_factory=lambda: deque(maxlen=_RECENT), repr=False)
    _pings: dict[bytes, tuple[float, int]] = field(default_factory=dict, repr=False)

    @property
    def checked(self) -> bool:
        """Whether datagrams of QUIC's minimum came through: then it may carry the edge."""
        return self.size > 0

    @property
    def rtt_us(self) -> int | None:
        """The shortest of the latest round trips, in microseconds."""
        return round(min(self._trips) * 1e6) if self._trips else None

    @property
    def rtt(self) -> float:
        """The same in seconds, 0 if unknown."""
        return min(self._trips, default=0.0)

    @property
    def sizes(self) -> tuple[int, ...]:
        """The sizes worth trying: those of PATH_SIZES, less the frame of a relay but for QUIC's
        minimum, for which there is room everywhere."""
        if self.kind == "direct":
            return PATH_SIZES
        return PATH_SIZES[0], *(size - FRAME_HEAD for size in PATH_SIZES[1:])

    # --- asking ------------------------------------------------------------------------------

    def begin(self, now: float) -> None:
        """Ask from now on, as if it were new."""
        self.tries, self.next = 0, now

    def asked(self, transaction: bytes, size: int, now: float) -> None:
        """A PING was sent."""
        self._pings[transaction] = now, size
        self.pinged_at = now
        if len(self._pings) > _OUTSTANDING:
            del self._pings[next(iter(self._pings))]
        if self.asked_at is None:
            self.asked_at = now

    def answered(self, transaction: bytes, size: int, now: float) -> bool:
        """A PONG came; False: it is for no PING of ours over this path."""
        sent = self._pings.pop(transaction, None)
        if sent is None or sent[1] != size:
            return False
        self._trips.append(now - sent[0])
        late = self.asked_at is not None and now - self.asked_at >= self._usual
        if not self.alive:
            self.tries = 0
        self.alive, self.answered_at, self.asked_at = True, now, None
        if size >= PATH_SIZES[0]:
            if not self.checked:
                self.more = MORE_PINGS
            # A silent path that answers to a small PING only has become narrower.
            self.size = size if late else max(self.size, size)
        return True

    def wants(self) -> tuple[tuple[int, ...], float]:
        """Sizes of the PINGs to send now, and seconds until the next, for a path that carries
        nothing yet. Small ones until it answers: nobody asked for large ones there."""
        self.tries += 1
        if not self.alive and self.tries > _PUNCHES:
            return (CHECK_SIZE,), SEEK_AGAIN_MOST
        if not self.alive:
            return (CHECK_SIZE,), min(PING_AGAIN * 2 ** (self.tries - 1), PING_AGAIN_MOST)
        sizes = self.sizes if self.tries <= PING_SIZES_ROUNDS else self.sizes[:1]
        return sizes, max(PING_AGAIN, min(1.5 * self.rtt, SEEK_AGAIN_MOST))

    # --- silence -----------------------------------------------------------------------------

    @property
    def patience(self) -> float:
        """Seconds without an answer that are nothing unusual; more, up to a limit, for as long as
        the path still brings something, which a full one does long before its answers."""
        brought = 0.0 if self.asked_at is None else max(self.heard_at - self.asked_at, 0.0)
        return min(self._usual + brought, ANSWER_TRIPS * self._usual)

    @property
    def _usual(self) -> float:
        return max(ANSWER_TRIPS * self.rtt, ANSWER_PATIENCE)

    @property
    def suspect_at(self) -> float:
        """When the path becomes suspect, if nothing comes."""
        return math.inf if self.asked_at is None else self.asked_at + self.patience

    @property
    def lost_at(self) -> float:
        """When it will count as dead."""
        if self.asked_at is None:
            return math.inf
        return self.asked_at + max(LOST_AFTER, 2 * self.patience)

    def suspect(self, now: float) -> bool:
        """Whether an answer is overdue."""
        return now >= self.suspect_at

    def lose(self, now: float) -> None:
        """Give it up: it starts again like a new one, should it be asked again. What it carried
        then it need not carry later."""
        self.alive, self.size = False, 0
        self._pings.clear()
        self.asked_at = None
        self.begin(now)
