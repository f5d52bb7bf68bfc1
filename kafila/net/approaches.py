"""All approaches of a node: which peers its edges are for, and which datagrams are theirs."""

import asyncio
from collections.abc import Sequence
from typing import Protocol

from kafila.address import Address
from kafila.defaults import CLOSE_TIMEOUT, EDGE_TRIALS, EDGE_WINDOW
from kafila.errors import IdentityProblem, NetworkProblem
from kafila.net.approach import Approach
from kafila.net.carrier import Carrier
from kafila.net.certificate import key_of
from kafila.net.checks import Check, edge_key
from kafila.net.connection import Shell
from kafila.net.edge import EDGE_ALPN, PEER, Edge, Peer
from kafila.net.gathering import Home as Gathering
from kafila.net.handshake import ClientHandshake, ServerHandshake, Terms
from kafila.net.identity import Identity
from kafila.net.paths import PathChecks
from kafila.net.punching import ORDINARY, Punch
from kafila.net.quic import Destination, Engine, Quic, destination
from kafila.net.relay import Relayed
from kafila.net.udp import Udp


class Home(Shell, Gathering, Protocol):
    """What approaches need of their node."""

    @property
    def udp(self) -> Udp: ...
    @property
    def udp6(self) -> Udp | None: ...
    @property
    def nonce(self) -> bytes: ...


class Approaches:
    """Makes edges: finds their paths, connects over them or admits who does."""

    def __init__(self, node: Home, engine: Engine, identity: Identity, idle_timeout: float) -> None:
        self._node = node
        self._engine = engine
        self._identity = identity
        self._idle_timeout = idle_timeout
        self._by_name: dict[bytes, Approach] = {}

    async def edge(
        self,
        peer: Peer,
        terms: Terms,
        *,
        client: bool,
        timeout: float,
        relay: Relayed | None = None,
        servers: Sequence[Address] = (),
        punch: Punch = ORDINARY,
    ) -> Edge:
        """See `Node.edge`."""
        approach = self._begin(peer, client, terms, relay, servers, punch)
        edge: Edge | None = None
        try:
            async with asyncio.timeout(timeout):
                await approach.usable
                approach.connect()
                edge = await approach.opened
            return edge
        except TimeoutError:
            raise approach.failure(timeout) from None
        finally:
            if edge is None:
                self._abandon(approach)

    def at(self, carrier: Carrier, source: Address) -> Approach | None:
        """Return the approach that has a path over `carrier` to `source`, checked or not."""
        for approach in self._by_name.values():
            if approach.checks.find(carrier, source) is not None:
                return approach
        return None

    def admit(
        self, approach: Approach, carrier: Carrier, datagram: bytes, source: Address
    ) -> Edge | None:
        """Return the edge that a QUIC datagram is for; None: it comes too early."""
        path = approach.admit(carrier, source, len(datagram))
        if path is None:
            return None
        if approach.edge is None and not approach.client:
            return self._trial(approach, destination(datagram))
        return approach.edge

    def check(self, datagram: bytes, carrier: Carrier, source: Address) -> None:
        """Take a path check."""
        check = Check.decode(datagram)
        approach = self._by_name.get(check.edge)
        if approach is not None:
            approach.receive(datagram, check, carrier, source)
        else:
            for each in self._by_name.values():
                each.doubt(carrier, source)

    def release(self, edge: Edge) -> None:
        """The edge's connection is over; so is its approach, unless that goes on with another."""
        edge.approach.trials.pop(edge, None)
        if edge.approach.edge is edge:
            self.retire(edge.approach)

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

    def _begin(
        self,
        peer: Peer,
        client: bool,
        terms: Terms,
        relay: Relayed | None,
        servers: Sequence[Address],
        punch: Punch,
    ) -> Approach:
        """Start looking for a path to `peer`."""
        key, name = self._key(peer)
        before = self._by_name.get(name)
        if before is not None:
            alive = before.edge is not None and not before.edge.closed
            if alive or not before.opened.done():
                raise NetworkProblem(f"there already is an edge to {peer.name}.")
            if before.edge is not None:
                before.edge.abort("")
            self.retire(before)
        main = (self._node.udp, self._node.udp6)
        checks = PathChecks(
            key=key,
            edge=name,
            client=client,
            protocol=terms.protocol,
            plan=terms.digest[:8],
            now=asyncio.get_running_loop().time(),
            sockets={6 if udp.ipv6 else 4: udp for udp in main if udp is not None},
            own=self._node.local_candidates(),
            candidates=peer.candidates,
            relay=None if relay is None else (relay, relay.address),
            punch=punch,
        )
        approach = Approach(
            self._node,
            peer,
            checks,
            terms,
            client=client,
            servers=servers,
            connect=self._connect,
        )
        self._by_name[name] = approach
        return approach

    def _key(self, peer: Peer) -> tuple[bytes, bytes]:
        """The key of the checks and the name of the edge. Raises IdentityProblem."""
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
        return edge_key(secret, self._identity.key, peer.key)

    def _connect(self, approach: Approach) -> Edge:
        """Make the client's end."""
        quic = self._engine.connect(
            PEER,
            alpn=EDGE_ALPN,
            certificate=approach.peer.certificate,
            size=approach.size,
            window=EDGE_WINDOW,
            now=asyncio.get_running_loop().time(),
        )
        peer = approach.peer
        handshake = ClientHandshake(self._identity, peer.key, approach.terms, peer.nonce)
        return self._edge(approach, quic, handshake)

    def _trial(self, approach: Approach, to: Destination) -> Edge | None:
        """Return the server's end that a datagram is for, a new one if it may open one.

        Whoever is on the way can send an Initial too: a few are heard out side by side.
        """
        for edge, cids in approach.trials.items():
            if to.cid in cids:
                return edge
        if not to.opens or approach.opened.done() or len(approach.trials) == EDGE_TRIALS:
            return None
        quic = self._engine.accept(
            to.cid,
            first=to.cid,
            alpns=[EDGE_ALPN],
            size=approach.size,
            window=EDGE_WINDOW,
        )
        handshake = ServerHandshake(
            self._identity.key, approach.terms, approach.peer.key, self._node.nonce
        )
        trial = self._edge(approach, quic, handshake)
        approach.trials[trial] = frozenset(quic.cids)
        return trial

    def _edge(
        self, approach: Approach, quic: Quic, handshake: ClientHandshake | ServerHandshake
    ) -> Edge:
        return Edge(self._node, quic, handshake, approach, self._idle_timeout)

    def _abandon(self, approach: Approach) -> None:
        """End an approach that failed, but let the peer learn why if the peer is the reason."""
        approach.forsake()
        if approach.checks.mismatch is not None:
            asyncio.get_running_loop().call_later(CLOSE_TIMEOUT, self._end, approach)
        else:
            self._end(approach)

    def _end(self, approach: Approach) -> None:
        if approach.edge is None:
            self.retire(approach)
        elif not approach.edge.closed:
            approach.edge.abort("")
