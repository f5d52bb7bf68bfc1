"""Whom a private rendezvous serves: the file that its keeper writes. Pure but for reading it."""

import hmac
import re
from dataclasses import dataclass, field
from pathlib import Path

from kafila.defaults import MAX_FILE_BYTES
from kafila.errors import BadFile
from kafila.rendezvous.messages import pass_proof

TOKEN_LETTERS = 16
"""Fewest in a token: a guess is one message, and the file is written once."""

_KEY = re.compile(r"[0-9a-f]{64}")
_TOKEN = re.compile(rf"token:\s*(\S{{{TOKEN_LETTERS},200}})")


@dataclass(frozen=True)
class Allowed:
    """Members' keys, and tokens that let in whoever has one."""

    keys: frozenset[bytes]
    tokens: tuple[str, ...] = field(repr=False)

    def proves(self, proof: str, rendezvous: bytes, client: bytes) -> bool:
        """Tell whether a client with this key has one of the tokens."""
        rights = [pass_proof(token, rendezvous, client) for token in self.tokens]
        return any(hmac.compare_digest(proof, right) for right in rights)


def read_allowed(path: Path) -> Allowed:
    """Read a file of keys, one a line, and lines `token: SECRET`; `#` begins a comment.

    Raises BadFile.
    """
    try:
        with path.open("rb") as file:
            raw = file.read(MAX_FILE_BYTES + 1)
        if len(raw) > MAX_FILE_BYTES:
            raise BadFile(f"{path} is too large to be a list of keys")
        lines = raw.decode("ascii").splitlines()
    except OSError as error:
        raise BadFile(f"cannot read {path}: {error.strerror}") from error
    except UnicodeError as error:
        raise BadFile(f"{path} is no list of keys: it holds other characters than ASCII") from error
    keys, tokens = set(), []
    for number, line in enumerate(lines, 1):
        words = line.partition("#")[0].strip()
        if _KEY.fullmatch(words):
            keys.add(bytes.fromhex(words))
        elif token := _TOKEN.fullmatch(words):
            tokens.append(token[1])
        elif words:
            raise BadFile(
                f"{path}, line {number} is neither a member's key (64 hex digits) nor "
                f"`token: SECRET` with at least {TOKEN_LETTERS} characters and no blank"
            )
    if not keys and not tokens:
        raise BadFile(f"{path} names nobody; without --allow a rendezvous serves everybody")
    return Allowed(frozenset(keys), tuple(tokens))
