"""The wire format of Kafila's own datagrams and the demultiplexer's first-byte rule: pure codecs.

One UDP socket carries STUN, QUIC and these (RFC 9443 section 3). Own datagrams start with a byte
in 4..15, which neither STUN (0..3) nor QUIC (64..255) uses. Every parser raises ValueError, and
nothing else, for bytes it does not understand.
"""

import struct
from dataclasses import dataclass
from enum import Enum
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


CHECK: Final = 0x08
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
    CHECK: Family.CHECK,
    _CERTIFICATE: Family.CERTIFICATE,
    REFLECTION: Family.REFLECTION,
    RELAY: Family.RELAY,
    BINDING: Family.BINDING,
}


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


def binding_mapped(datagram: bytes) -> tuple[bytes, tuple[str, int]] | None:
    """Return the transaction of a Binding response and the address that the server saw; None: it
    is another message, or says no address."""
    message = _binding(datagram, stun.Class.RESPONSE)
    if message is None:
        return None
    attributes = message.attributes
    seen = attributes.get("XOR-MAPPED-ADDRESS") or attributes.get("MAPPED-ADDRESS")
    return (message.transaction_id, seen) if seen else None


def _binding(datagram: bytes, message_class: stun.Class) -> stun.Message | None:
    """Parse a STUN message; None unless it is a Binding message of that class."""
    try:
        message = stun.parse_message(datagram)
    except struct.error as error:  # what aioice lets through for a short attribute
        raise ValueError("a STUN attribute is too short") from error
    binding = message.message_method is stun.Method.BINDING
    return message if binding and message.message_class is message_class else None
