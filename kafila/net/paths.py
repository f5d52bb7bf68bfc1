"""The state machine of one edge, below its QUIC: what carries it, and how that gets better.

Sans-IO, in virtual time. Feed it what arrives (`receive`) and the time (`poll` whenever `timer`
says so); do what it returns. `used` and `carrying` say over which paths QUIC's datagrams go. The
QUIC connection above knows nothing of this. See docs/wire.md for the states.
"""

import math
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from kafila.address import Address
from kafila.net.checks import Check, CheckType, Signer
from kafila.net.path import Path
from kafila.net.punching import ORDINARY, Punch
from kafila.net.routes import DIRECTLY, Routes, Send, State
from kafila.net.search import Action, Close, Gather, GatherMany, Search

__all__ = ["Action", "Close", "Gather", "GatherMany", "Mismatch", "PathChecks", "Send", "State"]


class Mismatch(NamedTuple):
    """What the peer, proven to be the peer by a fresh PONG, has otherwise than we do."""

    protocol: int
    plan: bytes
    """The first 8 bytes of its plan digest."""


class PathChecks:
    """One end of an edge. `mismatch`, once set, is the reason why there will be none."""

    def __init__(
        self,
        *,
        key: bytes,
        edge: bytes,
        client: bool,
        protocol: int,
        plan: bytes,
        now: float,
        sockets: Mapping[int, Any],
        own: Sequence[Address] = (),
        candidates: Sequence[Address] = (),
        relay: tuple[Any, Address] | None = None,
        punch: Punch = ORDINARY,
        random: Callable[[int], bytes] = os.urandom,
    ) -> None:
        """`sockets` are this node's main ones by IP version and `own` their addresses,
        `candidates` the peer's, best first; `relay` is the relayed path's carrier and address."""
        self._signer = Signer(key, edge, client, protocol, plan)
        through = None if relay is None else Path("relayed", *relay)
        self._routes = Routes(self._signer, through, random, now)
        self._search = Search(
            self._routes,
            self._signer,
            sockets=sockets,
            own=own,
            candidates=candidates,
            punch=punch,
            random=random,
            now=now,
        )
        self._fallen = False
        self.present = False
        """Whether anything authentic ever came from the peer."""
        self.mismatch: Mismatch | None = None

    # --- what carries the edge ---------------------------------------------------------------

    @property
    def paths(self) -> list[Path]:
        """Every path that is known."""
        return self._routes.paths

    @property
    def used(self) -> Path | None:
        """The path in use; None: there is none yet."""
        return self._routes.used

    @property
    def relay(self) -> Path | None:
        """The relayed path."""
        return self._routes.relay

    @property
    def carrying(self) -> tuple[Path, ...]:
        """The paths that take every datagram now: two while the one in use is suspect."""
        return self._routes.carrying

    @property
    def state(self) -> State:
        """What carries the edge."""
        return self._routes.state

    @property
    def why(self) -> str:
        """Why the path is not direct, in a clause; empty if it is."""
        if self.state in DIRECTLY:
            return ""
        if self._search.vain == 0:
            return "the direct path fell silent" if self._fallen else "looking for a direct path"
        vain = self._search.vain
        reason = self._search.punch.hopeless or "nothing came through"
        return f"{reason}, {vain} {'try' if vain == 1 else 'tries'}"

    def find(self, socket: Any, address: Address) -> Path | None:
        """Return the path from `socket` to `address`, checked or not."""
        return self._routes.find(socket, address)

    # --- what happens ------------------------------------------------------------------------

    def receive(
        self, datagram: bytes, check: Check, socket: Any, source: Address, now: float
    ) -> list[Action] | None:
        """Take a decoded check that names this edge; return what to do, None if it is forged.

        A PING is always answered, by a PONG that is never larger. A PING alone proves nothing
        (it may be a replay): its source only becomes one more path to check.
        """
        if not self._signer.genuine(datagram, check):
            return None
        self.present = True
        routes, search = self._routes, self._search
        actions: list[Action] = []
        path = routes.find(socket, source)
        if check.type is CheckType.PING:
            pong = self._signer.sign(CheckType.PONG, check.transaction, len(datagram))
            actions.append(Send(socket, source, pong))
            path = path or routes.discover(socket, source, search.round_of(socket), now)
        if path is None or self.mismatch is not None:
            return actions
        search.heard(None if path is routes.relay else path.round, now)
        path.met = True
        if check.type is CheckType.PING:
            actions += routes.wanted(path, now)
        path.heard_at = now
        match check.type:
            case CheckType.PONG:
                asked = routes.answered(path, check, now)
                theirs = Mismatch(check.protocol, check.plan)
                if asked is not None and theirs != (self._signer.protocol, self._signer.plan):
                    self.mismatch = theirs
                    return []
                actions += asked or []
            case CheckType.READY:
                search.ready(check)
            case CheckType.CALL:
                search.called(check, now)
        return actions + self.poll(now)

    def over(self, path: Path, now: float) -> list[Action]:
        """The peer sends QUIC over a path that is not the one in use here."""
        if self.mismatch is not None:
            return []
        if path is self._routes.relay:
            return self.poll(now) if self._routes.hint(now) else []
        return [*self._routes.wanted(path, now)]

    def busy(self, now: float) -> list[Action]:
        """QUIC's datagrams go or come: the path in use is asked often. Say so twice a second."""
        self._routes.busy(now)
        return self.poll(now)

    def update(self, candidates: Sequence[Address], now: float) -> list[Action]:
        """A new record says where the peer is now: look there, unless there is a direct path."""
        return self._search.update(candidates, now) + self.poll(now)

    def gathered(
        self, round_: int, socket: Any, candidates: Sequence[Address], now: float
    ) -> list[Action]:
        """The socket asked for by `Gather` is there (None: none is to be had); these addresses,
        best first, lead to it."""
        return self._search.gathered(round_, socket, candidates, now) + self.poll(now)

    def gathered_many(self, round_: int, sockets: Sequence[Any], now: float) -> list[Action]:
        """The sockets asked for by `GatherMany`."""
        return self._search.gathered_many(round_, sockets, now) + self.poll(now)

    # --- time --------------------------------------------------------------------------------

    def poll(self, now: float) -> list[Action]:
        """Judge, choose, and do what is due."""
        if self.mismatch is not None:
            return []
        state, used = self.state, self.used
        self._routes.settle(now)
        if used is not None and state in DIRECTLY and self.state not in DIRECTLY:
            self._fallen = True
            self._search.fell(used, now)
        actions = self._search.poll(now)
        actions += self._routes.poll(now)
        return actions

    def timer(self) -> float | None:
        """Return when to `poll` next; None: not before something arrives."""
        if self.mismatch is not None:
            return None
        due = min(self._routes.timer(), self._search.timer())
        return None if due == math.inf else due
