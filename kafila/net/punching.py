"""One round of punching: both ends open their NATs, tell each other through the relay, then send.

The order matters. Many NATs keep an entry for a packet that came in before anything went out, and
then give the way out another port than the peer was told. So each end first sends openers that
die before they reach the peer's NAT, and begins in earnest when both have. In virtual time; knows
neither paths nor sockets.

    GATHER -> CALL -> PREPARE -> PUNCH -> OVER
    (a round after the first       (the first round, with a relay,
    begins here)                    begins at PREPARE; without one, at PUNCH)
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Final

from kafila.defaults import (
    CALL_SECONDS,
    PREPARE_ALONE,
    PREPARE_TIMEOUT,
    PUNCH_SECONDS,
    READY_AGAIN,
    READY_AGAIN_MOST,
)


@dataclass(frozen=True)
class Punch:
    """What the plan says that matters for punching one edge."""

    birthday: bool = False
    """Whether many sockets and guessed ports may be tried."""
    dependent: bool = False
    """Whether our NAT's mapping depends on the destination."""
    filtered: bool = False
    """Whether our NAT lets in only what comes from an address and port that was sent to."""
    peer_dependent: bool = False
    peer_filtered: bool = False

    @property
    def hopeless(self) -> str:
        """Why ordinary punching cannot succeed, as far as is known; empty if it may."""
        if self.dependent and self.peer_dependent:
            return "both NATs map by destination"
        if (self.dependent and self.peer_filtered) or (self.peer_dependent and self.filtered):
            return "one NAT maps by destination, the other filters by port"
        return ""

    @property
    def guess(self) -> bool:
        """Whether ports may be guessed: one side must be found at one port."""
        return self.birthday and self.dependent != self.peer_dependent


ORDINARY: Final = Punch()
"""Nothing is known of the NATs, and nothing extraordinary is tried."""


class Phase(Enum):
    """How far a round is."""

    GATHER = "gather"
    CALL = "call"
    PREPARE = "prepare"
    PUNCH = "punch"
    OVER = "over"


class Step(Enum):
    """What a round wants done now."""

    GATHER = "open a fresh socket and find out how it is seen"
    CALL = "send a CALL"
    OPEN = "send openers"
    READY = "send a READY"
    PUNCH = "send PINGs to every address"
    END = "stop that"


class Round:
    """One round. Tell it what happens, `poll` it whenever `timer` says so, and do what it says."""

    def __init__(self, number: int, now: float, *, relayed: bool) -> None:
        """`relayed`: the peer can be told and called through a relay. Without one, the only round
        has number 0 and does not end."""
        self.number = number
        self.called = number == 0
        """Whether the peer's addresses for this round are known."""
        self._relayed = relayed
        self.is_ready = not relayed
        """Whether the peer has opened its NAT."""
        self._answers: dict[Step, None] = {}  # to a peer that lacks our word
        self._heard = False
        self._trip = 0.0
        self.phase = Phase.OVER
        self._new, self._said = False, False
        self._until = self._next = math.inf
        self._again = READY_AGAIN
        if number:
            self._enter(Phase.GATHER, now + CALL_SECONDS)
        elif relayed:
            self._enter(Phase.PREPARE, now + PREPARE_ALONE + PREPARE_TIMEOUT)
        else:
            self._enter(Phase.PUNCH, math.inf)

    @property
    def over(self) -> bool:
        """Whether nothing more comes of it."""
        return self.phase is Phase.OVER

    def timer(self) -> float:
        """When to poll next."""
        if self.over:
            return math.inf
        return -math.inf if self._new or self._answers else min(self._next, self._until)

    # --- what happens ------------------------------------------------------------------------

    def gathered(self, now: float) -> None:
        """The fresh socket is there."""
        if self.phase is Phase.GATHER:
            self._enter(Phase.CALL, now + CALL_SECONDS)

    def call(self, *, heard: bool) -> None:
        """The peer's CALL for this round came: its addresses are known. `heard`: it had ours."""
        if self.called and not heard and self.phase in (Phase.CALL, Phase.PREPARE, Phase.PUNCH):
            self._answers[Step.CALL] = None
        self.called = True

    def ready(self, *, heard: bool) -> None:
        """The peer's READY for this round came."""
        if self.is_ready and not heard and self.phase in (Phase.PREPARE, Phase.PUNCH):
            self._answers[Step.READY] = None
        self.is_ready = True

    def heard(self, now: float) -> None:
        """Something of the peer came through the relay: its word will follow, if it is to."""
        if self.phase is Phase.PREPARE and not self._heard:
            self._heard = True
            self._until = min(self._until, now + max(PREPARE_TIMEOUT, self._trip))

    def met(self) -> None:
        """A check of the peer came straight: it has begun."""
        self.is_ready = True

    # --- what to do --------------------------------------------------------------------------

    def poll(self, now: float, trip: float = 0.0) -> Iterator[Step]:
        """Yield what is due; `trip` is the round trip through the relay in seconds, if known."""
        self._trip = 1.5 * trip
        answers, self._answers = self._answers, {}
        yield from answers
        if self.phase is Phase.GATHER and self._begins():
            yield Step.GATHER
        if self.phase is Phase.CALL:
            self._new = False
            yield from self._say(Step.CALL, now, enough=self.called)
            if self.called:
                self._enter(Phase.PREPARE, now + max(PREPARE_TIMEOUT, self._trip))
        if self.phase is Phase.PREPARE:
            if self._begins():
                yield Step.OPEN
            yield from self._say(Step.READY, now, enough=self.is_ready)
            if self.is_ready or now >= self._until:
                self._enter(Phase.PUNCH, now + PUNCH_SECONDS)
        if self.phase is Phase.PUNCH:
            if self._begins():
                yield Step.PUNCH
            if self._relayed:
                yield from self._say(Step.READY, now, enough=self.is_ready)
        if now >= self._until and not self.over:
            self.phase = Phase.OVER
            yield Step.END

    def _begins(self) -> bool:
        """Whether the phase is a new one; asked once."""
        new, self._new = self._new, False
        return new

    def _say(self, step: Step, now: float, *, enough: bool) -> Iterator[Step]:
        """Say it once at least, and again until it is enough."""
        if self._said and enough:
            self._next = math.inf
        elif now >= self._next:
            self._said = True
            self._next = now + self._again
            self._again = min(2 * self._again, READY_AGAIN_MOST)
            yield step

    def _enter(self, phase: Phase, until: float) -> None:
        self.phase, self._until, self._new = phase, until, True
        if phase is not Phase.PUNCH or not self._relayed:  # there READY goes on
            self._said, self._again, self._next = False, READY_AGAIN, math.inf
        if phase in (Phase.CALL, Phase.PREPARE):
            self._next = -math.inf
