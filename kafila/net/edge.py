"""An edge: the connection between two neighbours of the ring, over whichever path carries it.

`Approach` is the thin shell round the path checks (timer, future, sending); `Edge` is a Connection
whose QUIC talks to one constant address while the path beneath may be any. See docs/wire.md for
the states.
"""

import asyncio
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from kafila.address import Address
from kafila.defaults import MAX_CHANNELS, MAX_MESSAGE
from kafila.errors import IdentityProblem, KafilaError, NetworkProblem
from kafila.net.connection import Connection, Shell, forsake
from kafila.net.datagram import Check
from kafila.net.handshake import ClientHandshake, Reason, Refusal, ServerHandshake, Terms
from kafila.net.paths import Path, PathChecks, Send
from kafila.net.quic import Quic

EDGE_ALPN: Final = "kafila-edge"
PEER: Final = ("kafila-peer", 0)
"""What QUIC takes for the peer's address, whatever path its datagrams take."""


@dataclass(frozen=True)
class Peer:
    """A neighbour as the plan and its own signed record describe it."""

    name: str
    key: bytes
    exchange_key: bytes
    certificate: bytes
    candidates: Sequence[Address]


class Approach:
    """Finds a path to one peer, and answers its checks for as long as the edge lives."""

    def __init__(
        self,
        peer: Peer,
        checks: PathChecks,
        terms: Terms,
        *,
        client: bool,
        send: Callable[[Send], None],
    ) -> None:
        self.peer = peer
        self.client = client
        self.terms = terms
        self.checks = checks
        self.edge: Edge | None = None
        self.opened: asyncio.Future[Edge] = asyncio.get_running_loop().create_future()
        self.path: asyncio.Future[Path] = asyncio.get_running_loop().create_future()
        self._send = send
        self._doubted: Address | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._poll()

    def receive(self, datagram: bytes, check: Check, socket: Any, source: Address) -> None:
        """Take a check that names this edge."""
        now = asyncio.get_running_loop().time()
        sends = self.checks.receive(datagram, check, socket, source, now)
        if sends is None:
            self.doubt(socket, source)
            return
        self._after(sends)

    def doubt(self, socket: Any, source: Address) -> None:
        """Remember that somebody without the peer's key answers at one of its addresses."""
        if self.checks.find(socket, source) is not None:
            self._doubted = source

    def admits(self, socket: Any, source: Address) -> bool:
        """Tell whether a QUIC datagram came over a checked path; if not, check it too."""
        path = self.checks.find(socket, source)
        if path is not None and path.checked:
            return True
        now = asyncio.get_running_loop().time()
        self._after(self.checks.wanted(socket, source, now))
        return False

    def settle(self) -> Path:
        """Decide for a checked path now: the peer has."""
        self.checks.settle()
        self._after([])
        assert self.checks.chosen is not None
        return self.checks.chosen

    def failure(self, timeout: float) -> KafilaError:
        """Say why there is no edge after `timeout` seconds."""
        name = self.peer.name
        if self.checks.chosen is not None:
            host, port = self.checks.chosen.address
            return NetworkProblem(
                f"{name} can be reached at {host}:{port}, but did not connect within "
                f"{timeout:g} s: does its plan have this member as a neighbour?"
            )
        if self._doubted is not None:
            host, port = self._doubted
            return IdentityProblem(
                f"who answers at {host}:{port} is not {name}: it does not hold the key that the "
                f"plan names for {name}."
            )
        places = ", ".join(f"{host}:{port}" for host, port in self.peer.candidates)
        return NetworkProblem(
            f"{name} does not answer at {places or 'any address'} after {timeout:g} s: is it "
            "running, with this plan?"
        )

    def close(self) -> None:
        """Stop checking and answering; whoever waits for the edge is told."""
        if self._timer is not None:
            self._timer.cancel()
        waiting = self.opened if self.path.done() else self.path
        if not waiting.done():
            waiting.set_exception(NetworkProblem(f"the edge to {self.peer.name} was given up."))

    def forsake(self) -> None:
        """Nobody waits for the edge any more."""
        forsake(self.path)
        forsake(self.opened)

    def _poll(self) -> None:
        self._timer = None
        self._after(self.checks.poll(asyncio.get_running_loop().time()))

    def _after(self, sends: Iterable[Send]) -> None:
        for send in sends:
            self._send(send)
        mismatch = self.checks.mismatch
        if mismatch is not None and not self.path.done():
            ours = self.terms
            if mismatch.protocol != ours.protocol:
                values = ours.protocol.to_bytes(2), mismatch.protocol.to_bytes(2)
                refusal = Refusal(Reason.PROTOCOL, True, *values)
            else:
                refusal = Refusal(Reason.PLAN, True, ours.digest, mismatch.plan)
            self.path.set_exception(IdentityProblem(refusal.words(self.peer.name)))
        if self.checks.chosen is not None and not self.path.done():
            self.path.set_result(self.checks.chosen)
        due = self.checks.timer()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if due is not None:
            self._timer = asyncio.get_running_loop().call_at(due, self._poll)


class Edge(Connection):
    """The connection to a neighbour."""

    def __init__(
        self,
        shell: Shell,
        quic: Quic,
        handshake: ClientHandshake | ServerHandshake,
        approach: Approach,
        idle_timeout: float,
    ) -> None:
        self.approach = approach
        super().__init__(
            shell,
            quic,
            handshake,
            label=approach.peer.name,
            address=self.path.address,
            limit=MAX_MESSAGE,
            channels=MAX_CHANNELS,
            idle_timeout=idle_timeout,
            on_opened=self._on_edge_opened,
        )

    def _on_edge_opened(self, _: Connection, problem: KafilaError | None) -> None:
        opened = self.approach.opened
        if not opened.done():
            opened.set_exception(problem) if problem else opened.set_result(self)

    @property
    def peer(self) -> Peer:
        """Who is at the other end."""
        return self.approach.peer

    @property
    def paths(self) -> list[Path]:
        """Every path that was tried."""
        return self.approach.checks.paths

    @property
    def path(self) -> Path:
        """The path in use."""
        chosen = self.approach.checks.chosen
        assert chosen is not None, "an edge is made once a path is chosen"
        return chosen

    def _peer_address(self, source: Address) -> Hashable:
        return PEER

    def _send(self, datagrams: Iterable[tuple[bytes, Hashable]]) -> None:
        self.address = self.path.address
        for datagram, _ in datagrams:
            self._shell.send(datagram, self.address)
