"""The self-signed certificate of an Ed25519 key; knows nothing of files, sockets or QUIC.

TLS needs a certificate; Kafila needs only the key in it. The certificate is therefore a pure
function of the key (Ed25519 signs deterministically, every other field is constant), and is valid
so widely that no clock is wrong enough to refuse it.
"""

from datetime import datetime
from hashlib import sha256
from typing import Final

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from cryptography.x509.oid import NameOID

from kafila.defaults import MAX_CERTIFICATE

SERVER_NAME: Final = "kafila"
"""The one name in every certificate: the key is the identity, the name says nothing."""


def self_signed(key: Ed25519PrivateKey) -> bytes:
    """Return the DER certificate of `key` (about 240 bytes), the same bytes every time."""
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, SERVER_NAME)])
    public = key.public_key()
    serial = int.from_bytes(
        sha256(public.public_bytes(Encoding.Raw, PublicFormat.Raw)).digest()[:8]
    )
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(public)
        .serial_number(serial | 1)  # RFC 5280 section 4.1.2.2: positive
        .not_valid_before(datetime(1970, 1, 1))  # noqa: DTZ001 (the builder takes naive UTC)
        .not_valid_after(datetime(2100, 1, 1))  # noqa: DTZ001
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(SERVER_NAME)]), critical=False)
        .sign(key, None)
    )
    return certificate.public_bytes(Encoding.DER)


def key_of(certificate: bytes) -> bytes:
    """Return the raw Ed25519 key (32 bytes) in a DER certificate.

    Raises ValueError for anything else: too long, not DER, another kind of key.
    """
    if len(certificate) > MAX_CERTIFICATE:
        raise ValueError(f"a certificate of {len(certificate)} bytes is too long")
    try:
        public = x509.load_der_x509_certificate(certificate).public_key()
    except (x509.InvalidVersion, UnsupportedAlgorithm) as error:
        raise ValueError(f"not a certificate of ours: {error}") from error
    if not isinstance(public, Ed25519PublicKey):
        raise ValueError("the certificate's key is not an Ed25519 key")
    return public.public_bytes(Encoding.Raw, PublicFormat.Raw)


def pem(certificate: bytes) -> bytes:
    """Return a DER certificate as PEM, the form trust anchors are loaded in."""
    return x509.load_der_x509_certificate(certificate).public_bytes(Encoding.PEM)
