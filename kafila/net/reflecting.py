"""The wire format of reflection: how a member learns what its NAT does. Pure codecs.

A member ASKs the rendezvous to be answered from one or both of its ports, and two members KNOCK at
each other's door. Every parser raises ValueError, and nothing else, for bytes it does not
understand.
"""

import ipaddress
import struct
from dataclasses import dataclass
from typing import Final

from kafila.address import Address
from kafila.defaults import MAX_DATAGRAM
from kafila.net.datagram import REFLECTION

COOKIE_SIZE: Final = 16
TRANSACTION_SIZE: Final = 8
TOKEN_SIZE: Final = 8


@dataclass(frozen=True)
class Ask:
    """Asks for one answer from each of `ports`: 0 is the first port of the rendezvous, 1 its
    second. `size` is the datagram's: what arrived whole is what the path carries."""

    cookie: bytes
    """16 bytes from the control connection, good for the address that it was given to."""
    transaction: bytes
    """8 random bytes, returned by the answers."""
    ports: frozenset[int]
    size: int = 0

    def encode(self) -> bytes:
        """Return the datagram, never shorter than all its answers together."""
        bits = sum(1 << port for port in self.ports)
        head = _ASK.pack(REFLECTION, _KIND_ASK, self.cookie, self.transaction, bits)
        return head.ljust(max(self.size, ASK_SIZE), b"\0")


@dataclass(frozen=True)
class Answer:
    """What one port of the rendezvous saw an Ask come from, sent from one of its ports."""

    transaction: bytes
    port: int
    """0 or 1: which port sends this."""
    observed: Address

    def encode(self) -> bytes:
        host, port = self.observed
        address = ipaddress.ip_address(host)
        return _ANSWER.pack(
            REFLECTION,
            _KIND_ANSWER,
            self.transaction,
            self.port,
            address.version,
            address.packed.ljust(16, b"\0"),
            port,
        )


@dataclass(frozen=True)
class Knock:
    """From one member to the other's door; where it seems to come from is what is asked."""

    token: bytes
    """8 random bytes that the two have agreed on."""

    def encode(self) -> bytes:
        return _KNOCK.pack(REFLECTION, _KIND_KNOCK, self.token)


def decode(datagram: bytes) -> Ask | Answer | Knock:
    """Parse a reflection datagram."""
    if len(datagram) < 2 or datagram[0] != REFLECTION:
        raise ValueError("not a reflection datagram")
    match datagram[1]:
        case 1 if ASK_SIZE <= len(datagram) <= MAX_DATAGRAM:
            _, _, cookie, transaction, bits = _ASK.unpack_from(datagram)
            if not 1 <= bits <= 3:
                raise ValueError("an ask for no port, or for one that is not there")
            ports = frozenset(port for port in (0, 1) if bits >> port & 1)
            return Ask(cookie, transaction, ports, len(datagram))
        case 2 if len(datagram) == _ANSWER.size:
            _, _, transaction, port, version, packed, seen = _ANSWER.unpack(datagram)
            if port > 1 or version not in (4, 6):
                raise ValueError("an answer from no port, or about no address")
            host = ipaddress.ip_address(packed if version == 6 else packed[:4])
            return Answer(transaction, port, (str(host), seen))
        case 3 if len(datagram) == _KNOCK.size:
            return Knock(datagram[2:])
    raise ValueError("neither an ask, an answer nor a knock")


_ASK: Final = struct.Struct(f"!BB{COOKIE_SIZE}s{TRANSACTION_SIZE}sB")
_ANSWER: Final = struct.Struct(f"!BB{TRANSACTION_SIZE}sBB16sH")
_KNOCK: Final = struct.Struct(f"!BB{TOKEN_SIZE}s")
_KIND_ASK, _KIND_ANSWER, _KIND_KNOCK = 1, 2, 3

ASK_SIZE: Final = 2 * _ANSWER.size
"""Bytes of the shortest Ask: as many as the two answers it may get, so that no forged one gains."""
