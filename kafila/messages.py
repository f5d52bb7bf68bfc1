"""The base of all that is said in JSON: one object a message, strict, bounded, printable.

Must not know who says what to whom: kafila.rendezvous.messages, kafila.session.messages and
kafila.session.record do.
"""

import base64
import binascii
from collections.abc import Mapping
from typing import Annotated, TypeVar

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
from kafila.defaults import TEXT_LIMIT

T = TypeVar("T")
M = TypeVar("M", bound=BaseModel)


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


def _base64(text: str) -> str:
    try:
        base64.b64decode(text, validate=True)
    except binascii.Error as error:
        raise ValueError("not base64") from error
    return text


Key = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
Base64 = Annotated[str, AfterValidator(_base64)]
Text = Annotated[str, StringConstraints(max_length=TEXT_LIMIT), AfterValidator(_printable)]
"""Words for a person; printable only, so that nobody writes control codes to a terminal."""


def presentable(model: M) -> M:
    """`model`, if every text in it could be a `Text`: a peer's data ends on terminals too."""
    _check(model.model_dump())
    return model


def _check(value: object) -> None:
    if isinstance(value, str):
        if len(value) > TEXT_LIMIT:
            raise ValueError(f"a text of {len(value)} characters, at most {TEXT_LIMIT} are allowed")
        _printable(value)
    elif isinstance(value, Mapping):
        for key, inner in value.items():
            _check(key)
            _check(inner)
    elif isinstance(value, list | tuple):
        for inner in value:
            _check(inner)


class Message(BaseModel):
    """Base: the version comes first in every message, unknown fields are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    v: Annotated[int, Field(ge=PROTOCOL, le=PROTOCOL)] = PROTOCOL

    def encode(self) -> bytes:
        return self.model_dump_json().encode()


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


def _clean(text: str) -> str:
    """What a stranger wrote, fit to be part of a text for a person."""
    return "".join(letter if letter.isprintable() else "?" for letter in text)[: TEXT_LIMIT // 2]
