"""A network in virtual time: hosts behind rows of NATs, links that delay, lose and swallow.

Realms form a tree: the internet, carriers' insides, homes. A packet climbs from its host's realm,
translated by each NAT, to the first realm that knows its target, crosses that one's link, and
comes down. Deterministic for a seed. Knows nothing of what the packets are.
"""

import heapq
import itertools
import math
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, NamedTuple

from kafila.address import Address
from tests.nats import Nat

Receive = Callable[[bytes, Address], None]

FAR: Final = 8
"""Routers of the internet between two places; a carrier has two."""


@dataclass
class Link:
    """What a realm does to packets that cross it. `delay` is one way, in seconds."""

    delay: float
    jitter: float = 0.0
    loss: float = 0.0
    largest: int = 65535


class Packet(NamedTuple):
    """On its way, translated as far as it has come."""

    sender: str
    source: Address
    target: Address
    datagram: bytes


class Socket:
    """Of a host. What it is asked to send after it was closed is a fault of who asks."""

    def __init__(self, host: "Host", port: int, receive: Receive) -> None:
        self.address = host.address, port
        self.receive = receive
        self._host = host

    def send(self, datagram: bytes, address: Address, ttl: int | None = None) -> None:
        assert self._host.sockets.get(self.address[1]) is self, "the socket is closed"
        self._host.network.send(self._host, self.address, address, datagram, ttl)

    def close(self) -> None:
        del self._host.sockets[self.address[1]]


class Host:
    """A machine with one address in one realm."""

    def __init__(self, realm: "Realm", address: str, name: str = "") -> None:
        assert address not in realm.owners
        self.realm, self.address, self.name = realm, address, name or address
        self.network = realm.network
        self.sockets: dict[int, Socket] = {}
        realm.owners[address] = self

    def open(self, receive: Receive, port: int | None = None) -> Socket:
        """Bind a socket to a port, or to a random one that is free."""
        while port is None or port in self.sockets:
            port = self.network.random.randrange(32768, 61000)
        self.sockets[port] = socket = Socket(self, port, receive)
        return socket

    @property
    def nats(self) -> list[Nat]:
        """Those between it and the internet, the innermost first."""
        realms = itertools.takewhile(lambda each: each.nat is not None, self.realm.upwards())
        return [each.nat for each in realms if each.nat is not None]


class Realm:
    """A network with addresses of its own, behind `nat` where it is not the internet itself."""

    def __init__(
        self,
        network: "Network",
        link: Link,
        *,
        nat: Nat | None = None,
        outer: "Realm | None" = None,
        routers: int = 0,
        open_udp: bool = True,
    ) -> None:
        self.network, self.link, self.nat, self.outer = network, link, nat, outer
        self.routers = routers
        self.open_udp = open_udp
        self.owners: dict[str, Host | Realm] = {}
        if outer is not None and nat is not None:
            for address in nat.pool:
                assert address not in outer.owners
                outer.owners[address] = self

    def upwards(self) -> "list[Realm]":
        return [self, *(self.outer.upwards() if self.outer is not None else [])]

    def home(self, nat: Nat, *, open_udp: bool = True) -> "Realm":
        """A home's network behind a NAT whose public address is in this realm."""
        return Realm(self.network, Link(0.0005), nat=nat, outer=self, open_udp=open_udp)

    def carrier(self, nat: Nat) -> "Realm":
        """A carrier's inside: homes are behind its NAT, and see each other."""
        return Realm(self.network, Link(0.002), nat=nat, outer=self, routers=2)


class Network:
    """The clock, what is to happen, and the internet.

    `passes` tells whether a packet that crosses a realm gets through; `clear` lets all. `remote`
    has the seconds that an address is further away than others.
    """

    def __init__(
        self,
        *,
        delay: float = 0.04,
        jitter: float = 0.0,
        loss: float = 0.0,
        largest: int = 65535,
        seed: int = 0,
    ) -> None:
        self.now = 1000.0
        self.random = random.Random(f"network {seed}")
        self.link = Link(delay, jitter, loss, largest)
        self.internet = Realm(self, self.link, routers=FAR)
        self.passes: Callable[[Packet], bool] = clear
        self.remote: dict[str, float] = {}
        self.packets = 0
        self._events: list[tuple[float, int, Callable[[], object]]] = []
        self._order = itertools.count()

    # --- time --------------------------------------------------------------------------------

    def at(self, time: float, happen: Callable[[], object]) -> None:
        """Let something happen then; not before now."""
        heapq.heappush(self._events, (max(time, self.now), next(self._order), happen))

    def after(self, seconds: float, happen: Callable[[], object]) -> None:
        self.at(self.now + seconds, happen)

    def run(self, seconds: float, when: Callable[[], bool] = lambda: False) -> float:
        """Let time pass, until something is so at most; return how many seconds passed."""
        began, until = self.now, self.now + seconds
        while not when():
            if not self._events or self._events[0][0] > until:
                self.now = until
                break
            self.now, _, happen = heapq.heappop(self._events)
            happen()
        return self.now - began

    # --- packets -----------------------------------------------------------------------------

    def send(
        self, host: Host, source: Address, target: Address, datagram: bytes, ttl: int | None
    ) -> None:
        """Take a packet up to the realm that knows its target, and across it."""
        self.packets += 1
        hops = math.inf if ttl is None else float(ttl)
        realm, below = host.realm, None
        while target[0] not in realm.owners:
            hops -= 1  # a router; it translates what lives on only
            if realm.nat is None or realm.outer is None or not realm.open_udp or hops <= 0:
                return
            source = realm.nat.outward(source, target, self.now)
            below, realm = realm, realm.outer
            hops -= realm.routers if target[0] not in realm.owners else 0
        owner = realm.owners[target[0]]
        if owner is below:  # at its own NAT's public address
            if below.nat is None or not below.nat.hairpin:
                return
            hops += 1  # the same router, twice
            link = below.link
        else:
            hops -= realm.routers
            link = realm.link
        lost = self.random.random() < link.loss or len(datagram) > link.largest
        packet = Packet(host.name, source, target, datagram)
        if hops <= 0 or lost or not self.passes(packet):
            return
        delay = link.delay + self.random.random() * link.jitter
        delay += self.remote.get(source[0], 0.0) + self.remote.get(target[0], 0.0)
        self.after(delay, lambda: self._descend(owner, packet, hops))

    def _descend(self, owner: "Host | Realm", packet: Packet, hops: float) -> None:
        """Bring it to a host, through the NATs that are before it."""
        target: Address | None = packet.target
        while isinstance(owner, Realm):
            hops -= 1
            if owner.nat is None or not owner.open_udp or hops <= 0 or target is None:
                return
            target = owner.nat.inward(packet.source, target, self.now)
            if target is None or target[0] not in owner.owners:
                return
            owner = owner.owners[target[0]]
        socket = owner.sockets.get(target[1]) if target is not None else None
        if socket is not None:
            socket.receive(packet.datagram, packet.source)


def clear(packet: Packet) -> bool:
    """Everything gets through."""
    return True
