"""What is said in JSON to a rendezvous, by it and through it, and the key exchange."""

import base64

from pydantic import BaseModel

from kafila.defaults import RECORD_LIMIT
from kafila.errors import IdentityProblem
from kafila.messages import Message
from kafila.rendezvous import messages as control
from kafila.session import messages as say
from kafila.session import record
from kafila.session.code import Code
from kafila.session.collect import Compute, Host
from kafila.session.host import answer_exchange
from kafila.session.pake import Box, Channel, Pake, PakeFailure, Terms
from tools.fleets import manifest
from tools.fuzz.target import Reader, Target, parser
from tools.fuzz.world import ADDRESS, ANNA, BERT, DIGEST, NONCE, SESSION
from tools.loopback import handmade

_HEX32, _HEX16, _HEX8 = "ab" * 32, "ab" * 16, "ab" * 8
_MANIFEST = manifest("8b")
_REPORT = handmade("anna", ANNA, _MANIFEST, machine="a machine")
_RECORD = record.sign(ANNA, record.Self(SESSION, DIGEST, (ADDRESS, ("2001:db8::1", 4711)), NONCE))
_GRANT = control.GrantMessage(key=_HEX32, flow=_HEX8, side=0, expires=2**31, token=_HEX16)

REQUESTS: tuple[bytes, ...] = tuple(
    message.encode()
    for message in (
        control.Pass(proof=_HEX32),
        control.Open(members=3),
        control.Join(number=7),
        control.Mail(attempt=1, body="words"),
        control.Drop(attempt=1),
        control.End(text="over"),
        control.Enter(session=_HEX32, members=(_HEX32, "cd" * 32), record=_RECORD),
        control.AskRelays(session=_HEX32, members=(_HEX32, "cd" * 32), neighbours=("cd" * 32,)),
        control.Reflect(),
        control.Leave(),
        control.Pong(),
    )
)
_NOTICES = tuple(
    message.encode()
    for message in (
        control.Passed(),
        control.Opened(number=7, expires_s=900),
        control.Joined(attempt=1, host=_HEX32),
        control.Arrived(attempt=1, key=_HEX32),
        control.Left(attempt=1),
        control.Ended(text="over"),
        control.Entered(),
        control.Relays(grants=(_GRANT,)),
        control.Reflector(cookie=_HEX16, port=4711, stun=("192.0.2.1:3478",)),
        control.Present(key=_HEX32, record=_RECORD),
        control.Gone(key=_HEX32),
        control.Ping(),
        control.Refused(why="busy", text="later"),
    )
)
_PLAIN = tuple(
    message.encode()
    for message in (
        say.Hello(name="anna"),
        say.Welcome(host="bert", members=3, manifest=_MANIFEST),
        say.Measured(report=_REPORT),
        say.Received(reports=1, members=3),
        say.Refused(why="name", text="taken"),
        say.Stand(),
        say.Standing(at="192.0.2.1:4711"),
        say.Knock(token="ab" * 8, doors=("192.0.2.1:4711",)),
        say.Knocked(seen=()),
    )
)
_CODE = Code(7, ("amber", "falcon", "reed"))
_TERMS = Terms(7, ANNA.key, BERT.key)
_POINT = Pake("member", _CODE.password, _TERMS).message
_CLEAR = tuple(
    body.encode()
    for body in (
        say.exchange(_POINT),
        say.confirm(bytes(32)),
        say.body(say.Refused(why="full", text="full")),
        say.seal(Box(bytes(32)), say.Stand()),
    )
)


def _text(data: bytes) -> str:
    return data.decode("utf-8", "surrogateescape")


def _signed(data: bytes) -> BaseModel:
    """A record whose text is anything, but which its member has signed."""
    text = data.decode("utf-8", "replace")
    signature = ANNA.sign(b"kafila record\0" + text.encode()).hex()
    outer = record._Signed(record=text[:RECORD_LIMIT], signature=signature)
    return record.verify(outer.model_dump_json(), ANNA.key)


_RECORD_TEXT = record._signed.validate_json(_RECORD).record.encode()


def _host() -> tuple[Host, Channel]:
    """A host with one joiner, who knows the words and has confirmed."""
    host = Host(_CODE, BERT.key, handmade("bert", BERT, _MANIFEST, machine="m"), None, 3, 0.0)
    pake = Pake("member", _CODE.password, _TERMS)
    host.arrived(1, ANNA.key, 1.0)
    (compute,) = host.mail(1, say.exchange(pake.message), 1.0)
    assert isinstance(compute, Compute)
    answer = answer_exchange(_CODE, compute)
    assert answer is not None
    host.computed(1, answer, 1.0)
    channel = pake.finish(answer[0])
    host.mail(1, say.confirm(channel.proof), 1.0)
    return host, channel


def _mail() -> Reader:
    host, _ = _host()
    return lambda data: host.mail(1, _text(data), 2.0)


def _sealed_mail() -> Reader:
    """From one who knows the words: what it seals may be anything."""
    host, channel = _host()

    def read(data: bytes) -> object:
        sealed = base64.b64encode(channel.outgoing.seal(data)).decode("ascii")
        return host.mail(1, say.body(say.Sealed(box=sealed)), 2.0)

    return read


def _exchange() -> Reader:
    return lambda data: Pake("host", _CODE.password, _TERMS).finish(data)


def _box() -> Reader:
    return Box(bytes(32)).open


def _shut(message: Message) -> bytes:
    return Box(bytes(32)).seal(message.encode())


TARGETS = (
    parser("control request", control.decode_request, *REQUESTS),
    parser("control notice", control.decode_notice, *_NOTICES),
    parser("mail in the clear", lambda data: say.decode_clear(_text(data)), *_CLEAR),
    parser("sealed plain text", say.decode_plain, *_PLAIN),
    parser(
        "record",
        lambda data: record.verify(_text(data), ANNA.key),
        _RECORD.encode(),
        errors=(ValueError, IdentityProblem),
    ),
    parser("record of a member", _signed, _RECORD_TEXT, errors=(ValueError, IdentityProblem)),
    Target("key exchange", (_POINT,), _exchange, (PakeFailure,), slow=True),
    Target(
        "sealed box", tuple(map(_shut, (say.Stand(), say.Hello(name="anna")))), _box, (PakeFailure,)
    ),
    Target("mail to a host", _CLEAR, _mail, (), slow=True),
    Target("sealed mail to a host", _PLAIN, _sealed_mail, (), slow=True),
)
