"""A node: its sockets and everything that shares them. The thin shell round the sans-IO parts.

Every socket carries STUN, path checks, relay frames and QUIC, told apart by the first byte
(RFC 9443), so that the mapping a NAT keeps for one is the mapping of all. All pending datagrams
are taken before anything is sent: a burst then costs one answer. Loop thread only.
"""

import asyncio
import os
from collections.abc import Callable, Iterable, Sequence

from kafila import PROTOCOL
from kafila.address import Address, format_address
from kafila.defaults import (
    DIAL_TIMEOUT,
    EDGE_TIMEOUT,
    IDLE_TIMEOUT,
    STUN_TIMEOUT,
)
from kafila.errors import NetworkProblem
from kafila.net.approaches import Approaches
from kafila.net.carrier import Carrier, Reader
from kafila.net.connection import Connection
from kafila.net.connections import Connections
from kafila.net.datagram import Family, family
from kafila.net.dialling import Dial
from kafila.net.edge import Edge, Peer
from kafila.net.handshake import NONCE_SIZE, Terms
from kafila.net.identity import Identity
from kafila.net.listening import Listeners
from kafila.net.punching import ORDINARY, Punch
from kafila.net.queries import Queries
from kafila.net.quic import Engine, destination
from kafila.net.relay import Relayed
from kafila.net.relaying import named_flow
from kafila.net.sockets import Sockets
from kafila.net.udp import Udp, resolve


class Node(Connections):
    """Sockets, their connections and edges. Make it with `open`, end it with `close`."""

    @classmethod
    async def open(
        cls,
        identity: Identity,
        host: str = "0.0.0.0",
        port: int = 0,
        *,
        idle_timeout: float = IDLE_TIMEOUT,
    ) -> "Node":
        """Bind the main sockets (port 0: any free one). 0.0.0.0 and :: are all interfaces, with
        IPv4 and IPv6; any other host is that address alone. A peer silent for `idle_timeout` s is
        gone.

        Raises NetworkProblem if the address or port cannot be had.
        """
        return cls(identity, host, port, idle_timeout)

    def __init__(self, identity: Identity, host: str, port: int, idle_timeout: float) -> None:
        super().__init__()
        self.identity = identity
        self.protocol = PROTOCOL
        """The protocol version this node speaks."""
        self.nonce = os.urandom(NONCE_SIZE)
        """What the clients of its edges sign; new in each process."""
        self._idle_timeout = idle_timeout
        self._engine = Engine(identity, idle_timeout)
        self._queries = Queries(identity.certificate)
        self._listeners = Listeners(self, self._engine, identity.key, idle_timeout)
        self._approaches = Approaches(self, self._engine, identity, idle_timeout)
        self._readers: list[Reader | None] = [None] * 256
        self.on_family(Family.QUIC, self._quic)
        self.on_family(Family.CHECK, self._approaches.check)
        self.on_family(Family.STUN, self._queries.stun)
        self.on_family(Family.CERTIFICATE, self._queries.certificates)
        self.on_family(Family.RELAY, self._relayed)
        self.on_family(Family.BINDING, self._relayed)
        self.relays: dict[bytes, Reader] = {}
        """Relayed flows, and who reads the datagrams that name them."""
        self._sockets = Sockets(host, port, self.take, self.sever)

    @property
    def udp(self) -> Udp:
        """The main socket: the IPv4 one where there is one."""
        return self._sockets.udp

    @property
    def udp6(self) -> Udp | None:
        """The main IPv6 socket; None: there is none."""
        return self._sockets.udp6

    @property
    def address(self) -> Address:
        """Where the main socket is bound."""
        return self.udp.address

    @property
    def tunnels(self) -> int:
        """How many tunnels are open."""
        return len(self._sockets.tunnels)

    @property
    def half_open(self) -> int:
        """How many strangers are proving a key."""
        return len(self._listeners.half_open)

    def local_candidates(
        self, reflexive: Sequence[Address] = (), udp: Udp | None = None
    ) -> list[Address]:
        """Return the addresses at which this node might be reached, best first.

        `reflexive` are addresses at which others see it; `udp` is an IPv4 socket to be reached at
        in place of the main one.
        """
        return self._sockets.candidates(reflexive, udp or self.udp)

    async def close(self) -> None:
        """Close every connection, each peer told, and then the sockets. Again: nothing."""
        self._approaches.close()
        self._listeners.close()
        await asyncio.gather(*(each.close() for each in list(self._connections)))
        await self._sockets.close()

    # --- what users of a node need -----------------------------------------------------------

    def listen(self, alpn: str, accept: Callable[[Connection], None]) -> None:
        """Accept connections of clients that proved a key, whichever it is.

        A listening node answers STUN requests and certificate queries too.
        """
        self._listeners.add(alpn, accept)
        self._queries.answering = True

    def accept_tunnels(self) -> None:
        """Take datagrams inside TLS too, on TCP at the addresses and ports of the main sockets.

        Raises NetworkProblem if one cannot be had.
        """
        self._sockets.accept_tunnels(self.identity)

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

        It goes over UDP, or through a tunnel if UDP is silent for TUNNEL_AFTER seconds. Raises
        IdentityProblem for another key or version, NetworkProblem for silence.
        """
        dial = Dial(
            self, self._sockets, self._queries, self._engine, address, alpn, self._idle_timeout
        )
        return await dial.connection(server_key, timeout)

    async def round_trips(
        self, address: Address, samples: int, timeout: float = STUN_TIMEOUT
    ) -> list[int]:
        """Measure round trips to a listening node (STUN), in microseconds; one after another.

        A sample that takes over `timeout` s is lost and left out. Raises NetworkProblem if all
        are, after three at the latest.
        """
        at = address if address in self._sockets.tunnels else (await resolve(address))[0]
        measured = await self._queries.round_trips(self.carrier(at), at, samples, timeout)
        if not measured:
            raise NetworkProblem(
                f"{format_address(address)} answers no STUN request: does UDP reach it?"
            )
        return measured

    async def reflexive(
        self, server: Address, *, udp: Udp | None = None, timeout: float = STUN_TIMEOUT
    ) -> Address | None:
        """Ask a STUN server (host name or address) how it sees a socket, the main one if None.

        None: no answer in `timeout` s, or the server has no address of the socket's family.
        """
        udp = udp or self.udp
        targets = [target for target in await resolve(server) if udp.reaches(target)]
        return await self._queries.reflexive(udp, targets[0], timeout) if targets else None

    async def edge(
        self,
        peer: Peer,
        *,
        client: bool,
        session: bytes,
        digest: bytes,
        timeout: float = EDGE_TIMEOUT,
        relay: Relayed | None = None,
        servers: Sequence[Address] = (),
        punch: Punch = ORDINARY,
    ) -> Edge:
        """Connect with a neighbour that does the same, one of both as `client`.

        `session` and `digest` (of the plan) are 32 bytes and must be the peer's too. `relay` is the
        bound flow to it, with which the edge begins; `servers` say how a fresh socket is seen.
        Raises IdentityProblem for another key, session, plan or version, NetworkProblem for
        silence.
        """
        terms = Terms(self.protocol, session, digest)
        return await self._approaches.edge(
            peer,
            terms,
            client=client,
            timeout=timeout,
            relay=relay,
            servers=servers,
            punch=punch,
        )

    # --- carriers ----------------------------------------------------------------------------

    def open_socket(self, *, ipv6: bool = False, port: int = 0) -> Udp:
        """Open one more socket beside the main one of its family (port 0: any free one).

        Connections with strangers do not go over it. Raises NetworkProblem if it cannot be had.
        """
        return self._sockets.open(ipv6=ipv6, port=port)

    def close_socket(self, udp: Udp) -> None:
        """Close one that `open_socket` opened; again: nothing."""
        self._sockets.forget(udp)

    def carrier(self, address: Address) -> Carrier:
        """Return what leads to an address: a main socket, or the tunnel that it stands for."""
        return self._sockets.towards(address)

    def on_family(self, kind: Family, reader: Reader) -> None:
        """Have `reader` called, first and directly, with every datagram of this family."""
        for first in range(256):
            if family(bytes([first])) is kind:
                self._readers[first] = reader

    def take(self, carrier: Carrier, datagrams: Iterable[tuple[bytes, Address]]) -> None:
        """Take what came over a carrier: datagrams, each with its source. Then let connections
        act; what they send leaves with what their readers send in this loop turn."""
        for datagram, source in datagrams:
            self.dispatch(datagram, carrier, source)
        self.process()

    def dispatch(self, datagram: bytes, carrier: Carrier, source: Address) -> None:
        """Bring a datagram to its reader; what nobody understands is dropped.

        For readers of what is inside a datagram. What comes from elsewhere is for `take`.
        """
        reader = self._readers[datagram[0]] if datagram else None
        if reader is not None:
            try:
                reader(datagram, carrier, source)
            except ValueError:
                return

    def _quic(self, datagram: bytes, carrier: Carrier, source: Address) -> None:
        approach = self._approaches.at(carrier, source)
        connection: Connection | None = None
        if approach is not None:
            connection = self._approaches.admit(approach, carrier, datagram, source)
        elif self._sockets.main(carrier):
            to = destination(datagram)
            connection = self._cids.get(to.cid)
            if connection is None and to.opens:
                now = self._loop.time()
                connection = self._listeners.take(to, source, Terms(self.protocol), now)
        if connection is not None:
            self.receive(connection, datagram, source)

    def _relayed(self, datagram: bytes, carrier: Carrier, source: Address) -> None:
        reader = self.relays.get(named_flow(datagram))
        if reader is not None:
            reader(datagram, carrier, source)

    # --- what connections need, beside what Connections gives them ---------------------------

    def send(self, datagram: bytes, address: Address) -> None:
        """Send a datagram now."""
        self._sockets.towards(address).send(datagram, address)

    def release(self, connection: Connection) -> None:
        """Forget a connection."""
        super().release(connection)
        self._listeners.forget(connection)
        if isinstance(connection, Edge):
            self._approaches.release(connection)
