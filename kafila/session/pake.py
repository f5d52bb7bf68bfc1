"""SPAKE2 between a member and a host, confirmed by both, and the sealed boxes it opens. Sans-IO.

SPAKE2 is RFC 9382's (the library's own group encoding); confirmation is explicit and the member
confirms first, so a guesser learns nothing that the host has not counted. The keys are drawn with
HKDF over the whole transcript: ids, both messages, session number, both Ed25519 keys, version.
The library's arithmetic is slow (7 ms a call) and not constant-time: callers run `Pake` and
`finish` in an executor and do not answer at once.
"""

import hmac
import struct
from dataclasses import dataclass
from typing import Literal

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.hashes import SHA256, Hash
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from spake2 import SPAKE2_A, SPAKE2_B, SPAKEError
from spake2.ed25519_basic import NotOnCurve

from kafila import PROTOCOL

MESSAGE = 33
"""Bytes of a key-exchange message: the side and a point."""


class PakeFailure(Exception):
    """The other side's bytes do not fit: another password, or somebody tampered."""


@dataclass(frozen=True)
class Terms:
    """What both sides must agree on; the words are the only secret among them."""

    number: int
    member: bytes
    host: bytes

    @property
    def ids(self) -> tuple[bytes, bytes]:
        return b"kafila member " + self.member, b"kafila host " + self.host


class Box:
    """One direction of a sealed conversation: ChaCha20-Poly1305, the counter is the nonce.

    Messages open only in the order they were sealed; a lost, repeated or altered one does not.
    """

    def __init__(self, key: bytes) -> None:
        self._cipher = ChaCha20Poly1305(key)
        self._count = 0

    def seal(self, plain: bytes) -> bytes:
        return self._cipher.encrypt(self._nonce(), plain, None)

    def open(self, sealed: bytes) -> bytes:
        try:
            return self._cipher.decrypt(self._nonce(), sealed, None)
        except InvalidTag:
            raise PakeFailure("a sealed message was altered, lost or repeated") from None

    def _nonce(self) -> bytes:
        self._count += 1
        return struct.pack(">IQ", 0, self._count)


@dataclass(frozen=True)
class Channel:
    """What a finished exchange leaves: proof for the other side, its expected proof, two boxes."""

    proof: bytes
    _expected: bytes
    outgoing: Box
    incoming: Box

    def confirm(self, proof: bytes) -> None:
        """Raises PakeFailure unless the other side derived the same keys."""
        if not hmac.compare_digest(proof, self._expected):
            raise PakeFailure("the words differ")


class Pake:
    """One side of one exchange; never used twice."""

    def __init__(self, side: Literal["member", "host"], password: bytes, terms: Terms) -> None:
        make = SPAKE2_A if side == "member" else SPAKE2_B
        self._side = side
        self._terms = terms
        self._spake = make(password, idA=terms.ids[0], idB=terms.ids[1])
        self.message: bytes = self._spake.start()

    def finish(self, theirs: bytes) -> Channel:
        """Take the other side's message; raises PakeFailure if it is not one.

        A wrong password is not noticed here but by `Channel.confirm`.
        """
        if len(theirs) != MESSAGE:
            raise PakeFailure("a key-exchange message has the wrong length")
        try:
            secret: bytes = self._spake.finish(theirs)
        except (SPAKEError, NotOnCurve, ValueError) as error:
            raise PakeFailure("a key-exchange message is not a point of the group") from error
        ours = (self.message, theirs)
        member, host = ours if self._side == "member" else ours[::-1]
        transcript = _transcript(self._terms, member, host)
        keys = HKDF(SHA256(), 128, None, b"kafila session\0" + transcript).derive(secret)
        as_member, as_host, to_host, to_member = (keys[i : i + 32] for i in range(0, 128, 32))
        proofs = (
            hmac.digest(as_member, transcript, "sha256"),
            hmac.digest(as_host, transcript, "sha256"),
        )
        if self._side == "member":
            return Channel(proofs[0], proofs[1], Box(to_host), Box(to_member))
        return Channel(proofs[1], proofs[0], Box(to_member), Box(to_host))


def _transcript(terms: Terms, member: bytes, host: bytes) -> bytes:
    """SHA-256 over every field, each with its length before it."""
    digest = Hash(SHA256())
    fields = (*terms.ids, member, host, terms.member, terms.host)
    for part in (*fields, str(terms.number).encode(), str(PROTOCOL).encode()):
        digest.update(struct.pack(">I", len(part)) + part)
    return digest.finalize()
