"""A node: one UDP socket and everything that shares it. The thin shell round the sans-IO parts.

The socket carries STUN, path checks, certificate queries and every QUIC connection, told apart by
the first byte (RFC 9443), so that the mapping a NAT keeps for one is the mapping of all. All
pending datagrams are taken before anything is sent: a burst then costs one answer. Loop thread
only.
"""

import asyncio
import contextlib
import errno
import os
import socket
import sys
import time
from collections.abc import Callable
from typing import Any, Final

from kafila import PROTOCOL
from kafila.defaults import (
    CLOSE_TIMEOUT,
    CONTROL_WINDOW,
    DIAL_TIMEOUT,
    DRAIN,
    EDGE_TIMEOUT,
    EDGE_WINDOW,
    IDLE_TIMEOUT,
    MAX_CONTROL_MESSAGE,
    MAX_DATAGRAM,
    MAX_HALF_OPEN,
    PATH_SIZES,
    QUERY_AGAIN,
    SOCKET_BUFFER,
    STUN_TIMEOUT,
)
from kafila.errors import IdentityProblem, KafilaError, NetworkProblem
from kafila.net.candidates import host_candidates
from kafila.net.certificate import key_of
from kafila.net.connection import Address, Connection
from kafila.net.datagram import (
    CertificateAnswer,
    CertificateQuery,
    Check,
    Family,
    binding_answer,
    binding_request,
    binding_transaction,
    decode_certificate,
    family,
)
from kafila.net.edge import EDGE_ALPN, PEER, Approach, Edge, Peer
from kafila.net.handshake import ClientHandshake, ServerHandshake, Terms
from kafila.net.identity import Identity, fingerprint
from kafila.net.paths import PathChecks, Send, edge_key, reachable
from kafila.net.quic import Engine, Quic, destination

_DONT_FRAGMENT: Final = {
    # A datagram too large for the path must be lost, not cut: that is how its size is found.
    "linux": (socket.IPPROTO_IP, 10, 3),  # IP_MTU_DISCOVER, IP_PMTUDISC_PROBE (ip(7))
    "darwin": (socket.IPPROTO_IP, 28, 1),  # IP_DONTFRAG (netinet/in.h)
}


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
        udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        try:
            udp.setblocking(False)
            for option in (socket.SO_RCVBUF, socket.SO_SNDBUF):
                udp.setsockopt(socket.SOL_SOCKET, option, SOCKET_BUFFER)
            if sys.platform in _DONT_FRAGMENT:
                udp.setsockopt(*_DONT_FRAGMENT[sys.platform])
            udp.bind((host, port))
        except OSError as error:
            udp.close()
            if error.errno == errno.EADDRINUSE:
                problem = f"UDP port {port} on {host} is in use: stop its user or take another."
            else:
                problem = f"cannot open UDP port {port} on {host}: {error.strerror}."
            raise NetworkProblem(problem) from error
        return cls(identity, udp, idle_timeout)

    def __init__(self, identity: Identity, udp: socket.socket, idle_timeout: float) -> None:
        """Take over a bound, non-blocking UDP socket."""
        self.identity = identity
        self.protocol = PROTOCOL
        """The protocol version this node speaks."""
        self._socket = udp
        self._idle_timeout = idle_timeout
        self._engine = Engine(identity, idle_timeout)
        self._loop = asyncio.get_running_loop()
        self._listeners: dict[str, Callable[[Connection], None]] = {}
        self._half_open: set[Connection] = set()
        self._connections: dict[Connection, set[bytes]] = {}
        self._cids: dict[bytes, Connection] = {}
        self._approaches: dict[bytes, Approach] = {}
        self._certificates: dict[bytes, asyncio.Future[bytes]] = {}
        self._bindings: dict[bytes, asyncio.Future[float]] = {}
        self._received: dict[Connection, None] = {}
        self._awake: dict[Connection, None] = {}
        self._loop.add_reader(udp, self._readable)

    @property
    def address(self) -> Address:
        """Where the socket is bound."""
        host, port = self._socket.getsockname()
        return host, port

    def local_candidates(self) -> list[Address]:
        """Return the addresses of this socket on this machine's interfaces, best first."""
        host, port = self.address
        hosts = host_candidates() if host == "0.0.0.0" else [host]
        return [(each, port) for each in hosts]

    async def close(self) -> None:
        """Close every connection, each peer told, and then the socket."""
        for approach in list(self._approaches.values()):
            if approach.edge is None:
                self._retire(approach)
        for half_open in list(self._half_open):
            half_open.abort("")
        await asyncio.gather(*(each.close() for each in list(self._connections)))
        if self._socket.fileno() >= 0:
            self._loop.remove_reader(self._socket)
            self._socket.close()

    # --- the rendezvous' side ----------------------------------------------------------------

    def listen(self, alpn: str, accept: Callable[[Connection], None]) -> None:
        """Accept connections of clients that proved a key, whichever it is.

        A listening node answers STUN requests and certificate queries too.
        """
        self._listeners[alpn] = accept

    def _accept(self, cid: bytes, source: Address) -> Connection | None:
        if not self._listeners or len(self._half_open) >= MAX_HALF_OPEN:
            return None
        quic = self._engine.accept(
            cid, alpns=list(self._listeners), size=PATH_SIZES[0], window=CONTROL_WINDOW
        )
        connection = Connection(
            self,
            quic,
            ServerHandshake(self.identity.key, Terms(self.protocol), expected=None),
            label=f"the client at {source[0]}:{source[1]}",
            address=source,
            limit=MAX_CONTROL_MESSAGE,
            idle_timeout=self._idle_timeout,
            on_opened=self._accepted,
        )
        self._half_open.add(connection)
        return connection

    def _accepted(self, connection: Connection, problem: KafilaError | None) -> None:
        self._half_open.discard(connection)
        if problem is None:
            self._listeners[connection.alpn](connection)

    # --- the way to a rendezvous -------------------------------------------------------------

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
        label = f"{address[0]}:{address[1]}"
        target = await self._resolve(address)
        opened: asyncio.Future[Connection] = self._loop.create_future()

        def on_opened(connection: Connection, problem: KafilaError | None) -> None:
            if not opened.done():
                opened.set_exception(problem) if problem else opened.set_result(connection)

        connection = None
        try:
            async with asyncio.timeout(timeout):
                certificate = await self._certificate(target)
                key = key_of(certificate)
                if server_key is not None and key != server_key:
                    raise IdentityProblem(
                        f"{label} has key {fingerprint(key)}, not the expected "
                        f"{fingerprint(server_key)}: another machine, or its keys were made anew."
                    )
                quic = self._engine.connect(
                    target,
                    alpn=alpn,
                    certificate=certificate,
                    size=PATH_SIZES[0],
                    window=CONTROL_WINDOW,
                    now=self._loop.time(),
                )
                connection = Connection(
                    self,
                    quic,
                    ClientHandshake(self.identity, key, Terms(self.protocol)),
                    label=label,
                    address=target,
                    limit=MAX_CONTROL_MESSAGE,
                    idle_timeout=self._idle_timeout,
                    on_opened=on_opened,
                )
                return await opened
        except TimeoutError:
            raise NetworkProblem(
                f"{label} does not answer after {timeout:g} s: is `kafila rendezvous` running "
                "there, and does UDP reach it?"
            ) from None
        finally:
            if connection is not None and not _succeeded(opened):
                connection.abort("")

    async def _resolve(self, address: Address) -> Address:
        host, port = address
        try:
            found = await self._loop.getaddrinfo(
                host, port, family=socket.AF_INET, type=socket.SOCK_DGRAM
            )
        except OSError as error:
            raise NetworkProblem(f"{host} is not a known host: {error.strerror}.") from error
        resolved = found[0][4]
        return str(resolved[0]), int(resolved[1])

    async def _certificate(self, target: Address) -> bytes:
        """Ask a listening node for its certificate, again and again until it answers."""
        transaction = os.urandom(8)
        answer: asyncio.Future[bytes] = self._loop.create_future()
        self._certificates[transaction] = answer
        pause = QUERY_AGAIN
        try:
            while not answer.done():
                self.send(CertificateQuery(transaction).encode(), target)
                await asyncio.wait([answer], timeout=pause)
                pause *= 2
            return answer.result()
        finally:
            del self._certificates[transaction]

    async def round_trips(
        self, address: Address, samples: int, timeout: float = STUN_TIMEOUT
    ) -> list[int]:
        """Measure round trips to a listening node (STUN), in microseconds; one after another.

        A sample that takes over `timeout` s is lost and left out. Raises NetworkProblem if all
        are, after three at the latest.
        """
        target = await self._resolve(address)
        measured: list[int] = []
        for number in range(samples):
            transaction = os.urandom(12)
            answer: asyncio.Future[float] = self._loop.create_future()
            self._bindings[transaction] = answer
            try:
                sent = time.perf_counter()
                self.send(binding_request(transaction), target)
                await asyncio.wait([answer], timeout=timeout)
            finally:
                del self._bindings[transaction]
            if answer.done():
                measured.append(round((answer.result() - sent) * 1e6))
            elif number >= 2 and not measured:
                break
        if not measured:
            raise NetworkProblem(
                f"{address[0]}:{address[1]} answers no STUN request: does UDP reach it?"
            )
        return measured

    # --- edges -------------------------------------------------------------------------------

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
        approach = self._approach(peer, client, Terms(self.protocol, session, digest))
        try:
            async with asyncio.timeout(timeout):
                path = await approach.path
                if client:
                    quic = self._engine.connect(
                        PEER,
                        alpn=EDGE_ALPN,
                        certificate=peer.certificate,
                        size=path.size,
                        window=EDGE_WINDOW,
                        now=self._loop.time(),
                    )
                    self._connect_edge(approach, quic)
                return await approach.opened
        except TimeoutError:
            raise approach.failure(timeout) from None
        finally:
            if not _succeeded(approach.opened):
                self._abandon(approach)

    def _approach(self, peer: Peer, client: bool, terms: Terms) -> Approach:
        """Start looking for a path to `peer`."""
        try:
            secret = self.identity.shared(peer.exchange_key)
            genuine = key_of(peer.certificate) == peer.key
        except ValueError:
            genuine = False
        if not genuine:
            raise IdentityProblem(
                f"{peer.name} was introduced with keys that do not belong together: it must "
                "have been probed again since the plan was made, or its record was tampered with."
            )
        key, name = edge_key(secret, self.identity.key, peer.key)
        before = self._approaches.get(name)
        if before is not None:
            alive = before.edge is not None and not before.edge.closed
            if alive or not before.opened.done():
                raise NetworkProblem(f"there already is an edge to {peer.name}.")
            if before.edge is not None:
                before.edge.abort("")
            self._retire(before)
        checks = PathChecks(
            key=key,
            edge=name,
            client=client,
            protocol=terms.protocol,
            plan=terms.digest[:8],
            now=self._loop.time(),
        )
        checks.add(self._socket, reachable(peer.candidates, self.local_candidates()))
        approach = Approach(peer, checks, terms, client=client, send=self._send_check)
        self._approaches[name] = approach
        return approach

    def _connect_edge(self, approach: Approach, quic: Quic) -> Edge:
        handshake = (
            ClientHandshake(self.identity, approach.peer.key, approach.terms)
            if approach.client
            else ServerHandshake(self.identity.key, approach.terms, approach.peer.key)
        )
        approach.edge = Edge(self, quic, handshake, approach, self._idle_timeout)
        return approach.edge

    def _abandon(self, approach: Approach) -> None:
        """End an approach that failed, but let the peer learn why if the peer is the reason."""
        approach.opened.cancel()  # nobody waits for it any more
        if approach.edge is not None:
            if not approach.edge.closed:
                approach.edge.abort("")
        elif approach.checks.mismatch is not None:
            self._loop.call_later(CLOSE_TIMEOUT, self._retire, approach)
        else:
            self._retire(approach)

    def _retire(self, approach: Approach) -> None:
        approach.close()
        for name, each in list(self._approaches.items()):
            if each is approach:
                del self._approaches[name]

    def _send_check(self, send: Send) -> None:
        self.send(send.datagram, send.address)

    # --- the socket --------------------------------------------------------------------------

    def _readable(self) -> None:
        """Take what is pending, then let connections act; what they send leaves with what their
        readers send in this loop turn."""
        now = self._loop.time()
        for _ in range(DRAIN):
            try:
                datagram, source = self._socket.recvfrom(MAX_DATAGRAM)
            except BlockingIOError:
                break
            except OSError:  # an ICMP error for an earlier datagram: the peer's time-out tells
                continue
            self._dispatch(datagram, source, now)
        received, self._received = self._received, {}
        for connection in received:
            connection.process(now)
            self.wake(connection)

    def _dispatch(self, datagram: bytes, source: Address, now: float) -> None:
        """Bring a datagram to its reader; what nobody understands is dropped."""
        try:
            match family(datagram):
                case Family.QUIC:
                    self._quic(datagram, source, now)
                case Family.CHECK:
                    self._check(datagram, source)
                case Family.STUN:
                    self._stun(datagram, source)
                case Family.CERTIFICATE:
                    self._certificate_datagram(datagram, source)
        except ValueError:
            return

    def _quic(self, datagram: bytes, source: Address, now: float) -> None:
        connection: Connection | None = None
        for approach in self._approaches.values():
            admitted = approach.admits(self._socket, source)
            if admitted is not None:
                if admitted:
                    connection = approach.edge or self._accept_edge(approach, datagram)
                break
        else:
            to = destination(datagram)
            connection = self._cids.get(to.cid)
            if connection is None and to.opens:
                connection = self._accept(to.cid, source)
        if connection is not None:
            connection.receive(datagram, source, now)
            self._received[connection] = None

    def _accept_edge(self, approach: Approach, datagram: bytes) -> Edge | None:
        to = destination(datagram)
        if approach.client or not to.opens:
            return None
        path = approach.settle()
        quic = self._engine.accept(to.cid, alpns=[EDGE_ALPN], size=path.size, window=EDGE_WINDOW)
        return self._connect_edge(approach, quic)

    def _check(self, datagram: bytes, source: Address) -> None:
        check = Check.decode(datagram)
        approach = self._approaches.get(check.edge)
        if approach is not None:
            approach.receive(datagram, check, self._socket, source)
        else:
            for each in self._approaches.values():
                each.doubt(self._socket, source)

    def _stun(self, datagram: bytes, source: Address) -> None:
        if self._listeners:
            answer = binding_answer(datagram, source)
            if answer is not None:
                self.send(answer, source)
                return
        transaction = binding_transaction(datagram)
        waiting = self._bindings.get(transaction) if transaction else None
        if waiting is not None and not waiting.done():
            waiting.set_result(time.perf_counter())

    def _certificate_datagram(self, datagram: bytes, source: Address) -> None:
        message = decode_certificate(datagram)
        if isinstance(message, CertificateAnswer):
            waiting = self._certificates.get(message.transaction)
            if waiting is not None and not waiting.done():
                key_of(message.certificate)  # ValueError: garbage, a better answer may follow
                waiting.set_result(message.certificate)
        elif self._listeners:
            answer = CertificateAnswer(message.transaction, self.identity.certificate)
            self.send(answer.encode(), source)

    # --- what connections need (connection.Shell) --------------------------------------------

    def send(self, datagram: bytes, address: Address) -> None:
        """Send a datagram; one that cannot be sent is lost like any other."""
        with contextlib.suppress(OSError):  # full buffer, too large, no route, ICMP error
            self._socket.sendto(datagram, address)

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
        self._half_open.discard(connection)
        if isinstance(connection, Edge):
            self._retire(connection.approach)


def _succeeded(future: asyncio.Future[Any]) -> bool:
    return future.done() and not future.cancelled() and future.exception() is None
