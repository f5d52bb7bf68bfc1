"""Text in pieces is the same text, and stop strings end it wherever the pieces fall."""

import asyncio
import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafila.api.chat import ChatTemplate, TemplateRefused
from kafila.api.model import Model
from kafila.api.tokens import Detokenizer, StopStrings, Tokens, ending_ids
from kafila.errors import CheckpointProblem
from tests.api.conftest import END, TEMPLATE
from tests.serve.toy import VOCAB


@pytest.fixture(scope="module")
def tokens(model: Model) -> Tokens:
    assert model.tokens
    return model.tokens


@given(text=st.text(max_size=40))
def test_text_comes_back_in_whole_characters(tokens: Tokens, text: str) -> None:
    detokenizer = Detokenizer(tokens)
    pieces = [detokenizer.feed(token) for token in tokens.encode(text, special=False)]
    pieces.append(detokenizer.flush())
    assert "".join(pieces) == text
    assert all("\ufffd" not in piece for piece in pieces) or "\ufffd" in text


@pytest.fixture
def polite() -> Iterator[None]:
    """No thread is made to give way: another one runs only when the running one lets it."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(60)
    yield
    sys.setswitchinterval(interval)


@pytest.mark.usefixtures("polite")
async def test_a_long_text_does_not_hold_up_the_loop(tokens: Tokens) -> None:
    """It carries the ring; its turns are counted on the tokenizer's thread, round the call."""
    turns, text = 0, "the fox and the lake " * 20_000

    def encode() -> tuple[list[int], int]:
        before = turns
        return tokens.encode(text, special=False), turns - before

    encoding = asyncio.ensure_future(asyncio.to_thread(encode))
    while not encoding.done():
        turns += 1
        await asyncio.sleep(0)
    ids, during = encoding.result()
    assert during > 0
    assert tokens.decode(ids) == text


@given(ids=st.lists(st.integers(0, VOCAB - 1), max_size=30))
def test_any_tokens_give_the_text_of_all_together(tokens: Tokens, ids: list[int]) -> None:
    detokenizer = Detokenizer(tokens)
    text = "".join(detokenizer.feed(token) for token in ids) + detokenizer.flush()
    assert text == tokens.decode(ids)


@given(
    pieces=st.lists(st.text("abc", max_size=4), max_size=10),
    stops=st.lists(st.text("abc", min_size=1, max_size=4), max_size=3),
)
def test_stop_strings_cut_where_they_begin(pieces: list[str], stops: list[str]) -> None:
    stopper = StopStrings(stops)
    given_out = ""
    for piece in pieces:
        given_out += stopper.feed(piece)
        if stopper.stopped:
            break
    given_out += stopper.flush()
    text = "".join(pieces)
    found = [text.find(stop) for stop in stops if stop in text]
    assert stopper.stopped == bool(found)
    if not found:
        assert given_out == text
    # the first stop string to be complete wins, as it would for a reader
    assert not any(stop in given_out for stop in stops)
    assert text.startswith(given_out)


def test_only_what_may_become_a_stop_string_waits() -> None:
    stopper = StopStrings(["\nUser:"])
    assert stopper.feed("hello\n") == "hello"
    assert stopper.feed("Us") == ""
    assert stopper.feed("ual") == "\nUsual"
    assert stopper.feed("\nUser") == ""
    assert stopper.flush() == "\nUser"


def test_template(folder: Path) -> None:
    template = ChatTemplate.open(folder)
    assert template
    messages = [{"role": "user", "content": "hi"}]
    expected = "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n"
    assert template.render(messages, {}) == expected
    assert template.render(messages, {"enable_thinking": False}) == expected + "<think></think>"


def test_a_template_file_comes_before_the_config(tmp_path: Path) -> None:
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"chat_template": TEMPLATE}))
    (tmp_path / "chat_template.jinja").write_text("{{ eos_token }}{{ messages | tojson }}")
    template = ChatTemplate.open(tmp_path)
    assert template
    assert template.render([{"content": "é<"}], {}) == '[{"content": "é<"}]'


def test_named_templates_give_the_default(tmp_path: Path) -> None:
    named = [{"name": "tool", "template": "a"}, {"name": "default", "template": "b"}]
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"chat_template": named}))
    template = ChatTemplate.open(tmp_path)
    assert template
    assert template.render([], {}) == "b"


@pytest.mark.parametrize(
    "source",
    [
        "{{ raise_exception('roles must alternate') }}",
        "{{ messages.__class__.__mro__ }}{{ ''.__class__.__base__.__subclasses__() }}",
        "{{ messages.append(1) }}",
        "{{ 1 / 0 }}",
    ],
)
def test_a_template_can_refuse_but_not_escape(source: str) -> None:
    with pytest.raises(TemplateRefused):
        ChatTemplate(source, {}).render([{"role": "user", "content": ""}], {})


def test_ends_are_read_from_the_checkpoint(folder: Path, model: Model, tmp_path: Path) -> None:
    assert model.tokens
    assert model.eos == frozenset(model.tokens.encode(END, special=False))
    (tmp_path / "config.json").write_text('{"eos_token_id": [3, 4]}')
    assert ending_ids(tmp_path) == {3, 4}
    (tmp_path / "generation_config.json").write_text('{"eos_token_id": 5}')
    assert ending_ids(tmp_path) == {5}
    assert Tokens.open(tmp_path) is None
    assert ChatTemplate.open(tmp_path) is None


@pytest.mark.parametrize(
    ("name", "text", "complaint"),
    [
        ("tokenizer.json", "{}", "not a tokenizer"),
        ("tokenizer_config.json", "{", "not JSON"),
        ("generation_config.json", "[]", "not a JSON object"),
        ("chat_template.jinja", "{% if %}", "template is broken"),
    ],
)
def test_broken_files_are_checkpoint_problems(
    tmp_path: Path, name: str, text: str, complaint: str
) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(CheckpointProblem, match=complaint):
        Model.open("x", tmp_path)
