"""Relay frames and the handshake that binds an end of a flow to its address: pure codecs.

A flow joins the two members of an edge at the relay. Must not know who relays, nor what a frame
holds. All messages of the handshake have one length, so that no answer is larger than its
question; every parser raises ValueError only.
"""

import hashlib
import hmac
import ipaddress
import struct
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from kafila.address import Address
from kafila.net.datagram import BINDING, RELAY

FLOW_SIZE: Final = 8
FRAME_HEAD: Final = 1 + FLOW_SIZE
"""Bytes that a relay frame is longer than the datagram in it."""

BINDING_SIZE: Final = 128
"""Bytes of every message of the handshake."""


@dataclass(frozen=True)
class Grant:
    """The rendezvous' word that this member may use one end of a flow. The token stays secret:
    it is proven with `answer`, never sent to the relay."""

    key: bytes
    """The member at the other end."""
    session: bytes
    flow: bytes
    side: int
    expires: int
    """Unix time in seconds, of the rendezvous' clock."""
    token: bytes
    """16 bytes."""


def relay_flow(session: bytes, one: bytes, other: bytes) -> bytes:
    """Return the flow (8 bytes) of two members, given by their keys, in a session."""
    return hashlib.sha256(b"kafila relay" + session + min(one, other) + max(one, other)).digest()[
        :FLOW_SIZE
    ]


def relay_side(own: bytes, other: bytes) -> int:
    """Return which end of their flow is that of key `own`: 0 for the lower key."""
    return int(own > other)


def relay_token(secret: bytes, session: bytes, flow: bytes, side: int, expires: int) -> bytes:
    """Return the token of a grant; `secret` is known to the relay alone."""
    words = b"relay" + session + flow + struct.pack("!BI", side, expires)
    return hmac.digest(secret, words, "sha256")[:16]


def frame_head(flow: bytes) -> bytes:
    """Return what goes before each datagram of a flow."""
    return bytes([RELAY]) + flow


def named_flow(datagram: bytes) -> bytes:
    """Return the flow that a relay frame or a message of the handshake names."""
    if len(datagram) <= FRAME_HEAD or datagram[0] not in (RELAY, BINDING):
        raise ValueError("it names no flow")
    return datagram[1:FRAME_HEAD]


# --- the handshake ---------------------------------------------------------------------------


class State(IntEnum):
    """What the relay says of a flow to an end whose address is proven."""

    ALONE = 1
    """This end is bound, the other is not."""
    BOTH = 2
    SPENT = 3
    """Bound, but the session has used up the bytes that it may relay; nothing is forwarded."""
    REFUSED = 4
    """Not bound: the grant has expired, or another rendezvous gave it."""
    BUSY = 5
    """Not bound: the relay has no room for one more flow."""


class _Kind(IntEnum):
    BIND = 1
    CHALLENGE = 2
    ANSWER = 3
    BOUND = 4


_HEAD: Final = struct.Struct("!B8sBB8s")
_ANSWER: Final = struct.Struct("!32sI16s16s")
_BOUND: Final = struct.Struct("!8sB16sH")
_COOKIE: Final = struct.Struct("!16s")


@dataclass(frozen=True)
class Bind:
    """To the relay: which cookie has this address?"""

    flow: bytes
    side: int
    transaction: bytes
    """8 random bytes, returned by the answer."""

    def encode(self) -> bytes:
        return _pad(_head(_Kind.BIND, self))


@dataclass(frozen=True)
class Challenge:
    """From the relay: the cookie of the address that asked, which is nothing to remember."""

    flow: bytes
    side: int
    transaction: bytes
    cookie: bytes

    def encode(self) -> bytes:
        return _pad(_head(_Kind.CHALLENGE, self) + _COOKIE.pack(self.cookie))


@dataclass(frozen=True)
class Answer:
    """To the relay: bind this end to the address of the cookie, or keep it bound.

    `proof` shows that the sender has the token of its grant, to nobody who reads along.
    """

    flow: bytes
    side: int
    transaction: bytes
    session: bytes
    expires: int
    cookie: bytes
    proof: bytes

    def encode(self) -> bytes:
        fields = _ANSWER.pack(self.session, self.expires, self.cookie, self.proof)
        return _pad(_head(_Kind.ANSWER, self) + fields)


@dataclass(frozen=True)
class Bound:
    """From the relay: how it stands with the flow."""

    flow: bytes
    side: int
    transaction: bytes
    boot: bytes
    """8 bytes, new in each process of the relay."""
    state: State
    observed: Address | None
    """Where the relay sees this end; None: through a tunnel."""

    def encode(self) -> bytes:
        host, port = self.observed or ("::", 0)
        fields = _BOUND.pack(self.boot, self.state, _inverted(_packed(host)), port ^ 0xFFFF)
        return _pad(_head(_Kind.BOUND, self) + fields)


def answer(grant: Grant, transaction: bytes, cookie: bytes) -> Answer:
    """Return the answer to a challenge."""
    proof = binding_proof(grant.token, transaction, cookie)
    return Answer(grant.flow, grant.side, transaction, grant.session, grant.expires, cookie, proof)


def binding_proof(token: bytes, transaction: bytes, cookie: bytes) -> bytes:
    """Return what only a holder of the token can say for this transaction and address."""
    return hmac.digest(token, b"bind" + transaction + cookie, "sha256")[:16]


def decode_binding(datagram: bytes) -> Bind | Challenge | Answer | Bound:
    """Parse a message of the handshake; nothing in it is believed yet."""
    if len(datagram) != BINDING_SIZE or datagram[0] != BINDING:
        raise ValueError("not a binding message")
    _, flow, number, side, transaction = _HEAD.unpack_from(datagram)
    if side > 1:
        raise ValueError("a flow has two ends")
    match _Kind(number):
        case _Kind.BIND:
            return Bind(flow, side, transaction)
        case _Kind.CHALLENGE:
            (cookie,) = _COOKIE.unpack_from(datagram, _HEAD.size)
            return Challenge(flow, side, transaction, cookie)
        case _Kind.ANSWER:
            return Answer(flow, side, transaction, *_ANSWER.unpack_from(datagram, _HEAD.size))
        case _Kind.BOUND:
            boot, state, packed, port = _BOUND.unpack_from(datagram, _HEAD.size)
            at = _unpacked(_inverted(packed)), port ^ 0xFFFF
            observed = at if at[1] else None
            return Bound(flow, side, transaction, boot, State(state), observed)


def _head(kind: _Kind, message: Bind | Challenge | Answer | Bound) -> bytes:
    return _HEAD.pack(BINDING, message.flow, kind, message.side, message.transaction)


def _pad(message: bytes) -> bytes:
    return message.ljust(BINDING_SIZE, b"\0")


def _packed(host: str) -> bytes:
    """16 bytes of an address; an IPv4 one as IPv6 writes it (RFC 4291 section 2.5.5.2)."""
    address = ipaddress.ip_address(host.partition("%")[0])
    mapped = b"" if address.version == 6 else bytes(10) + b"\xff\xff"
    return mapped + address.packed


def _unpacked(packed: bytes) -> str:
    address = ipaddress.IPv6Address(packed)
    return str(address.ipv4_mapped or address)


def _inverted(octets: bytes) -> bytes:
    """Some NATs rewrite what looks like an address of theirs (as RFC 8489 section 14.2 says)."""
    return bytes(octet ^ 0xFF for octet in octets)
