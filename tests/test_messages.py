"""The base of all messages: nothing in what was read can harm a terminal."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter

from kafila.messages import Malformed, Message, OtherVersion, Text, decode_strictly
from kafila.session import messages as say
from tests.session.samples import MANIFEST, report

HARMFUL = ["\x1b[2J", "a\nb", "\u202eabc", "\x9b31m", "x" * 301]


class Note(Message):
    text: Text


NOTE = TypeAdapter(Note)


@given(st.text() | st.sampled_from(HARMFUL))
def test_a_text_that_was_read_is_printable_and_short(text: str) -> None:
    data = json.dumps({"v": 2, "text": text})
    if text.isprintable() and len(text) <= 300:
        assert decode_strictly(NOTE, data, 10_000).text == text
    else:
        with pytest.raises(Malformed):
            decode_strictly(NOTE, data, 10_000)


@given(st.dictionaries(st.text(max_size=400) | st.sampled_from(HARMFUL), st.text(max_size=20)))
def test_a_complaint_quotes_nothing_harmful(fields: dict[str, str]) -> None:
    with pytest.raises(Malformed) as problem:
        decode_strictly(NOTE, json.dumps({"v": 2, **fields, "more": 1}), 100_000)
    assert str(problem.value).isprintable()
    assert len(str(problem.value)) <= 150


def test_another_version_comes_before_any_other_complaint() -> None:
    with pytest.raises(OtherVersion) as problem:
        decode_strictly(NOTE, '{"v":7,"what":"ever"}', 100)
    assert problem.value.theirs == 7


@pytest.mark.parametrize("text", HARMFUL)
@pytest.mark.parametrize("field", ["name", "revision", "digest", "dtype"])
def test_a_welcome_shows_nothing_harmful(field: str, text: str) -> None:
    """The model's name is shown to the member that measures it."""
    manifest = MANIFEST.model_dump() | {field: text}
    welcome = {"v": 2, "kind": "welcome", "host": "hanna", "members": 2, "manifest": manifest}
    with pytest.raises(Malformed, match="manifest"):
        say.decode_plain(json.dumps(welcome).encode())
    good = welcome | {"manifest": MANIFEST.model_dump()}
    assert say.decode_plain(json.dumps(good).encode()).kind == "welcome"


@pytest.mark.parametrize("text", HARMFUL)
@pytest.mark.parametrize("field", ["name", "hardware", "platform", "version", "machine"])
def test_a_report_shows_nothing_harmful(field: str, text: str) -> None:
    made = json.loads(report("anna", bytes(32)).model_dump_json()) | {field: text}
    with pytest.raises(Malformed, match="report"):
        say.decode_plain(json.dumps({"v": 2, "kind": "measured", "report": made}).encode())


@pytest.mark.parametrize("name", ["", "a b", "a\n", "\x1b[31m", "x" * 64])
def test_a_member_has_a_name_that_is_one(name: str) -> None:
    with pytest.raises(Malformed):
        say.decode_plain(json.dumps({"v": 2, "kind": "hello", "name": name}).encode())
