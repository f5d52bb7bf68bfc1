"""Who takes part in what is fuzzed: identities, addresses, a grant of the relay."""

import tempfile
from pathlib import Path
from typing import Final

from kafila.address import Address
from kafila.net.identity import Identity
from kafila.net.quic import Engine
from kafila.net.relaying import Grant, relay_flow

with tempfile.TemporaryDirectory() as _folder:
    ANNA, BERT = (Identity.load_or_create(Path(_folder) / name) for name in ("anna", "bert"))
    ENGINE_OF_ANNA, ENGINE_OF_BERT = Engine(ANNA, 15.0), Engine(BERT, 15.0)

ADDRESS: Final[Address] = ("192.0.2.7", 4711)
SESSION: Final = b"s" * 32
DIGEST: Final = b"d" * 32
NONCE: Final = b"n" * 32
ALPN: Final = "fuzz"

FLOW: Final = relay_flow(SESSION, ANNA.key, BERT.key)
GRANT: Final = Grant(BERT.key, SESSION, FLOW, 0, 2_000_000_000, b"t" * 16)


def initial() -> bytes:
    """The first datagram of a QUIC client that wants to talk to bert."""
    quic = ENGINE_OF_ANNA.connect(
        ADDRESS, alpn=ALPN, certificate=BERT.certificate, size=1200, window=1 << 17, now=0.0
    )
    [[(datagram, _)]] = quic.datagrams(0.0)
    return datagram
