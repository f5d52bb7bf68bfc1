"""An edge: the connection between two neighbours of the ring, over whichever paths carry it.

Its QUIC talks to one constant address while the path beneath may be any. How paths are found and
kept, `Approach` knows.
"""

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from kafila.address import Address
from kafila.defaults import MAX_CHANNELS, MAX_MESSAGE, NUDGE_AFTER, UNKNOWN_TRIP_US
from kafila.errors import KafilaError
from kafila.net.connection import Connection, Shell
from kafila.net.handshake import ClientHandshake, ServerHandshake
from kafila.net.path import Path
from kafila.net.quic import Quic

if TYPE_CHECKING:
    from kafila.net.approach import Approach

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
    nonce: bytes
    """32 bytes, of its process: what its clients sign."""


class Edge(Connection):
    """The connection to a neighbour."""

    def __init__(
        self,
        shell: Shell,
        quic: Quic,
        handshake: ClientHandshake | ServerHandshake,
        approach: "Approach",
        idle_timeout: float,
    ) -> None:
        self.approach = approach
        self.on_path: Callable[[Edge], None] | None = None
        """Called when another path than before carries the edge."""
        self._muted = False
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
        self._begun_at = self._loop.time()

    @property
    def peer(self) -> Peer:
        """Who is at the other end."""
        return self.approach.peer

    @property
    def paths(self) -> list[Path]:
        """Every path that is known."""
        return self.approach.checks.paths

    @property
    def path(self) -> Path:
        """The path in use."""
        used = self.approach.checks.used
        assert used is not None, "an edge is made once there is a path"
        return used

    @property
    def why(self) -> str:
        """Why the path is not direct, in a clause; empty if it is."""
        return self.approach.checks.why

    @property
    def sent(self) -> Mapping[str, int]:
        """Bytes of QUIC's datagrams sent, by the kind of path; on a suspect path and beside it both
        count."""
        return self.approach.sent

    @property
    def received(self) -> Mapping[str, int]:
        """Bytes of QUIC's datagrams received, by the kind of path."""
        return self.approach.received

    def update(self, candidates: Sequence[Address]) -> None:
        """Take the peer's addresses from a new record of the same process of it."""
        self.approach.update(candidates)

    # --- what the approach calls -------------------------------------------------------------

    def moved(self, size: int, rtt_us: int | None, now: float) -> None:
        """Datagrams of at most `size` bytes take another path from now on, or one more."""
        rtt = UNKNOWN_TRIP_US if rtt_us is None else rtt_us
        self._quic.moved(size, rtt / 1e6, now)
        self._shell.wake(self)

    def resized(self, size: int) -> None:
        """The path takes datagrams of at most `size` bytes."""
        self._quic.resize(size)

    def told(self, path: Path) -> None:
        """Another path is in use: tell the owner."""
        self.address = path.address
        if self.on_path is not None:
            self._call(self.on_path, self)

    def nudge(self, now: float) -> None:
        """The peer is there now: send again what went before it was, unless that is on its way."""
        due = self._quic.timer()
        if due is not None and now - self._begun_at >= NUDGE_AFTER:
            self._quic.handle_timer(due)
            self._shell.wake(self)

    def mute(self) -> None:
        """Send nothing more: what nobody has heard of needs no goodbye."""
        self._muted = True

    # --- Connection --------------------------------------------------------------------------

    def _on_edge_opened(self, _: Connection, problem: KafilaError | None) -> None:
        self.approach.concluded(self, problem)

    def _peer_address(self, source: Address) -> Hashable:
        return PEER

    def _send(self, datagrams: Iterable[tuple[bytes, Hashable]]) -> None:
        if not self._muted:
            self.approach.carry(datagrams)
