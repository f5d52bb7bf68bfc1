"""The wire format of path checks, which the two ends of an edge exchange: a pure codec.

A check is authenticated with the edge's key; nobody else, not even the rendezvous that introduced
the two, can make one. Knows neither paths nor time.
"""

import hmac
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Final

from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from kafila.address import Address
from kafila.defaults import MAX_CANDIDATES
from kafila.net.datagram import CHECK


class CheckType(IntEnum):
    """A PING asks whether datagrams arrive; a PONG says that this one did. A READY says that its
    sender has opened its NAT for a round of punching; a CALL announces a round, with addresses."""

    PING = 1
    PONG = 2
    READY = 3
    CALL = 4


@dataclass(frozen=True)
class Check:
    """A path check between the two ends of an edge.

    `from_client` names the sender's end, so that a reflected check is not taken for the peer's.
    """

    type: CheckType
    from_client: bool
    protocol: int
    edge: bytes
    """8 bytes that name the edge to its two ends."""
    transaction: bytes
    """8 bytes: random in a PING and returned by its PONG; the number of the round in the others."""
    plan: bytes
    """The first 8 bytes of the sender's plan digest."""
    size: int = 0
    """Bytes of a PING, which is padded to it, and of the PING that a PONG answers: what arrived
    whole is what the path can carry. In the others 1 if the peer's own has come, else 0."""
    candidates: tuple[Address, ...] = ()
    """Of a CALL: where the sender can be reached in this round, best first."""

    @property
    def round(self) -> int:
        """The number of the round that a READY or a CALL is about."""
        return int.from_bytes(self.transaction)

    @property
    def heard(self) -> bool:
        """Whether the sender of a READY or CALL has had the other end's: it asks for no answer."""
        return self.size > 0

    def encode(self, key: bytes) -> bytes:
        """Return the datagram, authenticated with the edge's `key`; a PING padded to `size`."""
        head = _HEAD.pack(
            CHECK,
            self.type,
            self.from_client,
            self.protocol,
            self.edge,
            self.transaction,
            self.plan,
            self.size,
        )
        body = _pack(self.candidates)
        datagram = head + _tag(key, head, body) + body
        return datagram.ljust(self.size, b"\0") if self.type is CheckType.PING else datagram

    @classmethod
    def decode(cls, datagram: bytes) -> "Check":
        """Parse a check without believing it: `authentic` comes next, once the edge is known."""
        if len(datagram) < CHECK_SIZE or datagram[0] != CHECK:
            raise ValueError("not a check")
        _, kind, end, protocol, edge, transaction, plan, size = _HEAD.unpack_from(datagram)
        if end > 1:
            raise ValueError("a check comes from one of two ends")
        type_ = CheckType(kind)
        candidates: tuple[Address, ...] = ()
        if type_ is CheckType.CALL:
            candidates = _unpack(datagram[CHECK_SIZE:])
        elif len(datagram) != (size if type_ is CheckType.PING else CHECK_SIZE):
            raise ValueError("the check's length is not the one it states")
        return cls(type_, bool(end), protocol, edge, transaction, plan, size, candidates)


_HEAD: Final = struct.Struct("!BBBH8s8s8sH")
_TAG_SIZE: Final = 16
CHECK_SIZE: Final = _HEAD.size + _TAG_SIZE
"""Bytes of a PONG or READY, and of a PING before its padding."""


def _tag(key: bytes, head: bytes, body: bytes) -> bytes:
    return hmac.digest(key, head + body, "sha256")[:_TAG_SIZE]


def authentic(datagram: bytes, key: bytes) -> bool:
    """Tell whether a decoded check carries the tag of the edge's `key`."""
    head = datagram[: _HEAD.size]
    body = datagram[CHECK_SIZE:] if datagram[1] == CheckType.CALL else b""
    return hmac.compare_digest(datagram[_HEAD.size : CHECK_SIZE], _tag(key, head, body))


@dataclass(frozen=True)
class Signer:
    """Makes the checks of one end of an edge, and tells those of the other."""

    key: bytes
    """32 bytes, known to the two ends only."""
    edge: bytes
    client: bool
    protocol: int
    plan: bytes
    """The first 8 bytes of this end's plan digest."""

    def sign(
        self,
        type_: CheckType,
        transaction: bytes,
        size: int = 0,
        candidates: Sequence[Address] = (),
    ) -> bytes:
        """Return the datagram of a check."""
        check = Check(
            type_,
            self.client,
            self.protocol,
            self.edge,
            transaction,
            self.plan,
            size,
            tuple(candidates),
        )
        return check.encode(self.key)

    def genuine(self, datagram: bytes, check: Check) -> bool:
        """Tell whether a decoded check is the other end's."""
        return check.from_client is not self.client and authentic(datagram, self.key)


def edge_key(secret: bytes, key: bytes, peer_key: bytes) -> tuple[bytes, bytes]:
    """Derive from the two members' X25519 secret (RFC 5869) the key that authenticates their
    checks (32 bytes) and the name of their edge (8 bytes). Both ends get the same."""
    info = b"kafila edge" + b"".join(sorted((key, peer_key)))
    derived = HKDF(algorithm=SHA256(), length=40, salt=None, info=info).derive(secret)
    return derived[:32], derived[32:]


# --- addresses: version 1 (4 or 6) | host 4 or 16 | port 2 ---------------------------------------

_HOSTS: Final = {4: (4, IPv4Address), 6: (16, IPv6Address)}


def _pack(candidates: Sequence[Address]) -> bytes:
    packed = b""
    for host, port in candidates:
        address = ip_address(host)
        packed += bytes([address.version]) + address.packed + port.to_bytes(2)
    return packed


def _unpack(body: bytes) -> tuple[Address, ...]:
    candidates: list[Address] = []
    while body:
        length, host = _HOSTS.get(body[0], (0, IPv4Address))
        if not length or len(body) < 3 + length or len(candidates) == MAX_CANDIDATES:
            raise ValueError("a call's addresses are garbled or too many")
        port = int.from_bytes(body[1 + length : 3 + length])
        candidates.append((str(host(body[1 : 1 + length])), port))
        body = body[3 + length :]
    return tuple(candidates)
