"""How this machine stands in the network: sockets and timers round the classifier.

It asks servers from sockets of its own, and meets a stranger where one is needed. How the two
members talk about that is whoever calls' business. Imports no JAX.
"""

import asyncio
import contextlib
import ipaddress
import os
import socket
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, Protocol

from kafila import defaults as d
from kafila.address import Address, parse_address
from kafila.errors import NetworkProblem
from kafila.net.candidates import global_ipv6, interfaces
from kafila.net.carrier import on_the_wire
from kafila.net.connection import Connection
from kafila.net.node import Node
from kafila.net.reflecting import TOKEN_SIZE, TRANSACTION_SIZE, Answer, Ask, decode
from kafila.net.udp import Udp, is_ipv6, resolve
from kafila.plan.reach import private
from kafila.probe.doors import Doors
from kafila.probe.lan import local_networks
from kafila.probe.nat import Classifier, Send, Servers, Socket, Verdict
from kafila.probe.report import Nat


class Knocker(Protocol):
    """Another member that helps as the stranger. Its methods raise NetworkProblem for silence."""

    async def stand(self) -> Address | None:
        """Where it stands with a fresh socket, as the rendezvous sees it; None: it cannot."""

    async def knock(self, doors: Sequence[Address], token: bytes) -> Sequence[Address]:
        """Have it knock at these doors; returns where knocks of ours seemed to come from. Without
        doors it need not stand there any longer."""


class Offer(Protocol):
    """What a rendezvous lends for the questions: see its `reflector` message."""

    @property
    def cookie(self) -> str: ...
    @property
    def port(self) -> int | None: ...
    @property
    def stun(self) -> Sequence[str]: ...


class Client(Protocol):
    """What is needed of the connection to a rendezvous."""

    @property
    def connection(self) -> Connection: ...
    @property
    def address(self) -> Address: ...
    async def reflector(self) -> Offer: ...


class Netcheck:
    """One machine's standing; `classify` first, `close` at the end."""

    def __init__(
        self,
        node: Node,
        client: Client,
        rendezvous: Address,
        stun: Sequence[Address] = (),
    ) -> None:
        """`rendezvous` as its user wrote it; `stun` are other servers, beside those that the
        rendezvous suggests."""
        self.ipv6 = False
        """IPv6 works: a server sees this machine's own global address."""
        self._node = node
        self._client = client
        self._rendezvous = rendezvous
        self._stun = list(stun)
        self._servers: Servers | None = None
        self._sockets: dict[Socket, Udp] = {}
        self._classifier: Classifier | None = None
        self._ended = -float("inf")
        self._came = asyncio.Event()
        self.doors = Doors(node, client.address)
        """Where it helps others."""

    @property
    def tunnelled(self) -> bool:
        """Whether the rendezvous was only reached over TCP."""
        return self._client.connection.tunnelled

    async def classify(self) -> None:
        """Ask the servers, from fresh sockets. Raises NetworkProblem if the rendezvous is gone."""
        self._servers = await self._offered()
        six = asyncio.ensure_future(self._ipv6_works())
        try:
            if not is_ipv6(self._servers.first[0]):  # what is translated is IPv4
                self._open(self._servers)
                classifier = self._classifier
                assert classifier is not None
                await self._drive(lambda: classifier.ended)
            self._ended = asyncio.get_running_loop().time()
            self.ipv6 = await six
        finally:
            six.cancel()

    @property
    def wants_stranger(self) -> bool:
        """Whether somebody at another address could tell more."""
        return self._classifier is not None and self._classifier.wants_stranger

    async def meet(self, stranger: Knocker) -> None:
        """Have a stranger tell what the servers could not. What it does not tell stays unknown."""
        with contextlib.suppress(NetworkProblem, TimeoutError):
            async with asyncio.timeout(d.STRANGER_SECONDS):
                if self._loop_time() > self._ended + d.FRESH_SECONDS:
                    await self.classify()  # the mappings of its sockets may have expired
                classifier = self._classifier
                if classifier is None or not classifier.wants_stranger:
                    return
                door = await stranger.stand()
                if door is None:
                    return
                doors = classifier.doors(door)
                token = os.urandom(TOKEN_SIZE)
                if not doors:
                    await stranger.knock(doors, token)
                    return
                self._perform(classifier.meet(door, token))
                knocking = asyncio.ensure_future(stranger.knock(doors, token))
                classifier.asked(self._loop_time())
                knocking.add_done_callback(lambda _: self._came.set())
                try:
                    await self._drive(knocking.done)
                    classifier.told(await knocking)
                finally:
                    knocking.cancel()

    def verdict(self) -> Verdict:
        """What the classifier says."""
        if self._classifier is None:
            return Verdict("unknown", "unknown", True, None, None, False)
        return self._classifier.verdict()

    def nat(self) -> Nat:
        """What a report says of it."""
        verdict = self.verdict()
        public = verdict.public[0] if verdict.public else None
        # Seen from within its own network, a machine shows nothing of a NAT before the others.
        unknown = public is None or (private(public) and not verdict.translated)
        return Nat(
            mapping=verdict.mapping,
            filtering=verdict.filtering,
            blocked=verdict.silent and self.tunnelled,
            public=public,
            networks=local_networks(),
            ipv6=self.ipv6,
            translated=None if unknown else verdict.translated,
        )

    @property
    def carrier_grade(self) -> bool:
        """Whether this machine stands in, or is seen in, the addresses set aside for the NATs of
        carriers (RFC 6598): then there are at least two NATs, and ports cannot be forwarded."""
        verdict = self.verdict()
        hosts = [_outward(self._servers.first)] if self._servers else []
        hosts += [verdict.public[0]] if verdict.public else []
        return any(ipaddress.ip_address(host) in _CARRIERS for host in hosts if host)

    async def largest_datagram(self) -> int | None:
        """The largest datagram in bytes that reaches the rendezvous, of those that edges try; None:
        not even the smallest does."""
        servers = self._servers
        if servers is None or self.verdict().silent:
            return None
        udp = self._fresh()
        asked = {os.urandom(TRANSACTION_SIZE): size for size in (*d.PATH_SIZES, *d.PATH_SIZES)}
        passed: set[int] = set()

        def take() -> None:
            for datagram, _ in udp.drain():
                with contextlib.suppress(ValueError):
                    answer = decode(datagram)
                    if isinstance(answer, Answer) and answer.transaction in asked:
                        passed.add(asked[answer.transaction])

        udp.watch(take)
        try:
            for transaction, size in asked.items():
                ask = Ask(servers.cookie, transaction, frozenset((0,)), size)
                udp.send(ask.encode(), servers.first)
                await asyncio.sleep(d.ASK_AGAIN)
            await asyncio.sleep(d.LATE_ANSWER)
        finally:
            udp.close()
        return max(passed, default=None)

    def close(self) -> None:
        """Close its sockets; again: nothing."""
        for udp in self._sockets.values():
            udp.close()
        self._sockets = {}
        self.doors.close()

    # --- inside ------------------------------------------------------------------------------

    async def _offered(self) -> Servers:
        offer = await self._client.reflector()
        first = on_the_wire(self._client.address)
        stun = []
        for place in (*self._stun, *(parse_address(text, port=d.STUN_PORT) for text in offer.stun)):
            with contextlib.suppress(NetworkProblem):  # one that is not known does not answer
                stun += [each for each in await resolve(place) if not is_ipv6(each[0])][:1]
        return Servers(
            cookie=bytes.fromhex(offer.cookie),
            first=first,
            second=(first[0], offer.port) if offer.port else None,
            stun=tuple(dict.fromkeys(stun))[: d.STUN_SERVERS],
        )

    def _fresh(self) -> Udp:
        return Udp(self._node.udp.address[0], 0)

    def _open(self, servers: Servers) -> None:
        for udp in self._sockets.values():
            udp.close()
        self._sockets = {which: self._fresh() for which in Socket}
        bound, port = self._sockets[Socket.MAPPING].address
        hosts = [bound, *(str(four.ip) for each in interfaces() for four in each.of(4))]
        local = [(host, port) for host in hosts]
        before = self._classifier
        classifier = self._classifier = Classifier(servers, local, self._loop_time())
        classifier.let_in = before is not None and before.let_in
        for which, udp in self._sockets.items():
            udp.watch(partial(self._take, classifier, which, udp))

    def _take(self, classifier: Classifier, which: Socket, udp: Udp) -> None:
        for datagram, source in udp.drain():
            classifier.received(which, datagram, source, self._loop_time())
        self._came.set()

    async def _drive(self, over: Callable[[], bool]) -> None:
        """Send what is due until that is so."""
        classifier = self._classifier
        assert classifier is not None
        while True:
            self._came.clear()
            now = self._loop_time()
            self._perform(classifier.poll(now))
            if over():
                return
            pause = min(classifier.due(now) - now, 1.0)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(max(pause, 0.001)):
                    await self._came.wait()

    def _perform(self, sends: Sequence[Send]) -> None:
        for send in sends:
            self._sockets[send.socket].send(send.datagram, send.address, send.ttl)

    async def _ipv6_works(self) -> bool:
        own, udp = global_ipv6(), self._node.udp6
        if own is None or udp is None:
            return False
        for server in (self._rendezvous, *self._stun):
            with contextlib.suppress(NetworkProblem):
                seen = await self._node.reflexive(server, udp=udp)
                if seen is not None:
                    return seen[0] == own
        return False

    @staticmethod
    def _loop_time() -> float:
        return asyncio.get_running_loop().time()


async def over_ipv4(address: Address) -> Address:
    """The IPv4 address of a host that has one: it is IPv4 that NATs translate."""
    return next((each for each in await resolve(address) if not is_ipv6(each[0])), address)


_CARRIERS: Final = ipaddress.ip_network("100.64.0.0/10")


def _outward(server: Address) -> str | None:
    """This machine's address on the way to a server; nothing is sent."""
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.connect(server)
            host: str = probe.getsockname()[0]
    except OSError:
        return None
    return host
