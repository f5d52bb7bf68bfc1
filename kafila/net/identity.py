"""Who this machine is: an Ed25519 key that signs and an X25519 key that agrees on secrets.

Both are made at first use and kept as files of mode 0600; nothing here knows of sockets.
"""

import os
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
)

from kafila.errors import IdentityProblem
from kafila.net.certificate import pem, self_signed


@dataclass(frozen=True)
class Identity:
    """The keys of one member, host or rendezvous. `key` and `exchange_key` are 32 raw bytes."""

    key: bytes
    exchange_key: bytes
    certificate: bytes
    """DER, self-signed by `key`."""
    key_file: Path
    certificate_file: Path
    """PEM, as the QUIC engine loads them."""
    _signer: Ed25519PrivateKey = field(repr=False)
    _agreer: X25519PrivateKey = field(repr=False)

    @classmethod
    def load_or_create(cls, home: Path) -> "Identity":
        """Load the identity kept in `home`, or make one there.

        Raises IdentityProblem if a file cannot be read, is missing beside the other, is not a key
        of its kind, or is open to other users.
        """
        signing, agreeing = home / "identity.pem", home / "exchange.pem"
        try:
            home.mkdir(mode=0o700, parents=True, exist_ok=True)
            if signing.exists() and not agreeing.exists():  # in this order they are never made
                raise IdentityProblem(
                    f"{home} has identity.pem but no exchange.pem: restore it, or remove "
                    "identity.pem too to become a new member (plans then must name the new key)."
                )
            agreer = _load(agreeing, X25519PrivateKey.generate)
            signer = _load(signing, Ed25519PrivateKey.generate)
            if not isinstance(signer, Ed25519PrivateKey) or not isinstance(
                agreer, X25519PrivateKey
            ):
                raise IdentityProblem(
                    f"{home} does not hold the keys Kafila made: restore its identity.pem and "
                    "exchange.pem, or remove them to become a new member (plans then must name "
                    "the new key)."
                )
            certificate = self_signed(signer)
            certificate_file = home / "certificate.pem"
            if not certificate_file.exists() or certificate_file.read_bytes() != pem(certificate):
                _write(certificate_file, pem(certificate), replace=True)
        except OSError as error:
            raise IdentityProblem(
                f"cannot use {home} for this machine's keys: {error.strerror}. "
                "Choose another folder with --home."
            ) from error
        return cls(
            key=signer.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw),
            exchange_key=agreer.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw),
            certificate=certificate,
            key_file=signing,
            certificate_file=certificate_file,
            _signer=signer,
            _agreer=agreer,
        )

    def sign(self, message: bytes) -> bytes:
        """Return the Ed25519 signature (64 bytes) of `message`."""
        return self._signer.sign(message)

    def shared(self, peer_exchange_key: bytes) -> bytes:
        """Return the X25519 secret (32 bytes) with the peer (RFC 7748 section 6.1).

        Raises ValueError if `peer_exchange_key` is not a usable X25519 key.
        """
        return self._agreer.exchange(X25519PublicKey.from_public_bytes(peer_exchange_key))


def verify(key: bytes, signature: bytes, message: bytes) -> bool:
    """Tell whether `signature` over `message` was made by the Ed25519 `key`."""
    try:
        Ed25519PublicKey.from_public_bytes(key).verify(signature, message)
    except (InvalidSignature, ValueError):
        return False
    return True


def _load(path: Path, generate: Callable[[], Ed25519PrivateKey | X25519PrivateKey]) -> object:
    """Load the private key in `path`, making it first if there is none; None: it is no key."""
    if not path.exists():
        fresh = generate()
        _write(path, fresh.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    if os.name == "posix" and path.stat().st_mode & 0o077:
        raise IdentityProblem(f"{path} can be read by other users: run `chmod 600 {path}`.")
    try:
        return load_pem_private_key(path.read_bytes(), password=None)
    except TypeError:
        raise IdentityProblem(
            f"{path} is protected by a password, which Kafila does not ask for: restore the file "
            "that Kafila made, or write it back without one (`openssl pkey`)."
        ) from None
    except (ValueError, UnsupportedAlgorithm):
        return None


def _write(path: Path, content: bytes, *, replace: bool = False) -> None:
    """Write a file of mode 0600 in one step; without `replace` an existing file wins the race."""
    descriptor, temporary = tempfile.mkstemp(dir=path.parent)  # mode 0600 from the start
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
        if replace:
            Path(temporary).replace(path)
        else:
            os.link(temporary, path)
    except FileExistsError:
        pass  # another process of this member was first: its key is the member's key
    finally:
        Path(temporary).unlink(missing_ok=True)
