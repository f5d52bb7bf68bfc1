"""The search for direct paths over an edge's life: round after round, each on a fresh socket.

A fresh one because a NAT that took a peer's packet for its own may have spoilt the old port for as
long as its entry lives. Only the client begins a round after a vain one, either end when a direct
path died; the other joins. In virtual time; sockets are opaque.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from kafila.address import Address
from kafila.defaults import (
    BIRTHDAY_SOCKETS,
    MAX_ROUND_SKIP,
    OPENER_TTLS,
    RECORD_AGAIN,
    ROUND_AGAIN,
)
from kafila.net.birthday import Salvo, guesses, openers
from kafila.net.checks import CHECK_SIZE, Check, CheckType, Signer
from kafila.net.path import Path
from kafila.net.punching import Phase, Punch, Round, Step
from kafila.net.routes import DIRECTLY, Routes, Send
from kafila.net.targets import near, outside, reachable, version


class Gather(NamedTuple):
    """Open a fresh socket, find out how it is seen from outside, and call `gathered`."""

    round: int


class GatherMany(NamedTuple):
    """Open many fresh sockets and call `gathered_many`."""

    round: int
    number: int


class Close(NamedTuple):
    """Close a socket that `gathered` or `gathered_many` brought."""

    socket: Any


Action = Send | Gather | GatherMany | Close


class Search:
    """The rounds of one edge, and the sockets opened for them."""

    def __init__(
        self,
        routes: Routes,
        signer: Signer,
        *,
        sockets: Mapping[int, Any],
        own: Sequence[Address],
        candidates: Sequence[Address],
        punch: Punch,
        random: Callable[[int], bytes],
        now: float,
    ) -> None:
        """`sockets` are the main ones by IP version, `own` their addresses, `candidates`
        the peer's."""
        self.vain = 0
        """Rounds that found nothing, since there last was a direct path."""
        self.punch = punch
        self._routes = routes
        self._signer = signer
        self._sockets = dict(sockets)
        self._own = tuple(own)
        self._random = random
        self._record = tuple(candidates)
        self._theirs = self._record
        self._mine: tuple[Address, ...] = ()
        self._latest = 0  # round of a CALL that was heeded
        self._fresh: dict[Any, int] = {}
        self._salvo: Salvo | None = None
        self._again_at = math.inf
        self._begun_at = now
        self._round = Round(0, now, relayed=routes.relay is not None)

    # --- what happens ------------------------------------------------------------------------

    def update(self, candidates: Sequence[Address], now: float) -> list[Action]:
        """Where the peer's main sockets are now, from its record."""
        if tuple(candidates) == self._record:
            return []
        self._record = tuple(candidates)
        if self._round.number == 0 and self._round.phase is Phase.PREPARE:
            self._theirs = self._record
            return self._open(now)
        relayed = self._routes.relay is not None
        for socket, address in self._aims(candidates, self._sockets):
            path = self._routes.add(socket, address, 0)
            if path is not None and not path.alive and (near(address, self._own) or not relayed):
                path.begin(now)
        if self._round.phase in (Phase.PUNCH, Phase.OVER) and self._routes.state not in DIRECTLY:
            self._again_at = min(self._again_at, max(now, self._begun_at + RECORD_AGAIN))
        return []

    def gathered(
        self, round_: int, socket: Any, candidates: Sequence[Address], now: float
    ) -> list[Action]:
        """The fresh socket of a round is there (None: none could be had, the main ones must do),
        and we can be reached at these addresses."""
        if (round_, Phase.GATHER) != (self._round.number, self._round.phase):
            return [] if socket is None else [Close(socket)]
        if socket is not None:
            self._fresh[socket] = round_
        self._mine = tuple(candidates)
        self._round.gathered(now)
        return []

    def gathered_many(self, round_: int, sockets: Sequence[Any], now: float) -> list[Action]:
        """The many sockets of a round are there."""
        target = outside(self._theirs)
        if round_ != self._round.number or self._round.over or target is None:
            return [Close(socket) for socket in sockets]
        self._fresh.update(dict.fromkeys(sockets, round_))
        self._salvo = Salvo(openers(sockets, target), now)
        return []

    def called(self, check: Check, now: float) -> None:
        """The peer's CALL: join its round, or bring it to ours. One of a round that it was heard in
        before is a replay."""
        number, ours = check.round, self._round.number
        if self._routes.relay is None or number > ours + MAX_ROUND_SKIP:
            return
        new, self._latest = number > self._latest, max(number, self._latest)
        behind = number <= ours and self._round.over and not check.heard
        if number > ours:
            self._start(number, now)
        elif behind and new and self._routes.state not in DIRECTLY:
            self._start(ours + 1, now)  # it does not know that we are further
            return
        if number == self._round.number:
            self._round.call(heard=check.heard)
            self._theirs = check.candidates

    def ready(self, check: Check) -> None:
        """The peer's READY."""
        if check.round == self._round.number:
            self._round.ready(heard=check.heard)

    def heard(self, round_: int | None, now: float) -> None:
        """A check of the peer came: straight, to a socket of a round, or (None) by the relay."""
        if round_ is None:
            self._round.heard(now)
        elif round_ == self._round.number:
            self._round.met()

    def round_of(self, socket: Any) -> int:
        """The round that a socket was opened for; 0 for the main ones."""
        return self._fresh.get(socket, 0)

    # --- what to do --------------------------------------------------------------------------

    def timer(self) -> float:
        """When to poll next."""
        salvo = math.inf if self._salvo is None else self._salvo.timer()
        again = self._again_at if self._routes.relaying else math.inf
        return min(self._round.timer(), salvo, again)

    def fell(self, path: Path, now: float) -> None:
        """The direct path died: look for another at once, unless a newer round is at it."""
        if self._round.over or path.round >= self._round.number:
            self._again_at = now

    def poll(self, now: float) -> list[Action]:
        """Do what is due."""
        routes = self._routes
        actions: list[Action] = []
        if routes.state in DIRECTLY:
            self.vain, self._again_at, self._salvo = 0, math.inf, None
        if now >= self._again_at and routes.relaying:
            self._start(self._round.number + 1, now)
        trip = 0.0 if routes.relay is None else routes.relay.rtt
        for step in self._round.poll(now, trip):
            actions += self._do(step, now)
        alone = routes.state not in DIRECTLY and not routes.relaying
        routes.seeking = alone or (routes.relay is not None and not self._round.over)
        if self._salvo is not None:
            for shot in self._salvo.poll(now):
                ping = self._signer.sign(CheckType.PING, self._random(8), CHECK_SIZE)
                actions.append(Send(shot.socket, shot.address, ping, shot.ttl))
            if self._salvo.over:
                self._salvo = None
        return actions

    def _do(self, step: Step, now: float) -> list[Action]:
        number = self._round.number
        match step:
            case Step.GATHER:
                return [*self._tidy(), Gather(number)]
            case Step.CALL:
                return self._tell(CheckType.CALL, self._round.called, self._mine)
            case Step.READY:
                return self._tell(CheckType.READY, self._round.is_ready)
            case Step.OPEN:
                return [*self._open(now), *self._gather_many()]
            case Step.PUNCH:
                return self._punch(now)
            case Step.END:
                self._salvo = None
                if self._routes.state not in DIRECTLY:
                    self.vain += 1
                    if self._signer.client:
                        wait = ROUND_AGAIN[min(self.vain, len(ROUND_AGAIN)) - 1]
                        self._again_at = now + wait
                return self._tidy()

    def _start(self, number: int, now: float) -> None:
        self._round, self._begun_at = Round(number, now, relayed=True), now
        self._theirs, self._mine = (), ()
        self._again_at, self._salvo = math.inf, None

    def _tell(
        self, type_: CheckType, heard: bool, candidates: Sequence[Address] = ()
    ) -> list[Action]:
        relay = self._routes.relay
        if relay is None:
            return []
        number = self._round.number.to_bytes(8)
        datagram = self._signer.sign(type_, number, int(heard), candidates)
        return [Send(relay.socket, relay.address, datagram)]

    def _aims(
        self, candidates: Sequence[Address], sockets: Mapping[int, Any]
    ) -> list[tuple[Any, Address]]:
        kept = reachable(candidates, self._own, sockets.keys())
        return [(sockets[version(address)], address) for address in kept]

    def _round_sockets(self) -> dict[int, Any]:
        """The sockets of the round: a fresh one for IPv4, where NATs are."""
        number = self._round.number
        fresh = [each for each, round_ in self._fresh.items() if round_ == number]
        return {**self._sockets, 4: fresh[0]} if number and fresh else self._sockets

    def _open(self, now: float) -> list[Action]:
        """Openers to addresses behind a NAT; what lies behind none is asked outright."""
        sends: list[Action] = []
        for socket, address in self._aims(self._theirs, self._round_sockets()):
            path = self._routes.add(socket, address, self._round.number)
            if path is None or path.alive:
                continue
            if near(address, self._own):
                path.begin(now)
            else:
                for ttl in OPENER_TTLS:
                    sends.append(self._routes.ping(path, CHECK_SIZE, now, ttl))
        return sends

    def _punch(self, now: float) -> list[Action]:
        """PINGs to every address of the round, and to guessed ones if that is allowed."""
        sockets = self._round_sockets()
        for socket, address in self._aims(self._theirs, sockets):
            path = self._routes.add(socket, address, self._round.number)
            if path is not None and not path.alive:
                path.begin(now)
        target = outside(self._theirs)
        if self._guessing() and self.punch.peer_dependent and target is not None and 4 in sockets:
            self._salvo = Salvo(guesses(sockets[4], target[0], self._random), now)
        return [] if self._routes.relay is not None else self._gather_many()

    def _gather_many(self) -> list[Action]:
        if self._guessing() and self.punch.dependent and outside(self._theirs) is not None:
            return [GatherMany(self._round.number, BIRTHDAY_SOCKETS)]
        return []

    def _guessing(self) -> bool:
        """Ports are guessed where nothing else can succeed, or an ordinary round did not."""
        return self.punch.guess and (bool(self.punch.hopeless) or self._round.number > 0)

    def _tidy(self) -> list[Action]:
        """Close the sockets that no path needs any more."""
        routes = self._routes
        closing: list[Action] = []
        kept = {path.socket for path in routes.paths if path.alive or path is routes.used}
        for socket, round_ in list(self._fresh.items()):
            current = round_ == self._round.number and not self._round.over
            if not current and socket not in kept:
                for path in [each for each in routes.paths if each.socket is socket]:
                    routes.drop(path)
                del self._fresh[socket]
                closing.append(Close(socket))
        return closing
