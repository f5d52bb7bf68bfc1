"""Codes as they are made, told and typed."""

import collections
import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafila.errors import IdentityProblem, UsageProblem
from kafila.session.code import Code, parse_code, parse_invitation, vocabulary


def test_the_words_are_2048_distinct_short_and_lower_case() -> None:
    words = vocabulary()
    assert len(words) == len(set(words)) == 2048
    assert list(words) == sorted(words)
    assert all(3 <= len(word) <= 8 and set(word) <= set(string.ascii_lowercase) for word in words)


def test_no_typing_slip_turns_one_word_into_another() -> None:
    """No two words differ by one letter changed, dropped, added, or by two neighbours swapped."""
    words = set(vocabulary())
    shortened = collections.Counter(
        (i, word[:i] + word[i + 1 :]) for word in words for i in range(len(word))
    )
    assert max(shortened.values()) == 1  # one letter changed
    for word in words:
        for i in range(len(word)):
            assert word[:i] + word[i + 1 :] not in words  # one dropped, or added the other way
            swapped = word[:i] + word[i : i + 2][::-1] + word[i + 2 :]
            assert swapped == word or swapped not in words


codes = st.builds(
    Code,
    st.integers(1, 999_999),
    st.tuples(*[st.sampled_from(vocabulary())] * 3),
)


@given(codes, st.sampled_from(["-", " ", " - ", "  "]), st.booleans())
def test_a_code_is_read_however_it_is_typed(code: Code, between: str, loud: bool) -> None:
    text = str(code).replace("-", between)
    assert parse_code(f" {text.upper() if loud else text}\n") == code


def test_a_new_code_has_three_words_of_the_list_and_hides_them() -> None:
    code = Code.new(7)
    assert str(code).startswith("7-")
    assert len(code.words) == 3
    assert set(code.words) <= set(vocabulary())
    assert not any(word in repr(code) for word in code.words)
    assert len({Code.new(7) for _ in range(20)}) == 20


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "not a session code"),
        ("7-amber-falcon", "not a session code"),
        ("7-amber-falcon-canyon-river", "not a session code"),
        ("amber-falcon-canyon-7", "not a session code"),
        ("0-amber-falcon-canyon", "not a session's number"),
        ("12345678-amber-falcon-canyon", "not a session's number"),
        ("²-amber-falcon-canyon", "not a session code"),
    ],
)
def test_what_is_no_code_says_what_is_wrong(text: str, words: str) -> None:
    with pytest.raises(UsageProblem, match=words):
        parse_code(text)


def test_a_mistyped_word_is_noticed_before_it_costs_a_guess() -> None:
    with pytest.raises(IdentityProblem, match=r"no code contains .* did you mean falcon\?"):
        parse_code("7-amber-flacon-canyon")
    with pytest.raises(IdentityProblem, match="check the code"):
        parse_code("7-amber-qqqqq-canyon")


@given(st.text(max_size=40))
def test_no_text_breaks_the_reader(text: str) -> None:
    try:
        code, _ = parse_invitation(text)
    except (UsageProblem, IdentityProblem):
        return
    assert 0 < code.number < 10**6


@pytest.mark.parametrize("end", ["", "\n", " \r\n"])
def test_an_invitation_may_come_as_a_line(end: str) -> None:
    code = parse_code("7-amber-falcon-canyon")
    assert parse_invitation(f"7-amber-falcon-canyon{end}") == (code, None)
    for text, address in (("example.org", ("example.org", 4710)), ("10.1.2.3:9", ("10.1.2.3", 9))):
        assert parse_invitation(f" 7-amber-falcon-canyon@{text}{end}") == (code, address)


@pytest.mark.parametrize("text", ["", "a:0", "a:65536", "a b", "a@b:1:2", "[::1]:0"])
def test_an_invitation_to_nowhere(text: str) -> None:
    with pytest.raises(UsageProblem):
        parse_invitation(f"7-amber-falcon-canyon@{text}")
