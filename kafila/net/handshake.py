"""The in-band proof that opens every connection: sans-IO, messages in, messages out.

TLS has told the client who the server is. Here the client says what it takes the connection for
(protocol version, session, plan) and who it is, and proves that by signing the server's nonce;
the server compares and answers. Each refusal has its own code, and each side words it itself, so
that no peer writes on this machine's terminal.

    client                                server
    HELLO   protocol key session digest ->
                                      <-  CHALLENGE nonce          (or REFUSE)
    PROOF   signature                 ->
                                      <-  ACCEPT                   (or REFUSE)

On an edge the client knows the server's nonce from its signed record: HELLO and PROOF go in one
flight. A proof for another nonce (the server was started anew, its record is old) is answered by
the CHALLENGE, once.

Why a nonce that lives as long as its process is enough. **Replay**: a proof is worth something
only to this server in this process, and nobody else ever holds it: it travels inside TLS to who
proved this server's key, and that key is among the words that are signed, so that a server cannot
pass it on. Whoever could replay it has the server's own key. A new process has a new nonce.
**Reflection**: the words name server and client in this order, and a plan gives every edge one
client, so that no proof comes back to its maker as another's. **A rendezvous that lies** about the
nonce (the record is signed; it may be an old one) only has a proof made that this server rejects.
"""

import os
import struct
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from kafila.net.identity import Identity, verify
from kafila.words import short


@dataclass(frozen=True)
class Terms:
    """What both ends must agree on. `session` and `digest` are 32 bytes, zero at a rendezvous."""

    protocol: int
    session: bytes = bytes(32)
    digest: bytes = bytes(32)

    def __post_init__(self) -> None:
        if len(self.session) != 32 or len(self.digest) != 32:
            raise ValueError("a session id and a plan digest have 32 bytes each")


class Reason(IntEnum):
    """Why a server refuses a client."""

    PROTOCOL = 1
    KEY = 2
    SESSION = 3
    PLAN = 4
    SIGNATURE = 5


@dataclass(frozen=True)
class Refusal:
    """A refusal and the refusing server's terms; `by_us`: this end is that server.

    `ours` and `theirs` are the two unequal values where there are two.
    """

    reason: Reason
    by_us: bool
    ours: bytes
    theirs: bytes

    def words(self, peer: str) -> str:
        """Say it in a sentence, `peer` being the other end's name here."""
        match self.reason:
            case Reason.PROTOCOL:
                theirs, ours = int.from_bytes(self.theirs), int.from_bytes(self.ours)
                return (
                    f"{peer} speaks protocol {theirs} and this Kafila protocol {ours}: "
                    "install the same version on both."
                )
            case Reason.SESSION:
                return (
                    f"{peer} belongs to session {short(self.theirs)}, this member to "
                    f"{short(self.ours)}: their plans are for different sets of members."
                )
            case Reason.PLAN:
                return (
                    f"{peer} serves another plan (digest {short(self.theirs)}, here "
                    f"{short(self.ours)}): copy the same plan file to both."
                )
            case Reason.KEY if self.by_us:
                return (
                    f"{peer} has key {short(self.theirs)}, but the plan names "
                    f"{short(self.ours)} for it: refused."
                )
            case Reason.KEY:
                return (
                    f"{peer} refuses this machine's key {short(self.ours)}: "
                    "its plan names another for this member."
                )
            case Reason.SIGNATURE if self.by_us:
                return f"{peer} could not prove that it holds key {short(self.theirs)}."
            case Reason.SIGNATURE:
                return f"{peer} does not believe that this machine holds its own key."


_HELLO: Final = struct.Struct("!BH32s32s32s")
_CHALLENGE: Final = struct.Struct("!B32s")
_PROOF: Final = struct.Struct("!B64s")
_ACCEPT: Final = struct.Struct("!B")
_REFUSE: Final = struct.Struct("!BBH32s32s")
_KINDS: Final = {_HELLO: 1, _CHALLENGE: 2, _PROOF: 3, _ACCEPT: 4, _REFUSE: 5}
LARGEST: Final = max(layout.size for layout in _KINDS)
"""Bytes of the largest message. HELLO and REFUSE keep their layout in every protocol version."""


NONCE_SIZE: Final = 32
"""Bytes of a server's nonce."""


def _is(message: bytes, layout: struct.Struct) -> bool:
    return len(message) == layout.size and message[0] == _KINDS[layout]


def _signed(nonce: bytes, server_key: bytes, client_key: bytes, terms: Terms) -> bytes:
    """The words a client signs: its key proves itself to this server, now, for these terms."""
    protocol = terms.protocol.to_bytes(2)
    parts = nonce, server_key, client_key, protocol, terms.session, terms.digest
    return b"kafila client proof" + b"".join(parts)  # all of fixed length: no two read alike


class ClientHandshake:
    """The client's side. Send `opening()`, then what `receive` returns, until accepted or refused.

    `nonce` is the server's where it is known beforehand (on an edge, from its record).
    """

    def __init__(
        self, identity: Identity, server_key: bytes, terms: Terms, nonce: bytes | None = None
    ) -> None:
        self.peer_key = server_key
        self.accepted = False
        self.refusal: Refusal | None = None
        self._identity = identity
        self._terms = terms
        self._nonce = nonce
        self._challenged = False
        if nonce is not None and len(nonce) != NONCE_SIZE:
            raise ValueError(f"a nonce has {NONCE_SIZE} bytes")

    def opening(self) -> list[bytes]:
        """Return the messages of the first flight."""
        terms = self._terms
        hello = _HELLO.pack(
            _KINDS[_HELLO], terms.protocol, self._identity.key, terms.session, terms.digest
        )
        return [hello] if self._nonce is None else [hello, self._proof(self._nonce)]

    def receive(self, message: bytes) -> bytes | None:
        """Take the server's next message; return the reply if there is one.

        Raises ValueError for a message that is not due.
        """
        ours, key = self._terms, self._identity.key
        if self.accepted or self.refusal is not None:
            raise ValueError("the handshake is over")
        if not self._challenged and _is(message, _CHALLENGE):
            self._challenged = True
            _, nonce = _CHALLENGE.unpack(message)
            return self._proof(nonce)
        if _is(message, _REFUSE):
            _, code, protocol, session, digest = _REFUSE.unpack(message)
            reason = Reason(code)
            self.refusal = Refusal(
                reason, False, *_values(reason, ours, key, protocol, session, digest)
            )
            return None
        if _is(message, _ACCEPT):
            self.accepted = True
            return None
        raise ValueError("not the handshake message that is due")

    def _proof(self, nonce: bytes) -> bytes:
        words = _signed(nonce, self.peer_key, self._identity.key, self._terms)
        return _PROOF.pack(_KINDS[_PROOF], self._identity.sign(words))


class ServerHandshake:
    """The server's side. Send what `receive` returns, until accepted or refused.

    `expected` is the client's key where it is known beforehand (on an edge, from the plan), `nonce`
    this process' own where clients know it (from this member's record).
    """

    def __init__(
        self,
        server_key: bytes,
        terms: Terms,
        expected: bytes | None,
        nonce: bytes | None = None,
    ) -> None:
        self.peer_key = b""
        """The client's key; proven once `accepted`."""
        self.accepted = False
        self.refusal: Refusal | None = None
        self._server_key = server_key
        self._terms = terms
        self._expected = expected
        self._nonce = os.urandom(NONCE_SIZE) if nonce is None else nonce
        self._challenges = nonce is None
        self._challenged = False

    def receive(self, message: bytes) -> bytes | None:
        """Take the client's next message; return the reply if there is one.

        Raises ValueError for a message that is not due.
        """
        if self.accepted or self.refusal is not None:
            raise ValueError("the handshake is over")
        if not self.peer_key and _is(message, _HELLO):
            _, protocol, self.peer_key, session, digest = _HELLO.unpack(message)
            reason = self._objection(protocol, session, digest)
            if reason is not None:
                return self._refuse(reason, protocol, session, digest)
            return self._challenge() if self._challenges else None
        if self.peer_key and _is(message, _PROOF):
            _, signature = _PROOF.unpack(message)
            words = _signed(self._nonce, self._server_key, self.peer_key, self._terms)
            if not verify(self.peer_key, signature, words):
                if not self._challenged:
                    return self._challenge()
                return self._refuse(Reason.SIGNATURE, 0, b"", b"")
            self.accepted = True
            return _ACCEPT.pack(_KINDS[_ACCEPT])
        raise ValueError("not the handshake message that is due")

    def _challenge(self) -> bytes:
        self._challenged = True
        return _CHALLENGE.pack(_KINDS[_CHALLENGE], self._nonce)

    def _objection(self, protocol: int, session: bytes, digest: bytes) -> Reason | None:
        if protocol != self._terms.protocol:
            return Reason.PROTOCOL
        if self._expected is not None and self.peer_key != self._expected:
            return Reason.KEY
        if session != self._terms.session:
            return Reason.SESSION
        if digest != self._terms.digest:
            return Reason.PLAN
        return None

    def _refuse(self, reason: Reason, protocol: int, session: bytes, digest: bytes) -> bytes:
        ours = self._terms
        if reason in (Reason.KEY, Reason.SIGNATURE):
            values = (self._expected or b"", self.peer_key)
        else:
            values = _values(reason, ours, b"", protocol, session, digest)
        self.refusal = Refusal(reason, True, *values)
        return _REFUSE.pack(_KINDS[_REFUSE], reason, ours.protocol, ours.session, ours.digest)


def _values(
    reason: Reason, ours: Terms, key: bytes, protocol: int, session: bytes, digest: bytes
) -> tuple[bytes, bytes]:
    """Return the two values that a refusal is about, ours and theirs."""
    match reason:
        case Reason.PROTOCOL:
            return ours.protocol.to_bytes(2), protocol.to_bytes(2)
        case Reason.SESSION:
            return ours.session, session
        case Reason.PLAN:
            return ours.digest, digest
        case Reason.KEY | Reason.SIGNATURE:
            return key, b""
