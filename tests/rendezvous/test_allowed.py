"""The file that makes a rendezvous private."""

import contextlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafila.errors import BadFile
from kafila.rendezvous.allowed import read_allowed
from kafila.rendezvous.messages import pass_proof

KEY = "ab" * 32


def test_keys_tokens_and_comments(tmp_path: Path) -> None:
    file = tmp_path / "allow"
    file.write_text(
        f"# our members\n\n{KEY}  # anna\n{'cd' * 32}\n"
        "  token: sixteen-letters-\ntoken:0123456789abcdef\n"
    )
    allowed = read_allowed(file)
    assert allowed.keys == {bytes.fromhex(KEY), bytes.fromhex("cd" * 32)}
    assert allowed.tokens == ("sixteen-letters-", "0123456789abcdef")
    assert "sixteen" not in repr(allowed)


def test_any_of_its_tokens_serves(tmp_path: Path) -> None:
    file = tmp_path / "allow"
    file.write_text("token: sixteen-letters-\ntoken: 0123456789abcdef\n")
    allowed = read_allowed(file)
    for token in allowed.tokens:
        assert allowed.proves(pass_proof(token, b"r", b"c"), b"r", b"c")
    assert not allowed.proves(pass_proof("0123456789abcdeX", b"r", b"c"), b"r", b"c")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (f"{KEY}\n{KEY[:-1]}\n", "line 2"),
        ("token: short\n", "line 1"),
        ("token: two words of it\n", "line 1"),
        (KEY.upper(), "line 1"),
        ("# nobody\n", "names nobody"),
        ("", "names nobody"),
        ("sch\u00f6n", "ASCII"),
    ],
)
def test_what_is_no_list_is_said_with_its_line(tmp_path: Path, text: str, words: str) -> None:
    file = tmp_path / "allow"
    file.write_text(text)
    with pytest.raises(BadFile, match=words) as problem:
        read_allowed(file)
    assert str(file) in str(problem.value)
    assert "short" not in str(problem.value)


def test_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(BadFile, match="cannot read"):
        read_allowed(tmp_path / "none")


def test_a_file_without_end() -> None:
    with pytest.raises(BadFile, match="too large"):
        read_allowed(Path("/dev/zero"))


@given(st.text(max_size=300))
def test_no_text_breaks_the_reader(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    file = tmp_path_factory.getbasetemp() / "anything"
    file.write_text(text, errors="replace")
    with contextlib.suppress(BadFile):
        read_allowed(file)
