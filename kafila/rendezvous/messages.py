"""What clients and a rendezvous say to each other: JSON, one object a message, strict and bounded.

Must not know connections, nor what the mail and the records it carries mean.
"""

import hmac
from typing import Annotated, Final, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints, TypeAdapter

from kafila.address import parse_address
from kafila.defaults import (
    MAIL_LIMIT,
    MAX_MEMBERS,
    MAX_NEIGHBOURS,
    MESSAGE_LIMIT,
    RECORD_LIMIT,
    STUN_PORT,
    STUN_SERVERS,
)
from kafila.errors import UsageProblem
from kafila.messages import Key, Message, Text, decode_strictly

ALPN: Final = "kafila-rendezvous"
"""What the QUIC connection of a client and a rendezvous is for."""

CONTROL: Final = 0
"""The only channel of such a connection."""

Number = Annotated[int, Field(ge=1, le=10**6)]
Attempt = Annotated[int, Field(ge=1, le=2**53)]
Body = Annotated[str, StringConstraints(max_length=MAIL_LIMIT)]
Record = Annotated[str, StringConstraints(max_length=RECORD_LIMIT)]
Octets8 = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{16}$")]
Octets16 = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{32}$")]


def _place(text: str) -> str:
    try:
        parse_address(text, port=STUN_PORT)
    except UsageProblem as error:
        raise ValueError("not an address") from error
    return text


Place = Annotated[Text, AfterValidator(_place)]
Why = Literal["version", "malformed", "copied", "busy", "unknown", "ended", "members", "private"]


# --- from a client ---------------------------------------------------------------------------


class Pass(Message):
    """Show, before anything else, that this client has a token of a private rendezvous.

    The token is not sent: `proof` is its HMAC over both keys (`pass_proof`), of use to nobody else.
    """

    kind: Literal["pass"] = "pass"
    proof: Key


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


class AskRelays(Message):
    """Be granted the use of the relay for the edges to these members; asked again for newer grants.

    The session and its members are those of `enter`.
    """

    kind: Literal["relay"] = "relay"
    session: Key
    members: Annotated[tuple[Key, ...], Field(min_length=1, max_length=MAX_MEMBERS)]
    neighbours: Annotated[tuple[Key, ...], Field(min_length=1, max_length=MAX_NEIGHBOURS)]


class Reflect(Message):
    """Ask for what NAT classification needs; at any time, in any role."""

    kind: Literal["reflect"] = "reflect"


class Leave(Message):
    """The member ends because the members do not fit together; the others are told."""

    kind: Literal["leave"] = "leave"


class Pong(Message):
    """Answer to a ping: this connection's process is alive."""

    kind: Literal["pong"] = "pong"


# --- from the rendezvous ---------------------------------------------------------------------


class Passed(Message):
    """The client's token is good."""

    kind: Literal["passed"] = "passed"


class Opened(Message):
    kind: Literal["opened"] = "opened"
    number: Number
    expires_s: Annotated[int, Field(ge=0, le=10**6)]


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


class GrantMessage(BaseModel):
    """See kafila.net.relaying.Grant."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    key: Key
    flow: Octets8
    side: Annotated[int, Field(ge=0, le=1)]
    expires: Annotated[int, Field(ge=0, lt=2**32)]
    token: Octets16


class Relays(Message):
    """One grant for each neighbour that was named."""

    kind: Literal["relays"] = "relays"
    grants: Annotated[tuple[GrantMessage, ...], Field(max_length=MAX_NEIGHBOURS)]


class Reflector(Message):
    """See kafila.net.reflecting.Ask: the cookie, and the rendezvous' second UDP port if it has one.

    `stun` are STUN servers on other addresses, HOST:PORT each, that its keeper suggests.
    """

    kind: Literal["reflector"] = "reflector"
    cookie: Octets16
    port: Annotated[int, Field(ge=1, le=65535)] | None
    stun: Annotated[tuple[Place, ...], Field(max_length=STUN_SERVERS)]


class Present(Message):
    """A member of the plan is there (or has a new record)."""

    kind: Literal["present"] = "present"
    key: Key
    record: Record


class Gone(Message):
    """A member of the plan is not there any more."""

    kind: Literal["gone"] = "gone"
    key: Key
    misfit: bool = False
    """It said that it ends because the members do not fit together: their plans differ, mostly."""


class Ping(Message):
    kind: Literal["ping"] = "ping"


class Refused(Message):
    kind: Literal["refused"] = "refused"
    why: Why
    text: Text


Request = Pass | Open | Join | Mail | Drop | End | Enter | AskRelays | Reflect | Leave | Pong
Notice = (
    Passed
    | Opened
    | Joined
    | Arrived
    | Left
    | Mail
    | Ended
    | Entered
    | Relays
    | Reflector
    | Present
    | Gone
    | Ping
    | Refused
)

_requests: TypeAdapter[Request] = TypeAdapter(Annotated[Request, Field(discriminator="kind")])
_notices: TypeAdapter[Notice] = TypeAdapter(Annotated[Notice, Field(discriminator="kind")])


def pass_proof(token: str, rendezvous: bytes, client: bytes) -> str:
    """Return what a client with this key says to show that rendezvous that it has the token."""
    return hmac.digest(token.encode(), b"kafila pass" + rendezvous + client, "sha256").hex()


def decode_request(data: bytes) -> Request:
    """A client's message, as the rendezvous reads it."""
    return decode_strictly(_requests, data, MESSAGE_LIMIT)


def decode_notice(data: bytes) -> Notice:
    """The rendezvous' message, as a client reads it."""
    return decode_strictly(_notices, data, MESSAGE_LIMIT)
