"""A node: one UDP socket and everything that shares it. The thin shell round the sans-IO parts.

The socket carries STUN, path checks, certificate queries and every QUIC connection, told apart by
the first byte (RFC 9443), so that the mapping a NAT keeps for one is the mapping of all. All
pending datagrams are taken before anything is sent: a burst then costs one answer. Loop thread
only.
"""

import asyncio
from collections.abc import Callable

from kafila import PROTOCOL
from kafila.address import Address, format_address
from kafila.defaults import (
    CONTROL_WINDOW,
    DIAL_TIMEOUT,
    EDGE_TIMEOUT,
    IDLE_TIMEOUT,
    MESSAGE_LIMIT,
    PATH_SIZES,
    STUN_TIMEOUT,
)
from kafila.errors import IdentityProblem, KafilaError, NetworkProblem
from kafila.net.approaches import Approaches
from kafila.net.certificate import key_of
from kafila.net.connection import Connection, forsake
from kafila.net.datagram import Family, family
from kafila.net.edge import Edge, Peer
from kafila.net.handshake import ClientHandshake, Terms
from kafila.net.identity import Identity
from kafila.net.listening import Listeners
from kafila.net.queries import Queries
from kafila.net.quic import Engine, destination
from kafila.net.udp import Udp, resolve
from kafila.words import short


class Node:
    """One UDP socket, its connections and edges. Make it with `open`, end it with `close`."""

    @classmethod
    async def open(
        cls,
        identity: Identity,
        host: str = "0.0.0.0",
        port: int = 0,
        *,
        idle_timeout: float = IDLE_TIMEOUT,
    ) -> "Node":
        """Bind the socket (port 0: any free one). A peer silent for `idle_timeout` s is gone.

        Raises NetworkProblem if the address or port cannot be had.
        """
        return cls(identity, Udp(host, port), idle_timeout)

    def __init__(self, identity: Identity, udp: Udp, idle_timeout: float) -> None:
        """Take over a bound socket."""
        self.identity = identity
        self.protocol = PROTOCOL
        """The protocol version this node speaks."""
        self._udp = udp
        self._idle_timeout = idle_timeout
        self._loop = asyncio.get_running_loop()
        self._engine = Engine(identity, idle_timeout)
        self._queries = Queries(udp, identity.certificate)
        self._listeners = Listeners(self, self._engine, identity.key, idle_timeout)
        self._approaches = Approaches(self, self._engine, udp, identity, idle_timeout)
        self._connections: dict[Connection, set[bytes]] = {}
        self._cids: dict[bytes, Connection] = {}
        self._received: dict[Connection, None] = {}
        self._awake: dict[Connection, None] = {}
        udp.watch(self._readable)

    @property
    def address(self) -> Address:
        """Where the socket is bound."""
        return self._udp.address

    def local_candidates(self) -> list[Address]:
        """Return the addresses of this socket on this machine's interfaces, best first."""
        return self._udp.candidates()

    async def close(self) -> None:
        """Close every connection, each peer told, and then the socket. Again: nothing."""
        self._approaches.close()
        self._listeners.close()
        await asyncio.gather(*(each.close() for each in list(self._connections)))
        self._udp.close()

    # --- what users of a node need -----------------------------------------------------------

    def listen(self, alpn: str, accept: Callable[[Connection], None]) -> None:
        """Accept connections of clients that proved a key, whichever it is.

        A listening node answers STUN requests and certificate queries too.
        """
        self._listeners.add(alpn, accept)

    async def dial(
        self,
        address: Address,
        *,
        alpn: str,
        server_key: bytes | None = None,
        timeout: float = DIAL_TIMEOUT,
    ) -> Connection:
        """Connect to a listening node at a host name or address; `server_key` is what it must
        prove (None: whatever it has, then in `peer_key`).

        Raises IdentityProblem for another key or version, NetworkProblem for silence.
        """
        label = format_address(address)
        target = await resolve(address)
        opened: asyncio.Future[Connection] = self._loop.create_future()

        def on_opened(connection: Connection, problem: KafilaError | None) -> None:
            if not opened.done():
                opened.set_exception(problem) if problem else opened.set_result(connection)

        made: Connection | None = None
        connection: Connection | None = None
        try:
            async with asyncio.timeout(timeout):
                certificate = await self._queries.certificate_of(target)
                key = key_of(certificate)
                if server_key is not None and key != server_key:
                    raise IdentityProblem(
                        f"{label} has key {short(key)}, not the expected "
                        f"{short(server_key)}: another machine, or its keys were made anew."
                    )
                quic = self._engine.connect(
                    target,
                    alpn=alpn,
                    certificate=certificate,
                    size=PATH_SIZES[0],
                    window=CONTROL_WINDOW,
                    now=self._loop.time(),
                )
                made = Connection(
                    self,
                    quic,
                    ClientHandshake(self.identity, key, Terms(self.protocol)),
                    label=label,
                    address=target,
                    limit=MESSAGE_LIMIT,
                    channels=1,
                    idle_timeout=self._idle_timeout,
                    on_opened=on_opened,
                )
                connection = await opened
            return connection
        except TimeoutError:
            raise NetworkProblem(
                f"{label} does not answer after {timeout:g} s: is `kafila rendezvous` running "
                "there, and does UDP reach it?"
            ) from None
        finally:
            if connection is None:
                forsake(opened)
                if made is not None:
                    made.abort("")

    async def round_trips(
        self, address: Address, samples: int, timeout: float = STUN_TIMEOUT
    ) -> list[int]:
        """Measure round trips to a listening node (STUN), in microseconds; one after another.

        A sample that takes over `timeout` s is lost and left out. Raises NetworkProblem if all
        are, after three at the latest.
        """
        target = await resolve(address)
        measured: list[int] = []
        for number in range(samples):
            trip = await self._queries.round_trip(target, timeout)
            if trip is not None:
                measured.append(trip)
            elif number >= 2 and not measured:
                break
        if not measured:
            raise NetworkProblem(
                f"{format_address(address)} answers no STUN request: does UDP reach it?"
            )
        return measured

    async def edge(
        self,
        peer: Peer,
        *,
        client: bool,
        session: bytes,
        digest: bytes,
        timeout: float = EDGE_TIMEOUT,
    ) -> Edge:
        """Connect with a neighbour that does the same, one of both as `client`.

        `session` and `digest` (of the plan) are 32 bytes and must be the peer's too. Raises
        IdentityProblem for another key, session, plan or version, NetworkProblem for silence.
        """
        terms = Terms(self.protocol, session, digest)
        return await self._approaches.edge(peer, terms, client=client, timeout=timeout)

    # --- the socket --------------------------------------------------------------------------

    def _readable(self) -> None:
        """Take what is pending, then let connections act; what they send leaves with what their
        readers send in this loop turn."""
        now = self._loop.time()
        for datagram, source in self._udp.drain():
            self._dispatch(datagram, source, now)
        received, self._received = self._received, {}
        for connection in received:
            connection.process(now)
            self.wake(connection)

    def _dispatch(self, datagram: bytes, source: Address, now: float) -> None:
        """Bring a datagram to its reader; what nobody understands is dropped."""
        answering = bool(self._listeners)
        try:
            match family(datagram):
                case Family.QUIC:
                    self._quic(datagram, source, now)
                case Family.CHECK:
                    self._approaches.check(datagram, source)
                case Family.STUN:
                    self._queries.stun(datagram, source, answering=answering)
                case Family.CERTIFICATE:
                    self._queries.certificates(datagram, source, answering=answering)
        except ValueError:
            return

    def _quic(self, datagram: bytes, source: Address, now: float) -> None:
        approach = self._approaches.at(source)
        if approach is not None:
            connection: Connection | None = self._approaches.admit(approach, datagram, source)
        else:
            to = destination(datagram)
            connection = self._cids.get(to.cid)
            if connection is None and to.opens:
                connection = self._listeners.take(to, source, Terms(self.protocol), now)
        if connection is not None:
            connection.receive(datagram, source, now)
            self._received[connection] = None

    # --- what connections need (connection.Shell) --------------------------------------------

    def send(self, datagram: bytes, address: Address) -> None:
        """Send a datagram now."""
        self._udp.send(datagram, address)

    def wake(self, connection: Connection) -> None:
        """Flush `connection` at the end of this loop turn."""
        if not self._awake:
            self._loop.call_soon(self._flush)
        self._awake[connection] = None

    def _flush(self) -> None:
        """Let the connections that something happened to send."""
        awake, self._awake = self._awake, {}
        now = self._loop.time()
        for connection in awake:
            connection.flush(now)

    def join(self, connection: Connection) -> None:
        """Know a new connection."""
        self._connections[connection] = set()

    def route(self, cid: bytes, connection: Connection) -> None:
        """Bring datagrams with this connection id to `connection` (an edge has its paths)."""
        if not isinstance(connection, Edge):
            self._cids[cid] = connection
            self._connections[connection].add(cid)

    def unroute(self, cid: bytes) -> None:
        """Forget a connection id."""
        connection = self._cids.pop(cid, None)
        if connection is not None:
            self._connections[connection].discard(cid)

    def release(self, connection: Connection) -> None:
        """Forget a connection."""
        for cid in self._connections.pop(connection):
            del self._cids[cid]
        self._listeners.forget(connection)
        if isinstance(connection, Edge):
            self._approaches.retire(connection.approach)
