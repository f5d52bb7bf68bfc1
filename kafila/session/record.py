"""A serving member's signed record: how to reach it and what it is about to serve.

The rendezvous passes records on and cannot alter them: they are signed with the member's key.
"""

import base64
import ipaddress
from dataclasses import dataclass
from typing import Annotated

from pydantic import AfterValidator, Field, StringConstraints, TypeAdapter

from kafila.defaults import MAX_CANDIDATES, RECORD_LIMIT
from kafila.errors import IdentityProblem
from kafila.messages import Base64, Key, Message, decode_strictly
from kafila.net.identity import Identity
from kafila.net.identity import verify as signed_by

_DOMAIN = b"kafila record\0"


def _reachable(host: str) -> str:
    address = ipaddress.ip_address(host)  # a ValueError is pydantic's to report
    if "%" in host:  # a scope is any text, and means something on one machine only
        raise ValueError("an address with a scope")
    if address.is_multicast or address.is_unspecified or host == "255.255.255.255":
        raise ValueError("not the address of one machine")
    return host


Host = Annotated[str, StringConstraints(max_length=45), AfterValidator(_reachable)]
Port = Annotated[int, Field(ge=1, le=65535)]


class Record(Message):
    """What one member says of itself."""

    session: Key
    key: Key
    exchange_key: Key
    certificate: Annotated[Base64, StringConstraints(max_length=4096)]
    candidates: Annotated[tuple[tuple[Host, Port], ...], Field(max_length=MAX_CANDIDATES)]
    digest: Key
    """Of the plan it serves."""
    nonce: Key
    """Of its process: who connects to it signs this, and need not ask for it."""


class _Signed(Message):
    record: Annotated[str, StringConstraints(max_length=RECORD_LIMIT)]
    """The exact text that was signed, so that no canonical form is needed."""
    signature: Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{128}$")]


_record: TypeAdapter[Record] = TypeAdapter(Record)
_signed: TypeAdapter[_Signed] = TypeAdapter(_Signed)


@dataclass(frozen=True)
class Self:
    """What a member's own record is made of."""

    session: bytes
    digest: bytes
    candidates: tuple[tuple[str, int], ...]
    nonce: bytes


def sign(identity: Identity, mine: Self) -> str:
    """This member's record, ready to hand to the rendezvous."""
    record = Record(
        session=mine.session.hex(),
        key=identity.key.hex(),
        exchange_key=identity.exchange_key.hex(),
        certificate=base64.b64encode(identity.certificate).decode("ascii"),
        candidates=mine.candidates[:MAX_CANDIDATES],
        digest=mine.digest.hex(),
        nonce=mine.nonce.hex(),
    ).model_dump_json()
    signature = identity.sign(_DOMAIN + record.encode())
    return _Signed(record=record, signature=signature.hex()).model_dump_json()


def verify(text: str, key: bytes) -> Record:
    """The record that the owner of `key` signed.

    Raises IdentityProblem when somebody else made it; Malformed, or OtherVersion when the member
    speaks another protocol.
    """
    signed = decode_strictly(_signed, text, RECORD_LIMIT)
    if not signed_by(key, bytes.fromhex(signed.signature), _DOMAIN + signed.record.encode()):
        raise IdentityProblem("a record's signature is not its member's")
    record = decode_strictly(_record, signed.record, RECORD_LIMIT)
    if record.key != key.hex():
        raise IdentityProblem("a record names another key than the one that signed it")
    return record
