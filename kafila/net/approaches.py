"""All approaches of a node: which peers its edges are for, and which datagrams are theirs."""

import asyncio

from kafila.address import Address
from kafila.defaults import CLOSE_TIMEOUT, EDGE_WINDOW
from kafila.errors import IdentityProblem, NetworkProblem
from kafila.net.certificate import key_of
from kafila.net.connection import Shell
from kafila.net.datagram import Check
from kafila.net.edge import EDGE_ALPN, PEER, Approach, Edge, Peer
from kafila.net.handshake import ClientHandshake, ServerHandshake, Terms
from kafila.net.identity import Identity
from kafila.net.paths import PathChecks, Send, edge_key, reachable
from kafila.net.quic import Engine, Quic, destination
from kafila.net.udp import Udp


class Approaches:
    """Makes edges: finds their paths, connects over them or admits who does."""

    def __init__(
        self, shell: Shell, engine: Engine, udp: Udp, identity: Identity, idle_timeout: float
    ) -> None:
        self._shell = shell
        self._engine = engine
        self._udp = udp
        self._identity = identity
        self._idle_timeout = idle_timeout
        self._by_name: dict[bytes, Approach] = {}

    async def edge(self, peer: Peer, terms: Terms, *, client: bool, timeout: float) -> Edge:
        """See `Node.edge`."""
        approach = self._begin(peer, client, terms)
        edge: Edge | None = None
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
                        now=asyncio.get_running_loop().time(),
                    )
                    self._connect(approach, quic)
                edge = await approach.opened
            return edge
        except TimeoutError:
            raise approach.failure(timeout) from None
        finally:
            if edge is None:
                self._abandon(approach)

    def at(self, source: Address) -> Approach | None:
        """Return the approach that has a path to `source`, checked or not."""
        return next((a for a in self._by_name.values() if a.checks.find(self._udp, source)), None)

    def admit(self, approach: Approach, datagram: bytes, source: Address) -> Edge | None:
        """Return the edge that a QUIC datagram from `source` is for; None: it comes too early."""
        if not approach.admits(self._udp, source):
            return None
        if approach.edge is None:
            to = destination(datagram)
            if approach.client or not to.opens:
                return None
            path = approach.settle()
            quic = self._engine.accept(
                to.cid, first=to.cid, alpns=[EDGE_ALPN], size=path.size, window=EDGE_WINDOW
            )
            self._connect(approach, quic)
        return approach.edge

    def check(self, datagram: bytes, source: Address) -> None:
        """Take a path check."""
        check = Check.decode(datagram)
        approach = self._by_name.get(check.edge)
        if approach is not None:
            approach.receive(datagram, check, self._udp, source)
        else:
            for each in self._by_name.values():
                each.doubt(self._udp, source)

    def retire(self, approach: Approach) -> None:
        """Stop checking for it, and answering."""
        approach.close()
        for name, each in list(self._by_name.items()):
            if each is approach:
                del self._by_name[name]

    def close(self) -> None:
        """Give up what has no edge yet."""
        for approach in list(self._by_name.values()):
            if approach.edge is None:
                self.retire(approach)

    def _begin(self, peer: Peer, client: bool, terms: Terms) -> Approach:
        """Start looking for a path to `peer`."""
        try:
            secret = self._identity.shared(peer.exchange_key)
            genuine = key_of(peer.certificate) == peer.key
        except ValueError:
            genuine = False
        if not genuine:
            raise IdentityProblem(
                f"{peer.name} was introduced with keys that do not belong together: it must "
                "have been probed again since the plan was made, or its record was tampered with."
            )
        key, name = edge_key(secret, self._identity.key, peer.key)
        before = self._by_name.get(name)
        if before is not None:
            alive = before.edge is not None and not before.edge.closed
            if alive or not before.opened.done():
                raise NetworkProblem(f"there already is an edge to {peer.name}.")
            if before.edge is not None:
                before.edge.abort("")
            self.retire(before)
        checks = PathChecks(
            key=key,
            edge=name,
            client=client,
            protocol=terms.protocol,
            plan=terms.digest[:8],
            now=asyncio.get_running_loop().time(),
        )
        checks.add(self._udp, reachable(peer.candidates, self._udp.candidates()))
        approach = Approach(peer, checks, terms, client=client, send=self._send)
        self._by_name[name] = approach
        return approach

    def _connect(self, approach: Approach, quic: Quic) -> None:
        handshake = (
            ClientHandshake(self._identity, approach.peer.key, approach.terms)
            if approach.client
            else ServerHandshake(self._identity.key, approach.terms, approach.peer.key)
        )
        approach.edge = Edge(self._shell, quic, handshake, approach, self._idle_timeout)

    def _abandon(self, approach: Approach) -> None:
        """End an approach that failed, but let the peer learn why if the peer is the reason."""
        approach.forsake()
        if approach.edge is not None:
            if not approach.edge.closed:
                approach.edge.abort("")
        elif approach.checks.mismatch is not None:
            asyncio.get_running_loop().call_later(CLOSE_TIMEOUT, self.retire, approach)
        else:
            self.retire(approach)

    def _send(self, send: Send) -> None:
        self._udp.send(send.datagram, send.address)
