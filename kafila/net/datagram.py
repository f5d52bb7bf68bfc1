"""The wire format of Kafila's own datagrams and the demultiplexer's first-byte rule: pure codecs.

One UDP socket carries STUN, QUIC and these (RFC 9443 section 3). Own datagrams start with a byte
in 4..15, which neither STUN (0..3) nor QUIC (64..255) uses. Every parser raises ValueError, and
nothing else, for bytes it does not understand.
"""

import hmac
import struct
from dataclasses import dataclass
from enum import Enum, IntEnum
from typing import Final

from aioice import stun

from kafila.defaults import CERTIFICATE_QUERY_SIZE, MAX_CERTIFICATE


class Family(Enum):
    """What a datagram is, by its first byte."""

    STUN = "stun"
    CHECK = "check"
    CERTIFICATE = "certificate"
    REFLECTION = "reflection"
    RELAY = "relay"
    BINDING = "binding"
    QUIC = "quic"


_CHECK: Final = 0x08
_CERTIFICATE: Final = 0x09
REFLECTION: Final = 0x0A
RELAY: Final = 0x0B
BINDING: Final = 0x0C


def family(datagram: bytes) -> Family | None:
    """Tell who reads a datagram; None: nobody."""
    if not datagram:
        return None
    first = datagram[0]
    if first >= 64:
        return Family.QUIC
    if first <= 3:
        return Family.STUN
    return _FAMILIES.get(first)


_FAMILIES: Final = {
    _CHECK: Family.CHECK,
    _CERTIFICATE: Family.CERTIFICATE,
    REFLECTION: Family.REFLECTION,
    RELAY: Family.RELAY,
    BINDING: Family.BINDING,
}


# --- path checks -----------------------------------------------------------------------------


class CheckType(IntEnum):
    """A PING asks whether datagrams arrive; a PONG says that this one did."""

    PING = 1
    PONG = 2


@dataclass(frozen=True)
class Check:
    """A path check between the two ends of an edge.

    `from_client` names the sender's end, so that a reflected PING is not taken for the peer's.
    `size` is the length in bytes of the PING (which is padded to it), and of the PING that a PONG
    answers: what arrived whole is what the path can carry.
    """

    type: CheckType
    from_client: bool
    protocol: int
    edge: bytes
    """8 bytes that name the edge to its two ends."""
    transaction: bytes
    """8 random bytes of the PING, returned by its PONG."""
    plan: bytes
    """The first 8 bytes of the sender's plan digest."""
    size: int

    def encode(self, key: bytes) -> bytes:
        """Return the datagram, authenticated with the edge's `key`; a PING padded to `size`."""
        head = _CHECK_HEAD.pack(
            _CHECK,
            self.type,
            self.from_client,
            self.protocol,
            self.edge,
            self.transaction,
            self.plan,
            self.size,
        )
        signed = head + _tag(key, head)
        return signed.ljust(self.size, b"\0") if self.type is CheckType.PING else signed

    @classmethod
    def decode(cls, datagram: bytes) -> "Check":
        """Parse a check without believing it: `authentic` comes next, once the edge is known."""
        if len(datagram) < CHECK_SIZE or datagram[0] != _CHECK:
            raise ValueError("not a check")
        _, kind, end, protocol, edge, transaction, plan, size = _CHECK_HEAD.unpack_from(datagram)
        if end > 1:
            raise ValueError("a check comes from one of two ends")
        check = cls(CheckType(kind), bool(end), protocol, edge, transaction, plan, size)
        if len(datagram) != (size if check.type is CheckType.PING else CHECK_SIZE):
            raise ValueError("the check's length is not the one it states")
        return check


_CHECK_HEAD: Final = struct.Struct("!BBBH8s8s8sH")
_TAG_SIZE: Final = 16
CHECK_SIZE: Final = _CHECK_HEAD.size + _TAG_SIZE
"""Bytes of a PONG, and of a PING before its padding."""


def _tag(key: bytes, head: bytes) -> bytes:
    return hmac.digest(key, head, "sha256")[:_TAG_SIZE]


def authentic(datagram: bytes, key: bytes) -> bool:
    """Tell whether a decoded check carries the tag of the edge's `key`."""
    head = datagram[: _CHECK_HEAD.size]
    return hmac.compare_digest(datagram[_CHECK_HEAD.size : CHECK_SIZE], _tag(key, head))


# --- certificates ----------------------------------------------------------------------------


@dataclass(frozen=True)
class CertificateQuery:
    """Asks a listening node for its certificate. Padded: an answer is never larger (no gain for
    whoever forges the source address)."""

    transaction: bytes
    """8 random bytes, returned by the answer."""

    def encode(self) -> bytes:
        head = _CERTIFICATE_HEAD.pack(_CERTIFICATE, _QUERY, self.transaction)
        return head.ljust(CERTIFICATE_QUERY_SIZE, b"\0")


@dataclass(frozen=True)
class CertificateAnswer:
    """The certificate of a listening node: DER, not yet believed."""

    transaction: bytes
    certificate: bytes

    def encode(self) -> bytes:
        head = _CERTIFICATE_HEAD.pack(_CERTIFICATE, _ANSWER, self.transaction)
        return head + self.certificate


def decode_certificate(datagram: bytes) -> CertificateQuery | CertificateAnswer:
    """Parse a certificate query (of full length only) or answer."""
    if len(datagram) < _CERTIFICATE_HEAD.size:
        raise ValueError("a certificate datagram is too short")
    _, kind, transaction = _CERTIFICATE_HEAD.unpack_from(datagram)
    if kind == _QUERY and len(datagram) == CERTIFICATE_QUERY_SIZE:
        return CertificateQuery(transaction)
    certificate = datagram[_CERTIFICATE_HEAD.size :]
    if kind == _ANSWER and 0 < len(certificate) <= MAX_CERTIFICATE:
        return CertificateAnswer(transaction, certificate)
    raise ValueError("neither a certificate query nor an answer")


_CERTIFICATE_HEAD: Final = struct.Struct("!BB8s")
_QUERY: Final = 1
_ANSWER: Final = 2


# --- STUN (RFC 8489) -------------------------------------------------------------------------

_SOFTWARE: Final = "kafila".ljust(20)
"""An attribute every server ignores; it pads a request to the length of an IPv6 answer."""


def binding_request(transaction: bytes) -> bytes:
    """Return a Binding request; `transaction` is 12 random bytes."""
    return bytes(
        stun.Message(stun.Method.BINDING, stun.Class.REQUEST, transaction, {"SOFTWARE": _SOFTWARE})
    )


def binding_answer(datagram: bytes, source: tuple[str, int]) -> bytes | None:
    """Return the answer to a Binding request from `source`; None: it gets none.

    A request shorter than its answer gets none, so the server never amplifies.
    """
    message = _binding(datagram, stun.Class.REQUEST)
    if message is None:
        return None
    answer = bytes(
        stun.Message(
            stun.Method.BINDING,
            stun.Class.RESPONSE,
            message.transaction_id,
            {"XOR-MAPPED-ADDRESS": source},
        )
    )
    return answer if len(answer) <= len(datagram) else None


def binding_transaction(datagram: bytes) -> bytes | None:
    """Return the transaction a Binding response belongs to; None: it is another message."""
    message = _binding(datagram, stun.Class.RESPONSE)
    return message.transaction_id if message else None


def _binding(datagram: bytes, message_class: stun.Class) -> stun.Message | None:
    """Parse a STUN message; None unless it is a Binding message of that class."""
    try:
        message = stun.parse_message(datagram)
    except struct.error as error:  # what aioice lets through for a short attribute
        raise ValueError("a STUN attribute is too short") from error
    binding = message.message_method is stun.Method.BINDING
    return message if binding and message.message_class is message_class else None
