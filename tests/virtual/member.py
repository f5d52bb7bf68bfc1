"""A member in a virtual network: what its shells do with the state machines, synchronously.

One end of one edge: it registers (bound at the relay, its address outside known), is introduced,
and hands frames to whatever carries the edge. On the way it watches over what must always hold.
"""

import functools
import itertools
import math
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Final

from kafila.address import Address
from kafila.defaults import (
    BIRTHDAY_SOCKETS,
    BUSY_SECONDS,
    GATHER_SECONDS,
    QUERY_AGAIN,
    REFRESH_SECONDS,
)
from kafila.net.candidates import Interface, rank
from kafila.net.checks import Check
from kafila.net.datagram import Family, binding_mapped, binding_request, family
from kafila.net.path import Path
from kafila.net.paths import Action, Close, Gather, GatherMany, PathChecks, Send, State
from kafila.net.punching import ORDINARY, Punch
from kafila.net.relay import BOUND, Binding
from kafila.net.relaying import FRAME_HEAD, frame_head, relay_flow
from tests.virtual.network import Host, Network, Socket
from tests.virtual.servers import RENDEZVOUS, Rendezvous

KEY: Final = b"k" * 32
EDGE: Final = b"e" * 8
PLAN: Final = b"p" * 8
SESSION: Final = b"S" * 32
QUIC: Final = 0x40
"""First byte of a frame, so that it is taken for a datagram of QUIC."""


class Relayed:
    """The carrier of the relayed flow, for PathChecks an opaque socket like any other."""

    def __init__(self, socket: Socket, flow: bytes) -> None:
        self._socket = socket
        self._head = frame_head(flow)

    def send(self, datagram: bytes, address: Address, ttl: int | None = None) -> None:
        self._socket.send(self._head + datagram, RENDEZVOUS)


class Member:
    """One end of the edge; `client` is its part in it."""

    def __init__(self, host: Host, *, client: bool) -> None:
        self.host = host
        self.network: Network = host.network
        self.client = client
        self.keys = (b"a", b"b") if client else (b"b", b"a")
        self.reflexive: list[Address] = []
        self.main = self._open()
        self.relayed = Relayed(self.main, relay_flow(SESSION, *self.keys))
        self.binding: Binding | None = None
        self.checks: PathChecks | None = None
        self.sockets: set[Socket] = set()
        """The fresh ones."""
        self.sent: Counter[int] = Counter()
        """Packets of the edge itself, by tenth of a second."""
        self.states: list[tuple[float, State]] = []
        self.most_sockets = 0
        self.frames: list[tuple[float, bool]] = []
        """When each frame was handed to the edge, and whether it has come to the peer."""
        self.peer: Member | None = None
        self.refused = 0
        """Frames that came over a path that is not known to be the peer's."""
        self._asked: dict[bytes, Callable[[Address], object]] = {}
        self._timers: Counter[str] = Counter()
        self._busy_until = self._refreshed_at = -math.inf

    # --- before the edge ---------------------------------------------------------------------

    def register(self, rendezvous: Rendezvous) -> None:
        """Bind at the relay, and ask how the main socket is seen."""
        grant = rendezvous.grant(SESSION, *self.keys)
        self.binding = Binding(grant, self.network.now, self.network.random.randbytes)
        self._bind()
        self._stun(self.main, RENDEZVOUS, self.reflexive.append)

    @property
    def registered(self) -> bool:
        return self.binding is not None and self.binding.state in BOUND and bool(self.reflexive)

    def candidates(self, seen: Sequence[Address] | None = None, port: int = 0) -> list[Address]:
        """Where a socket can be reached, as the deployed code ranks it."""
        interface = Interface("eth0", 1500, [(self.host.address, 24)])
        return rank(
            [interface],
            port=port or self.main.address[1],
            port6=None,
            reflexive=self.reflexive if seen is None else seen,
        )

    def begin(
        self, peer: Sequence[Address], *, punch: Punch = ORDINARY, relay: bool = True
    ) -> None:
        """The peer was introduced."""
        network = self.network
        self.checks = PathChecks(
            key=KEY,
            edge=EDGE,
            client=self.client,
            protocol=1,
            plan=PLAN,
            now=network.now,
            sockets={4: self.main},
            own=self.candidates([]),
            candidates=peer,
            relay=(self.relayed, RENDEZVOUS) if relay else None,
            punch=punch,
            random=network.random.randbytes,
        )
        self._act(self.checks.poll(network.now))

    # --- what the edge is --------------------------------------------------------------------

    @property
    def state(self) -> State | None:
        return None if self.checks is None else self.checks.state

    @property
    def direct(self) -> bool:
        return self.state is State.DIRECT

    def talk(self, every: float = 0.05) -> None:
        """Hand a frame to the edge every so many seconds, from now on."""

        def speak() -> None:
            self.say()
            self._arm("talk", self.network.now + every, speak)

        speak()

    def hush(self) -> None:
        """Have nothing more to say."""
        self._timers["talk"] += 1

    def say(self) -> None:
        """Hand one frame to whatever carries the edge."""
        if self.checks is None:
            return
        number = len(self.frames)
        self.frames.append((self.network.now, False))
        size = min((path.size or 1200 for path in self.checks.carrying), default=1200)
        frame = (bytes([QUIC]) + number.to_bytes(4)).ljust(size, b"\0")
        for path in self.checks.carrying:
            self._count()
            path.socket.send(frame, path.address)
        self._busy()

    def outage(self) -> float:
        """Seconds of the longest row of frames that were lost."""
        longest = 0.0
        for came, row in itertools.groupby(self.frames, key=lambda frame: frame[1]):
            times = [time for time, _ in row]
            if not came:
                longest = max(longest, times[-1] - times[0])
        return longest

    def busiest(self, seconds: float = 1.0) -> int:
        """Packets in the busiest time of that length."""
        tenths = round(10 * seconds)
        starts = list(self.sent)
        return max((sum(self.sent[s + i] for i in range(tenths)) for s in starts), default=0)

    # --- what arrives ------------------------------------------------------------------------

    def _open(self) -> Socket:
        socket = self.host.open(lambda datagram, source: self._receive(socket, datagram, source))
        return socket

    def _receive(self, socket: Socket, datagram: bytes, source: Address) -> None:
        now = self.network.now
        match family(datagram):
            case Family.STUN:
                mapped = binding_mapped(datagram)
                if mapped is not None and mapped[0] in self._asked:
                    self._asked.pop(mapped[0])(mapped[1])
            case Family.BINDING if self.binding is not None:
                try:
                    messages = self.binding.receive(datagram, now)
                except ValueError:  # a copy, or late
                    return
                for message in messages:
                    self.main.send(message, RENDEZVOUS)
                self._bind()
            case Family.RELAY:
                assert (socket, source) == (self.main, RENDEZVOUS)
                self._take(self.relayed, datagram[FRAME_HEAD:], RENDEZVOUS)
            case _:
                self._take(socket, datagram, source)

    def _take(self, carrier: Socket | Relayed, datagram: bytes, source: Address) -> None:
        """What a peer sends."""
        checks, now = self.checks, self.network.now
        if checks is None:
            return
        if family(datagram) is Family.CHECK:
            check = Check.decode(datagram)
            actions = checks.receive(datagram, check, carrier, source, now)
            self._act(actions or [])
            return
        path = checks.find(carrier, source)
        if path is None:
            self.refused += 1
            return
        if path is not checks.used:
            self._act(checks.over(path, now))
        path.heard_at = now
        if not (path.checked or path.kind == "relayed" or path.met):
            self.refused += 1
            return
        assert self.peer is not None
        number = int.from_bytes(datagram[1:5])
        self.peer.frames[number] = self.peer.frames[number][0], True
        self._busy()

    # --- doing what the machines say ---------------------------------------------------------

    def _act(self, actions: Sequence[Action]) -> None:
        for action in actions:
            match action:
                case Send(socket, address, datagram, ttl):
                    self._count()
                    socket.send(datagram, address, ttl)
                case Gather(round_):
                    self._gather(round_)
                case GatherMany(round_, number):
                    self._gather_many(round_, number)
                case Close(socket):
                    self.sockets.remove(socket)
                    socket.close()
        self._watch()
        self._greet()
        assert self.checks is not None
        due = self.checks.timer()
        if due is not None:
            self._arm("checks", due, self._poll)

    def _watch(self) -> None:
        """What must hold at all times."""
        checks = self.checks
        assert checks is not None
        used: Path | None = checks.used
        hoped = checks.relay is None and used is not None and not used.alive
        for path in checks.carrying:
            assert path.checked or path.kind == "relayed" or (hoped and path is used)
        assert len(checks.carrying) <= 2
        for path in checks.paths:
            alive = path.socket is self.main or path.socket is self.relayed
            assert alive or path.socket in self.sockets, "a path over a closed socket"
        self.most_sockets = max(self.most_sockets, len(self.sockets))
        assert self.most_sockets <= 2 * (BIRTHDAY_SOCKETS + 2)
        if not self.states or self.states[-1][1] is not checks.state:
            self.states.append((self.network.now, checks.state))

    def _greet(self) -> None:
        """A relayed path that is silent: does the relay still know where we are?"""
        assert self.checks is not None
        relay, now = self.checks.relay, self.network.now
        if relay is None or self.binding is None or not relay.suspect(now):
            return
        if now - self._refreshed_at > REFRESH_SECONDS:
            self._refreshed_at = now
            self.binding.refresh(now)
            self._bind()

    def _poll(self) -> None:
        assert self.checks is not None
        self._act(self.checks.poll(self.network.now))

    def _busy(self) -> None:
        now = self.network.now
        if now >= self._busy_until and self.checks is not None:
            self._busy_until = now + BUSY_SECONDS
            self._act(self.checks.busy(now))

    def _count(self) -> None:
        self.sent[int(self.network.now * 10)] += 1

    def _bind(self) -> None:
        assert self.binding is not None
        for message in self.binding.poll(self.network.now):
            self.main.send(message, RENDEZVOUS)
        self._arm("binding", self.binding.timer(), self._bind)

    def _arm(self, name: str, due: float, call: Callable[[], None]) -> None:
        """Call it then, unless it is armed anew before."""
        self._timers[name] += 1
        number = self._timers[name]

        def fire() -> None:
            if self._timers[name] == number:
                call()

        self.network.at(due, fire)

    # --- sockets -----------------------------------------------------------------------------

    def _gather(self, round_: int) -> None:
        socket = self._open()
        self.sockets.add(socket)

        def got(*seen: Address) -> None:
            if socket not in got_by and self.checks is not None:
                got_by.add(socket)
                places = self.candidates(seen, socket.address[1])
                self._act(self.checks.gathered(round_, socket, places, self.network.now))

        got_by: set[Socket] = set()
        self._stun(socket, RENDEZVOUS, got)
        self.network.after(GATHER_SECONDS, got)

    def _gather_many(self, round_: int, number: int) -> None:
        assert self.checks is not None
        sockets = [self._open() for _ in range(number)]
        self.sockets.update(sockets)
        self._act(self.checks.gathered_many(round_, sockets, self.network.now))

    def _stun(self, socket: Socket, server: Address, got: Callable[[Address], object]) -> None:
        """Ask a server how it sees a socket, until it answers or the socket is closed."""
        transaction = self.network.random.randbytes(12)
        self._asked[transaction] = got

        def ask(pause: float) -> None:
            if transaction in self._asked and (socket is self.main or socket in self.sockets):
                socket.send(binding_request(transaction), server)
                self.network.after(pause, functools.partial(ask, 2 * pause))

        ask(QUERY_AGAIN)
