"""A network in virtual time for the state machines of edges: NATs, a relay, loss, black holes.

An `End` does what the shell would: it sends, opens sockets, and asks how they are seen. Everything
is deterministic for a seed.
"""

import functools
import heapq
import itertools
import random as randomness
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

from kafila.address import Address
from kafila.net.checks import Check
from kafila.net.paths import Action, Close, Gather, GatherMany, PathChecks, Send
from kafila.net.punching import ORDINARY, Punch

KEY = b"k" * 32
EDGE = b"e" * 8
PLAN = b"p" * 8
STUN = ("203.0.113.250", 3478)
RELAY = ("203.0.113.250", 4710)
HOPS = 12
"""Routers from one end to the other; each end's NAT is the first of its side."""

Depends = Literal["nothing", "address", "port"]


@dataclass(eq=False)
class Socket:
    """An end's socket; `relay` is one too."""

    address: Address


@dataclass
class Nat:
    """A NAT that maps and filters by nothing, address, or address and port of the other side."""

    host: str
    maps: Depends = "nothing"
    filters: Depends = "port"
    drops: bool = True
    """Whether what comes in unasked leaves no trace. If not, it spoils the way out."""
    _ports: dict[tuple[Address, object], int] = field(default_factory=dict)
    _owners: dict[int, Address] = field(default_factory=dict)
    _asked: set[tuple[int, object]] = field(default_factory=set)
    _spoilt: set[tuple[int, Address]] = field(default_factory=set)

    def out(self, local: Address, remote: Address, rng: randomness.Random) -> Address:
        """Return what the outside sees of a datagram."""
        key = local, _by(self.maps, remote)
        port = self._ports.get(key)
        if port is not None and (port, remote) in self._spoilt:
            key = local, remote
            port = self._ports.get(key)
        if port is None:
            port = self._ports[key] = rng.randrange(1024, 65536)
            self._owners[port] = local
        self._asked.add((port, _by(self.filters, remote)))
        return self.host, port

    def into(self, port: int, remote: Address) -> Address | None:
        """Return who gets a datagram from outside."""
        owner = self._owners.get(port)
        if owner is not None and (port, _by(self.filters, remote)) in self._asked:
            return owner
        if not self.drops:
            self._spoilt.add((port, remote))
        return None

    def reboot(self) -> None:
        """Forget everything."""
        for table in (self._ports, self._owners, self._asked, self._spoilt):
            table.clear()


def _by(depends: Depends, remote: Address) -> object:
    return {"nothing": None, "address": remote[0], "port": remote}[depends]


class End:
    """One end of the edge, at `host`, behind `nat` if there is one."""

    def __init__(self, world: "World", name: str, host: str, nat: Nat | None = None) -> None:
        self.world = world
        self.name = name
        self.host = host
        self.nat = nat
        self.main = Socket((host, 5000))
        self.relay = Socket(RELAY)
        self.sockets = {self.main.address: self.main}
        self.checks: PathChecks | None = None
        self.sent: list[tuple[float, Send]] = []
        self.opens = True
        """Whether there are fresh sockets to be had."""
        self.opened = 0

    def candidates(self, socket: Socket) -> list[Address]:
        """Where a socket can be reached, after a STUN server was asked."""
        if self.nat is None:
            return [socket.address]
        return [socket.address, self.nat.out(socket.address, STUN, self.world.rng)]

    def start(
        self,
        peer: list[Address],
        *,
        client: bool,
        relayed: bool = True,
        punch: Punch = ORDINARY,
        plan: bytes = PLAN,
        protocol: int = 1,
        key: bytes = KEY,
    ) -> PathChecks:
        """Begin with the edge, now."""
        self.checks = PathChecks(
            key=key,
            edge=EDGE,
            client=client,
            protocol=protocol,
            plan=plan,
            now=self.world.now,
            sockets={4: self.main},
            own=[self.main.address],
            candidates=peer,
            relay=(self.relay, RELAY) if relayed else None,
            punch=punch,
            random=self.world.rng.randbytes,
        )
        return self.checks

    def do(self, actions: list[Action]) -> None:
        """What the shell does."""
        for action in actions:
            match action:
                case Send():
                    self.sent.append((self.world.now, action))
                    self.world.carry(self, action)
                case Gather(round_):
                    socket = self._open() if self.opens else None
                    got = functools.partial(self._got, round_, socket)
                    self.world.after(2 * self.world.delay, got)
                case GatherMany(round_, number):
                    sockets = [self._open() for _ in range(number)]
                    assert self.checks is not None
                    self.do(self.checks.gathered_many(round_, sockets, self.world.now))
                case Close(socket):
                    del self.sockets[socket.address]

    def _open(self) -> Socket:
        self.opened += 1
        socket = Socket((self.host, 20000 + self.opened))
        self.sockets[socket.address] = socket
        return socket

    def _got(self, round_: int, socket: Socket | None) -> None:
        assert self.checks is not None
        candidates = self.candidates(socket or self.main)
        self.do(self.checks.gathered(round_, socket, candidates, self.world.now))

    def take(self, datagram: bytes, socket: Socket, source: Address) -> None:
        """A datagram arrived."""
        if self.checks is None:
            return
        check = Check.decode(datagram)
        self.do(self.checks.receive(datagram, check, socket, source, self.world.now) or [])


Passes = Callable[[float, str, Send], bool]
"""Whether a datagram gets through: time, sender, what is sent."""


class World:
    """Two ends and what is between them. One way takes `delay` seconds, by the relay twice that."""

    def __init__(
        self,
        *nats: Nat | None,
        delay: float = 0.04,
        loss: float = 0.0,
        largest: int = 65535,
        seed: int = 1,
    ) -> None:
        self.rng = randomness.Random(seed)
        self.now = 0.0
        self.delay = delay
        self.loss = loss
        self.largest = largest
        self.passes: Passes = lambda now, sender, send: True
        self._events: list[tuple[float, int, Callable[[], object]]] = []
        self._numbers = itertools.count()
        one, other = nats or (None, None)
        self.anna = End(self, "anna", "10.1.0.2" if one else "203.0.113.1", one)
        self.bert = End(self, "bert", "10.2.0.2" if other else "203.0.113.2", other)

    def start(self, skew: float = 0.0, *, relayed: bool = True, **more: Punch) -> None:
        """Introduce the two, anna as the client; bert hears of it `skew` seconds later."""
        mine = self.anna.candidates(self.anna.main)
        theirs = self.bert.candidates(self.bert.main)
        self.anna.start(
            theirs, client=True, relayed=relayed, punch=more.get("punch_anna", ORDINARY)
        )
        self.after(
            skew,
            lambda: self.bert.start(
                mine, client=False, relayed=relayed, punch=more.get("punch_bert", ORDINARY)
            ),
        )

    def after(self, seconds: float, call: Callable[[], object]) -> None:
        """Call something later."""
        heapq.heappush(self._events, (self.now + seconds, next(self._numbers), call))

    def carry(self, sender: End, send: Send) -> None:
        """Take a datagram on its way."""
        lost = self.rng.random() < self.loss or len(send.datagram) > self.largest
        if lost or not self.passes(self.now, sender.name, send):
            return
        receiver = self.bert if sender is self.anna else self.anna
        if send.socket is sender.relay:
            self.after(2 * self.delay, lambda: receiver.take(send.datagram, receiver.relay, RELAY))
            return
        source = send.socket.address
        if source not in sender.sockets:
            return
        if sender.nat is not None:
            source = sender.nat.out(source, send.address, self.rng)
        if send.ttl is not None and send.ttl < HOPS:
            return
        self.after(self.delay, lambda: self._arrive(receiver, send, source))

    def _arrive(self, receiver: End, send: Send, source: Address) -> None:
        target: Address | None = send.address
        if receiver.nat is not None:
            inside = send.address[0] == receiver.nat.host
            target = receiver.nat.into(send.address[1], source) if inside else None
        socket = receiver.sockets.get(target) if target is not None else None
        if socket is not None:
            receiver.take(send.datagram, socket, source)

    def run(self, until: float, when: Callable[[], bool] = lambda: False) -> float:
        """Let time pass until then, or until something is so; return the time."""
        while not when():
            timers = [
                (due, end)
                for end in (self.anna, self.bert)
                if end.checks is not None and (due := end.checks.timer()) is not None
            ]
            soonest = min((due for due, _ in timers), default=float("inf"))
            event = self._events[0][0] if self._events else float("inf")
            if min(soonest, event) > until:
                self.now = until
                break
            self.now = max(self.now, min(soonest, event))
            if event <= soonest:
                heapq.heappop(self._events)[2]()
            else:
                _, end = min(timers, key=lambda timer: timer[0])
                assert end.checks is not None
                end.do(end.checks.poll(self.now))
        return self.now
