"""What a member and a host mail each other through the rendezvous, in the clear and sealed.

In the clear: the key exchange, its confirmation, and refusals before it. Everything else travels
as `Sealed`, whose plain text is one of the sealed messages below. Knows no state.
"""

import base64
import ipaddress
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, StringConstraints, TypeAdapter

from kafila.address import parse_address
from kafila.defaults import DOORS, MAIL_LIMIT, MAX_MEMBERS, TEXT_LIMIT
from kafila.errors import UsageProblem
from kafila.manifest import Manifest
from kafila.messages import Base64, Message, Text, decode_strictly, presentable
from kafila.net.reflecting import TOKEN_SIZE
from kafila.probe.report import Report
from kafila.schema import Name
from kafila.session.pake import MESSAGE, Box

Refusal = Literal["code", "void", "full", "name", "late", "malformed", "version"]

Point = Annotated[str, StringConstraints(pattern=f"^[0-9a-f]{{{2 * MESSAGE}}}$")]
Proof = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]


def _place(text: str) -> str:
    """A numeric address with its port."""
    try:
        ipaddress.ip_address(parse_address(text)[0])
    except UsageProblem as error:
        raise ValueError("not an address") from error
    return text


Place = Annotated[str, StringConstraints(max_length=TEXT_LIMIT), AfterValidator(_place)]


class Exchange(Message):
    """One side's SPAKE2 message."""

    kind: Literal["exchange"] = "exchange"
    message: Point


class Confirm(Message):
    """Proof of having derived the same keys; the member's comes first."""

    kind: Literal["confirm"] = "confirm"
    proof: Proof


class Refused(Message):
    """The host will not have this member. Believed in the clear only before confirmation."""

    kind: Literal["refused"] = "refused"
    why: Refusal
    text: Text


class Sealed(Message):
    kind: Literal["sealed"] = "sealed"
    box: Annotated[Base64, StringConstraints(max_length=MAIL_LIMIT)]


class Hello(Message):
    """Sealed, from the member: who it is, so that a name taken is refused before it measures."""

    kind: Literal["hello"] = "hello"
    name: Name


class Welcome(Message):
    """Sealed, from the host: what to measure."""

    kind: Literal["welcome"] = "welcome"
    host: Name
    members: Annotated[int, Field(ge=2, le=MAX_MEMBERS)]
    manifest: Annotated[Manifest, AfterValidator(presentable)] | None


class Measured(Message):
    """Sealed, from the member."""

    kind: Literal["measured"] = "measured"
    report: Annotated[Report, AfterValidator(presentable)]


class Stand(Message):
    """Sealed, from either: help to classify my NAT as a stranger does; where do you stand?"""

    kind: Literal["stand"] = "stand"


class Standing(Message):
    """Sealed, the answer: as the rendezvous sees a socket that knocks next; None: not at all."""

    kind: Literal["standing"] = "standing"
    at: Place | None


class Knock(Message):
    """Sealed: send knocks with this token to these doors now."""

    kind: Literal["knock"] = "knock"
    token: Annotated[str, StringConstraints(pattern=f"^[0-9a-f]{{{2 * TOKEN_SIZE}}}$")]
    doors: Annotated[tuple[Place, ...], Field(max_length=DOORS)]


class Knocked(Message):
    """Sealed, the answer: where knocks with that token came from."""

    kind: Literal["knocked"] = "knocked"
    seen: Annotated[tuple[Place, ...], Field(max_length=DOORS)]


class Received(Message):
    """Sealed, from the host: the report is kept; so many of all are in."""

    kind: Literal["received"] = "received"
    reports: Annotated[int, Field(ge=1, le=MAX_MEMBERS)]
    members: Annotated[int, Field(ge=2, le=MAX_MEMBERS)]


Clear = Exchange | Confirm | Refused | Sealed
Helping = Stand | Standing | Knock | Knocked
"""What two members say to each other while one helps the other, see kafila.session.helping."""

Plain = Hello | Welcome | Measured | Received | Refused | Helping

_clear: TypeAdapter[Clear] = TypeAdapter(Annotated[Clear, Field(discriminator="kind")])
_plain: TypeAdapter[Plain] = TypeAdapter(Annotated[Plain, Field(discriminator="kind")])


def decode_clear(body: str) -> Clear:
    """The body of a mail. Raises Malformed or OtherVersion."""
    return decode_strictly(_clear, body, MAIL_LIMIT)


def decode_plain(data: bytes) -> Plain:
    """What a sealed message holds. Raises Malformed or OtherVersion."""
    return decode_strictly(_plain, data, MAIL_LIMIT)


def body(message: Clear) -> str:
    """The mail that carries `message`."""
    return message.model_dump_json()


def exchange(message: bytes) -> str:
    return body(Exchange(message=message.hex()))


def confirm(proof: bytes) -> str:
    return body(Confirm(proof=proof.hex()))


def seal(box: Box, message: Plain) -> str:
    """The mail that carries `message` sealed with `box`."""
    return body(Sealed(box=base64.b64encode(box.seal(message.encode())).decode("ascii")))


def unseal(box: Box, sealed: Sealed) -> Plain:
    """Raises PakeFailure, Malformed or OtherVersion."""
    return decode_plain(box.open(base64.b64decode(sealed.box)))
