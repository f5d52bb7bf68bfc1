"""Session codes: `7-amber-falcon-reed` names a session and carries the secret that opens it.

The number is public; the words are a password: neither they nor anything computed from them alone
is ever sent or stored.
"""

import difflib
import functools
import secrets
from dataclasses import dataclass, field
from importlib.resources import files

from kafila.address import Address, parse_address
from kafila.errors import IdentityProblem, UsageProblem

WORDS = 3
"""Three of 2048 words are 33 bits; a host forgives only a handful of wrong guesses."""


@functools.cache
def vocabulary() -> tuple[str, ...]:
    """The 2048 words, sorted; any two differ in at least two letters."""
    return tuple((files("kafila.session") / "words.txt").read_text("ascii").split())


@dataclass(frozen=True)
class Code:
    number: int
    words: tuple[str, ...] = field(repr=False)

    @classmethod
    def new(cls, number: int) -> "Code":
        return cls(number, tuple(secrets.choice(vocabulary()) for _ in range(WORDS)))

    def __str__(self) -> str:
        return "-".join([str(self.number), *self.words])

    @property
    def password(self) -> bytes:
        return "-".join(self.words).encode()


def parse_code(text: str) -> Code:
    """Read a code as a person types it: any case, spaces or hyphens between its parts.

    Raises UsageProblem for what has not the shape of a code, and IdentityProblem for a word that
    is not in the list: it need not cost one of the host's few guesses.
    """
    parts = text.lower().replace("-", " ").split()
    if len(parts) != WORDS + 1 or not (parts[0].isascii() and parts[0].isdigit()):
        raise UsageProblem(
            f"{text.strip()[:60]!r} is not a session code; one looks like 7-amber-falcon-reed"
        )
    if not 0 < len(parts[0]) <= 6 or int(parts[0]) == 0:
        raise UsageProblem(f"{parts[0][:12]} is not a session's number; check the code")
    for word in parts[1:]:
        if word not in vocabulary():
            near = difflib.get_close_matches(word, vocabulary(), n=1)
            hint = f"did you mean {near[0]}?" if near else "check the code"
            raise IdentityProblem(f"no code contains the word {word[:20]!r}; {hint}")
    return Code(int(parts[0]), tuple(parts[1:]))


def parse_invitation(text: str) -> tuple[Code, Address | None]:
    """`CODE` or `CODE@host[:port]`: the code, and the rendezvous' address if it is there.

    Blanks and line ends around either are no part of it. Raises UsageProblem, IdentityProblem.
    """
    code, at, address = text.partition("@")
    return parse_code(code), parse_address(address) if at else None
