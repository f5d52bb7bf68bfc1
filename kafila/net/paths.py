"""The paths of one edge and the checks that prove them: sans-IO, in virtual time.

A path is a local socket and a remote address; it may carry the edge's QUIC once a PING of ours
over it came back as a PONG with the edge's key (so the peer receives us, and we it, now). The QUIC
connection above knows nothing of this: it talks to one constant address. Knows no sockets (a
socket is an opaque value), no clock, no QUIC. All paths are direct here.
"""

import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from ipaddress import IPv4Address
from typing import Any, NamedTuple

from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from kafila.address import Address
from kafila.defaults import (
    MAX_CANDIDATES,
    MAX_PATHS,
    PATH_PATIENCE,
    PATH_SIZES,
    PING_AGAIN,
    PING_AGAIN_MOST,
    PING_FULL_ROUNDS,
)
from kafila.net.datagram import Check, CheckType, authentic


def edge_key(secret: bytes, key: bytes, peer_key: bytes) -> tuple[bytes, bytes]:
    """Derive from the two members' X25519 secret (RFC 5869) the key that authenticates their
    checks (32 bytes) and the name of their edge (8 bytes). Both ends get the same."""
    info = b"kafila edge" + b"".join(sorted((key, peer_key)))
    derived = HKDF(algorithm=SHA256(), length=40, salt=None, info=info).derive(secret)
    return derived[:32], derived[32:]


def reachable(candidates: Iterable[Address], own: Iterable[Address]) -> list[Address]:
    """Keep the candidates worth a PING: IPv4 addresses of one host, at most MAX_CANDIDATES.

    Loopback ones only if the peer is on this machine (it has a host in common with `own`) or has
    no other: on another machine they would lead back to this one.
    """
    every = [(IPv4Address(host), port) for host, port in candidates if _usable(host, port)]
    hosts = {host for host, _ in every if not host.is_loopback}
    here = not hosts or hosts & {IPv4Address(host) for host, _ in own}
    kept = [(str(host), port) for host, port in every if here or not host.is_loopback]
    return kept[:MAX_CANDIDATES]


def _usable(host: str, port: int) -> bool:
    try:
        address = IPv4Address(host)
    except ValueError:
        return False
    broadcast = address.is_multicast or address.is_unspecified or address.packed[3] == 255
    return not broadcast and 0 < port < 65536


@dataclass(eq=False)
class Path:
    """One way to the peer. `size` and `rtt_us` are known once it is checked."""

    kind: str
    """`direct`: straight from socket to socket."""
    socket: Any
    address: Address
    size: int = 0
    """The largest datagram in bytes that came through; 0: none yet."""
    rtt_us: int | None = None
    """The shortest round trip of a check, in microseconds."""
    _pings: dict[bytes, tuple[float, int]] = field(default_factory=dict, repr=False)
    _rounds: int = field(default=0, repr=False)
    _next: float = field(default=0.0, repr=False)

    @property
    def checked(self) -> bool:
        """Whether the path may carry the edge's QUIC."""
        return self.size > 0


class Send(NamedTuple):
    """A datagram to send from a socket to an address."""

    socket: Any
    address: Address
    datagram: bytes


class Mismatch(NamedTuple):
    """What the peer, proven to be the peer by a fresh PONG, has otherwise than we do."""

    protocol: int
    plan: bytes
    """The first 8 bytes of its plan digest."""


class PathChecks:
    """The checks of one edge: CHECKING until a path is chosen (see docs/wire.md).

    Feed it what arrives (`receive`) and the time (`poll` whenever `timer` says so); send what it
    returns. `chosen` is the path to use, `mismatch` the reason why there will be none.
    """

    def __init__(
        self,
        *,
        key: bytes,
        edge: bytes,
        client: bool,
        protocol: int,
        plan: bytes,
        now: float,
        random: Callable[[int], bytes] = os.urandom,
    ) -> None:
        self.paths: list[Path] = []
        self.chosen: Path | None = None
        self.mismatch: Mismatch | None = None
        self._key = key
        self._edge = edge
        self._client = client
        self._protocol = protocol
        self._plan = plan
        self._now = now
        self._random = random
        self._decide_at: float | None = None

    def add(self, socket: Any, candidates: Sequence[Address]) -> None:
        """Try these addresses, best first, at the next `poll`; surplus ones are left out."""
        for address in candidates:
            if self.find(socket, address) is None and len(self.paths) < MAX_PATHS:
                self.paths.append(Path("direct", socket, address, _next=self._now))

    def find(self, socket: Any, address: Address) -> Path | None:
        """Return the path from `socket` to `address`, checked or not."""
        for path in self.paths:
            if path.socket is socket and path.address == address:
                return path
        return None

    def receive(
        self, datagram: bytes, check: Check, socket: Any, source: Address, now: float
    ) -> list[Send] | None:
        """Take a decoded check that names this edge; return what to send, None if it is forged.

        A PING is always answered, by a PONG that is never larger. A PING alone proves nothing
        (it may be a replay): its source only becomes one more path to check.
        """
        if check.from_client is self._client or not authentic(datagram, self._key):
            return None
        self._now = now
        if check.type is CheckType.PONG:
            self._answered(check, socket, source, now)
            return []
        pong = Check(
            CheckType.PONG,
            self._client,
            self._protocol,
            self._edge,
            check.transaction,
            self._plan,
            len(datagram),
        )
        self.add(socket, [source])
        return [Send(socket, source, pong.encode(self._key)), *self.wanted(socket, source, now)]

    def wanted(self, socket: Any, source: Address, now: float) -> list[Send]:
        """The peer uses this path: check it too, even if another is chosen here.

        Its way to us is open right now, and what it sends over it is dropped until we know it.
        """
        path = self.find(socket, source)
        if path is None or path.checked or self.mismatch is not None:
            return []
        return self._ping(path, now) if path._rounds == 0 or now >= path._next else []

    def poll(self, now: float) -> list[Send]:
        """Send what is due and decide what is ripe."""
        self._now = now
        if self._decide_at is not None and now >= self._decide_at:
            self._choose()
        if self.chosen or self.mismatch:
            return []
        sends = []
        for path in self.paths:
            if not path.checked and now >= path._next:
                sends += self._ping(path, now)
        return sends

    def settle(self) -> None:
        """Choose now, if a path is checked: the peer has chosen and begins."""
        if any(path.checked for path in self.paths):
            self._choose()

    def timer(self) -> float | None:
        """Return when to `poll` next; None: not before something arrives."""
        if self.chosen or self.mismatch:
            return None
        times = [path._next for path in self.paths if not path.checked]
        if self._decide_at is not None:
            times.append(self._decide_at)
        return min(times, default=None)

    def _ping(self, path: Path, now: float) -> list[Send]:
        """Send one round of PINGs: every size at first, later only the one that must pass."""
        sizes = PATH_SIZES if path._rounds < PING_FULL_ROUNDS else PATH_SIZES[:1]
        sends = []
        for size in sizes:
            transaction = self._random(8)
            path._pings[transaction] = (now, size)
            ping = Check(
                CheckType.PING,
                self._client,
                self._protocol,
                self._edge,
                transaction,
                self._plan,
                size,
            )
            sends.append(Send(path.socket, path.address, ping.encode(self._key)))
        while len(path._pings) > 8 * len(PATH_SIZES):
            del path._pings[next(iter(path._pings))]
        path._next = now + min(PING_AGAIN * 2**path._rounds, PING_AGAIN_MOST)
        path._rounds = min(path._rounds + 1, 32)
        return sends

    def _answered(self, check: Check, socket: Any, source: Address, now: float) -> None:
        """Take an authentic PONG: it counts only for a PING of ours over the same path."""
        path = self.find(socket, source)
        sent = path._pings.pop(check.transaction, None) if path else None
        if path is None or sent is None or sent[1] != check.size:
            return
        if (check.protocol, check.plan) != (self._protocol, self._plan):
            self.mismatch = Mismatch(check.protocol, check.plan)
            return
        rtt_us = round((now - sent[0]) * 1e6)
        path.rtt_us = rtt_us if path.rtt_us is None else min(path.rtt_us, rtt_us)
        path.size = max(path.size, check.size)
        if self.chosen is path or path.size == PATH_SIZES[-1]:
            self._choose()
        elif self._decide_at is None:
            self._decide_at = now + PATH_PATIENCE

    def _choose(self) -> None:
        """Settle on the checked path with the shortest round trip; once chosen, it stays."""
        if self.chosen is None:
            checked = [path for path in self.paths if path.checked]
            self.chosen = min(checked, key=lambda path: path.rtt_us or 0)
        self._decide_at = None
