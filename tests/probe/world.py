"""A classification in virtual time: a member behind NATs, servers, a stranger behind its own."""

import heapq
import itertools
import random
from collections.abc import Callable, Sequence

from kafila.address import Address
from kafila.net.datagram import binding_answer
from kafila.probe.nat import Classifier, Send, Servers, Socket, Verdict
from kafila.probe.strangers import Stranger
from kafila.rendezvous.reflection import Reflection
from tests.nats import Nat, inward, outward

FIRST, SECOND = ("198.51.100.1", 4710), ("198.51.100.1", 4711)
STUN = ("198.51.100.99", 3478)
HOME = "192.168.1.5"
AWAY = ("192.168.7.9", 50000)
TOKEN = b"12345678"
HOPS = 4
"""Routers between two members' outermost NATs."""

Receive = Callable[[bytes, Address], None]


class World:
    """Everything that happens, in its order; `loss` is the share of datagrams lost."""

    def __init__(
        self,
        nats: Sequence[Nat],
        *,
        stun: bool = True,
        second: bool = True,
        open_udp: bool = True,
        loss: float = 0.0,
        seed: int = 0,
        home: str = HOME,
    ) -> None:
        self.now = 100.0
        self.loss = loss
        self._random = random.Random(f"world {seed}")
        self._open = open_udp
        self._nats = list(nats)
        self._away: list[Nat] = []
        self._reflection = Reflection()
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._order = itertools.count()
        self.sent = 0
        self.local = {
            Socket.FILTERING: (home, self._random.randrange(32768, 61000)),
            Socket.MAPPING: (home, self._random.randrange(32768, 61000)),
        }
        self.inside: dict[Address, Receive] = {}
        self.public: dict[Address, Receive] = {
            FIRST: lambda data, source: self._reflect(data, source),
            SECOND: lambda data, source: self._reflect(data, source),
            STUN: self._stun,
        }
        seen = outward(self._nats, (home, 40000), FIRST, self.now)
        self.classifier = Classifier(
            Servers(
                bytes.fromhex(self._reflection.offer(seen[0], self.now).cookie),
                FIRST,
                SECOND if second else None,
                (STUN,) if stun else (),
            ),
            [self.local[Socket.MAPPING]],
            self.now,
            self._random.randbytes,
        )
        for socket, address in self.local.items():
            self.inside[address] = self._receiver(socket)

    def run(self) -> Verdict:
        """Classify with the servers alone."""
        self._drive(lambda: self.classifier.ended)
        return self.classifier.verdict()

    def visit(self, nats: Sequence[Nat]) -> Verdict:
        """Go on with a stranger behind these NATs."""
        self._away = list(nats)
        door = outward(self._away, AWAY, FIRST, self.now)  # it asked the rendezvous
        doors = self.classifier.doors(door)
        if not doors:
            return self.classifier.verdict()
        self._perform(self.classifier.meet(door, TOKEN))
        self._wait(0.05)  # the openers are on their way before the stranger hears of it
        self.classifier.asked(self.now)
        stranger = Stranger(doors, TOKEN, self.now + 0.05)
        self.inside[AWAY] = stranger.received

        def step() -> None:
            for datagram, address in stranger.poll(self.now):
                self._send(self._away, AWAY, datagram, address)
            if self.now < stranger.until:
                self._at(max(stranger.due, self.now + 0.001), step)

        self._at(stranger.due, step)
        until = stranger.until
        self._drive(lambda: self.now >= until)
        self.classifier.told(stranger.seen)
        return self.classifier.verdict()

    # --- inside ------------------------------------------------------------------------------

    def _drive(self, over: Callable[[], bool]) -> None:
        began = self.now
        while not over():
            self._perform(self.classifier.poll(self.now))
            if over():
                return
            due = self.classifier.due(self.now)
            if self._events and self._events[0][0] <= due:
                self.now, _, happen = heapq.heappop(self._events)
                happen()
            else:
                assert due > self.now or due == self.now == began
                self.now = due
            assert self.now < began + 10

    def _wait(self, seconds: float) -> None:
        until = self.now + seconds
        while self._events and self._events[0][0] <= until:
            self.now, _, happen = heapq.heappop(self._events)
            happen()
        self.now = until

    def _at(self, time: float, happen: Callable[[], None]) -> None:
        heapq.heappush(self._events, (time, next(self._order), happen))

    def _perform(self, sends: list[Send]) -> None:
        for send in sends:
            self.sent += 1
            hops = None if send.ttl is None else send.ttl - len(self._nats)
            self._send(self._nats, self.local[send.socket], send.datagram, send.address, hops)

    def _send(
        self,
        nats: list[Nat],
        source: Address,
        datagram: bytes,
        target: Address,
        hops: int | None = None,
    ) -> None:
        if not self._open:
            return
        seen = outward(nats, source, target, self.now)
        if hops is None or hops > HOPS:
            self._carry(datagram, seen, target)

    def _carry(self, datagram: bytes, source: Address, target: Address) -> None:
        if self._random.random() < self.loss:
            return
        arrival = self.now + self._random.uniform(0.02, 0.05)
        self._at(arrival, lambda: self._arrive(datagram, source, target))

    def _arrive(self, datagram: bytes, source: Address, target: Address) -> None:
        receive = self.public.get(target)
        if receive is None:
            for nats in (self._nats, self._away):
                if nats and nats[-1].owns(target[0]):
                    to = inward(nats, source, target, self.now)
                    receive = self.inside.get(to) if to else None
            if not self._nats and target in self.inside:
                receive = self.inside[target]
        if receive is not None:
            receive(datagram, source)

    def _receiver(self, socket: Socket) -> Receive:
        return lambda data, source: self.classifier.received(socket, data, source, self.now)

    def _reflect(self, datagram: bytes, source: Address) -> None:
        for port, answer in self._reflection.asked(datagram, source, self.now):
            self._carry(answer, (FIRST, SECOND)[port], source)

    def _stun(self, datagram: bytes, source: Address) -> None:
        answer = binding_answer(datagram, source)
        if answer is not None:
            self._carry(answer, STUN, source)
