"""Control messages: what is read, and that nothing else breaks the reader."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafila.defaults import MAX_MEMBERS
from kafila.messages import Malformed, Message, OtherVersion
from kafila.rendezvous.messages import (
    Arrived,
    AskRelays,
    Drop,
    End,
    Enter,
    GrantMessage,
    Join,
    Mail,
    Notice,
    Open,
    Pass,
    Present,
    Refused,
    Relays,
    Request,
    decode_notice,
    decode_request,
)
from kafila.rendezvous.registry import Registry
from kafila.rendezvous.relay import Relay

KEY = "ab" * 32

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=12,
)
kinds = st.sampled_from(
    ["open", "join", "mail", "drop", "end", "enter", "pong", "present", "left", "relay", "pass"]
)
lookalikes = st.fixed_dictionaries(
    {"v": st.sampled_from([0, 1, 1, 1, 2, "1"]), "kind": kinds},
    optional={
        "members": json_values | st.lists(st.just(KEY), max_size=3),
        "number": json_values,
        "attempt": json_values,
        "body": json_values,
        "text": json_values,
        "session": json_values | st.just(KEY),
        "record": json_values,
        "key": json_values | st.just(KEY),
        "neighbours": json_values | st.lists(st.just(KEY), max_size=3),
        "proof": json_values | st.just(KEY),
    },
)


@given(st.binary(max_size=200) | json_values.map(lambda v: json.dumps(v).encode()))
def test_no_bytes_break_the_readers(data: bytes) -> None:
    for decode in (decode_request, decode_notice):
        with pytest.raises((Malformed, OtherVersion)):
            decode(data)


@given(lookalikes)
def test_what_is_read_is_what_was_written(value: dict[str, object]) -> None:
    data = json.dumps(value).encode()
    for decode in (decode_request, decode_notice):
        try:
            message: Message = decode(data)
        except (Malformed, OtherVersion):
            continue
        assert json.loads(message.encode()) == value


@given(st.lists(lookalikes | st.dictionaries(st.text(max_size=200), json_values), max_size=4))
def test_no_request_breaks_the_registry(values: list[dict[str, object]]) -> None:
    registry = Registry(bytes(32), Relay(bytes(32)))
    registry.connected(1, bytes(32), "192.0.2.1", 0)
    for value in values:
        registry.received(1, json.dumps({"v": 2, "kind": "open"} | value).encode(), 0)


@pytest.mark.parametrize(
    "message",
    [
        Open(members=2),
        Join(number=7),
        Mail(attempt=1, body="{}"),
        Drop(attempt=2),
        End(text="über"),
        Enter(session=KEY, members=(KEY,) * MAX_MEMBERS, record="r" * 8000),
        AskRelays(session=KEY, members=(KEY,) * MAX_MEMBERS, neighbours=(KEY, KEY)),
        Pass(proof=KEY),
    ],
)
def test_requests_come_back_as_they_were(message: Request) -> None:
    assert decode_request(message.encode()) == message


@pytest.mark.parametrize(
    "message",
    [
        Arrived(attempt=1, key=KEY),
        Present(key=KEY, record="r"),
        Refused(why="busy", text="later"),
        Relays(
            grants=(GrantMessage(key=KEY, flow="0" * 16, side=1, expires=2**31, token="a" * 32),)
        ),
    ],
)
def test_notices_come_back_as_they_were(message: Notice) -> None:
    assert decode_notice(message.encode()) == message


@pytest.mark.parametrize("text", ["\x1b[2J", "a\nb", "\u202eabc", "x" * 301])
def test_words_for_a_person_are_printable_and_short(text: str) -> None:
    data = json.dumps({"v": 2, "kind": "refused", "why": "busy", "text": text}).encode()
    with pytest.raises(Malformed):
        decode_notice(data)


@pytest.mark.parametrize("place", ["", "host:port", "2001:db8::1", "host:99999"])
def test_a_stun_server_has_an_address(place: str) -> None:
    reflector = {"v": 2, "kind": "reflector", "cookie": "0" * 32, "port": None, "stun": [place]}
    with pytest.raises(Malformed, match="not an address"):
        decode_notice(json.dumps(reflector).encode())
    for good in ("stun.example.net", "192.0.2.1:3478"):
        decode_notice(json.dumps({**reflector, "stun": [good]}).encode())


@pytest.mark.parametrize("seconds", ["-1", "1000001", "1" + "0" * 5000])
def test_a_time_can_be_shown(seconds: str) -> None:
    with pytest.raises(Malformed):
        decode_notice(f'{{"v":2,"kind":"opened","number":1,"expires_s":{seconds}}}'.encode())
