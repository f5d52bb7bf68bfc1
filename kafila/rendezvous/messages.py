"""What clients and a rendezvous say to each other: JSON, one object a message, strict and bounded.

Must not know connections, nor what the mail and the records it carries mean.
"""

from typing import Annotated, Final, Literal, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    StringConstraints,
    TypeAdapter,
    ValidationError,
)

from kafila import PROTOCOL
from kafila.defaults import MAIL_LIMIT, MAX_MEMBERS, MESSAGE_LIMIT, RECORD_LIMIT, TEXT_LIMIT

T = TypeVar("T")

ALPN: Final = "kafila-rendezvous"
"""What the QUIC connection of a client and a rendezvous is for."""

CONTROL: Final = 0
"""The channel of a connection on which all of this travels."""


class Malformed(ValueError):
    """The bytes are not one of the expected messages."""


class OtherVersion(ValueError):
    """The sender speaks another protocol version; `.theirs` is its number."""

    def __init__(self, theirs: int) -> None:
        super().__init__(f"protocol {theirs} instead of {PROTOCOL}")
        self.theirs = theirs


def _printable(text: str) -> str:
    if not text.isprintable():
        raise ValueError("not printable")
    return text


def _clean(text: str) -> str:
    """What a stranger wrote, fit to be part of a text for a person."""
    return "".join(letter if letter.isprintable() else "?" for letter in text)[: TEXT_LIMIT // 2]


Key = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
Text = Annotated[str, StringConstraints(max_length=TEXT_LIMIT), AfterValidator(_printable)]
"""Words for a person; printable only, so that nobody writes control codes to a terminal."""

Number = Annotated[int, Field(ge=1, le=10**6)]
Attempt = Annotated[int, Field(ge=1, le=2**53)]
Body = Annotated[str, StringConstraints(max_length=MAIL_LIMIT)]
Record = Annotated[str, StringConstraints(max_length=RECORD_LIMIT)]
Why = Literal["version", "malformed", "copied", "busy", "unknown", "ended", "members"]


class Message(BaseModel):
    """Base: the version comes first in every message, unknown fields are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    v: Annotated[int, Field(ge=PROTOCOL, le=PROTOCOL)] = PROTOCOL

    def encode(self) -> bytes:
        return self.model_dump_json().encode()


# --- from a client ---------------------------------------------------------------------------


class Open(Message):
    """Host a session for `members` members, the host among them."""

    kind: Literal["open"] = "open"
    members: Annotated[int, Field(ge=2, le=MAX_MEMBERS)]


class Join(Message):
    """Join the session with this number."""

    kind: Literal["join"] = "join"
    number: Number


class Mail(Message):
    """Opaque text between a host and one joiner; `attempt` names the joiner in both directions."""

    kind: Literal["mail"] = "mail"
    attempt: Attempt
    body: Body


class Drop(Message):
    """The host will not hear this joiner any more."""

    kind: Literal["drop"] = "drop"
    attempt: Attempt


class End(Message):
    """The host ends its session; late joiners are told why."""

    kind: Literal["end"] = "end"
    text: Text


class Enter(Message):
    """Be introduced to the other members of a plan. Repeated, it replaces the record."""

    kind: Literal["enter"] = "enter"
    session: Key
    members: Annotated[tuple[Key, ...], Field(min_length=1, max_length=MAX_MEMBERS)]
    record: Record


class Pong(Message):
    """Answer to a ping: this connection's process is alive."""

    kind: Literal["pong"] = "pong"


# --- from the rendezvous ---------------------------------------------------------------------


class Opened(Message):
    kind: Literal["opened"] = "opened"
    number: Number
    expires_s: int


class Joined(Message):
    """The joiner's place at the mailbox, and whose session it is."""

    kind: Literal["joined"] = "joined"
    attempt: Attempt
    host: Key


class Arrived(Message):
    """To the host: a joiner whose connection has proven `key`."""

    kind: Literal["arrived"] = "arrived"
    attempt: Attempt
    key: Key


class Left(Message):
    """To the host: this joiner's connection is gone."""

    kind: Literal["left"] = "left"
    attempt: Attempt


class Ended(Message):
    """To joiners: the session is over. To the host: everything sent before `end` was passed on."""

    kind: Literal["ended"] = "ended"
    text: Text


class Entered(Message):
    """The member is present; records of the others follow as `present`."""

    kind: Literal["entered"] = "entered"


class Present(Message):
    """A member of the plan is there (or has a new record)."""

    kind: Literal["present"] = "present"
    key: Key
    record: Record


class Gone(Message):
    kind: Literal["gone"] = "gone"
    key: Key


class Ping(Message):
    kind: Literal["ping"] = "ping"


class Refused(Message):
    kind: Literal["refused"] = "refused"
    why: Why
    text: Text


Request = Open | Join | Mail | Drop | End | Enter | Pong
Notice = Opened | Joined | Arrived | Left | Mail | Ended | Entered | Present | Gone | Ping | Refused

_requests: TypeAdapter[Request] = TypeAdapter(Annotated[Request, Field(discriminator="kind")])
_notices: TypeAdapter[Notice] = TypeAdapter(Annotated[Notice, Field(discriminator="kind")])


class _Versioned(BaseModel):
    v: Annotated[int, Field(strict=True, ge=0, le=2**31)]


def decode_strictly(adapter: TypeAdapter[T], data: bytes | str, limit: int) -> T:
    """Decode one message of a versioned protocol.

    Raises OtherVersion when the version differs, Malformed for anything else that is wrong.
    """
    if len(data) > limit:
        raise Malformed(f"{len(data)} bytes where {limit} are allowed")
    try:
        return adapter.validate_json(data)
    except ValidationError as error:
        try:
            theirs = _Versioned.model_validate_json(data).v
        except ValidationError:
            theirs = PROTOCOL
        if theirs != PROTOCOL:
            raise OtherVersion(theirs) from None
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(part) for part in first["loc"]) or "message"
        raise Malformed(_clean(f"{where}: {first['msg']}")) from None


def decode_request(data: bytes) -> Request:
    """A client's message, as the rendezvous reads it."""
    return decode_strictly(_requests, data, MESSAGE_LIMIT)


def decode_notice(data: bytes) -> Notice:
    """The rendezvous' message, as a client reads it."""
    return decode_strictly(_notices, data, MESSAGE_LIMIT)
