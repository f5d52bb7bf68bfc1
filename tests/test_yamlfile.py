"""The strict YAML layer: what is refused, with its line, and what survives a round trip."""

import os
import stat
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafila.defaults import MAX_FILE_BYTES
from kafila.errors import BadFile
from kafila.yamlfile import check_writable, parse, read, render, write

REFUSED = {
    "a: 1\nb: [1, 2\nc: 3\n": r"f:3: not valid YAML",
    "a: 1\nb: 2\na: 3\n": r"f:3: the key 'a' is here twice",
    "a: &x 1\nb: *x\n": r"f:1: aliases",
    "a: 1\nb: !!int 3\n": r"f:2: tags",
    "a: 1\nb: !!python/object:os.system 3\n": r"f:2: tags",
    "? [1, 2]\n: 3\n": r"f:1: a key must be a plain word",
    "a: 1\n---\nb: 2\n": r"f:2: not valid YAML",
    "": r"f:1: the file is empty",
    "# only words\n": r"f:1: the file is empty",
    "a: \x00\n": r"f:1: not valid YAML",
    "[" * 5000: r"f:1: nested too deeply",
}


@pytest.mark.parametrize("text", REFUSED, ids=REFUSED.values())
def test_refused_with_its_line(text: str) -> None:
    with pytest.raises(BadFile, match=REFUSED[text]):
        parse(text, "f")


def test_scalars_follow_the_core_rules() -> None:
    text = (
        "[0-13, no, on, 1_000, 0x10, 012, 12, -3, 1.5, 1e3, true, null, ~, '5', 1:30, 2020-01-01]"
    )
    expected = ["0-13", "no", "on", "1_000", "0x10", "012", 12, -3, 1.5, 1000.0]
    expected += [True, None, None, "5", "1:30", "2020-01-01"]
    assert parse(text, "f").value == expected


def test_whole_numbers_keep_all_their_digits() -> None:
    for number in (10**25 + 1, -(10**40) - 1, 10**60 - 1):
        text = render({"a": number}, comments={}, headings={})
        assert parse(text, "f").value == {"a": number}
    assert parse("a: " + "9" * 61, "f").value == {"a": "9" * 61}
    assert parse("? " + "9" * 5000 + "\n: 1", "f").value == {"9" * 5000: 1}


def test_a_problem_names_the_nearest_line() -> None:
    document = parse("a:\n  - b: 1\n    c: 2\n", "f")
    assert str(document.problem(("a", 0, "c"), "x")) == "f:3: x"
    assert str(document.problem(("a", 0, "missing"), "x")) == "f:2: x"
    assert str(document.problem(("nowhere",), "x")) == "f:1: x"


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(BadFile, match=r"none\.yaml: no such file"):
        read(tmp_path / "none.yaml")
    with pytest.raises(BadFile, match="is a directory"):
        read(tmp_path)
    (tmp_path / "binary").write_bytes(b"a: \xff\xfe")
    with pytest.raises(BadFile, match=r"not UTF-8 text \(byte 3\)"):
        read(tmp_path / "binary")
    (tmp_path / "large").write_bytes(b"#" * (MAX_FILE_BYTES + 1))
    with pytest.raises(BadFile, match="larger than"):
        read(tmp_path / "large")


def test_a_file_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    write(tmp_path / "a.yaml", "a: 1\n")
    assert (tmp_path / "a.yaml").read_text() == "a: 1\n"
    with pytest.raises(BadFile, match="cannot be written"):
        write(tmp_path / "none" / "a.yaml", "a: 1\n")
    assert [path.name for path in tmp_path.iterdir()] == ["a.yaml"]


def test_a_link_is_written_through(tmp_path: Path) -> None:
    (tmp_path / "here").mkdir()
    (tmp_path / "link.yaml").symlink_to("here/a.yaml")
    for text in ("a: 1\n", "a: 2\n"):
        check_writable(tmp_path / "link.yaml")
        write(tmp_path / "link.yaml", text)
        assert (tmp_path / "here" / "a.yaml").read_text() == text
    assert (tmp_path / "link.yaml").is_symlink()
    assert [path.name for path in (tmp_path / "here").iterdir()] == ["a.yaml"]
    (tmp_path / "loop").symlink_to("loop")
    for touch in (check_writable, lambda path: write(path, "a: 1\n")):
        with pytest.raises(BadFile, match="cannot be written: too many levels"):
            touch(tmp_path / "loop")
    assert (tmp_path / "loop").is_symlink()


def test_permissions_stay(tmp_path: Path) -> None:
    file = tmp_path / "a.yaml"
    write(file, "a: 1\n")
    new = tmp_path / "new"
    new.touch()
    assert file.stat().st_mode == new.stat().st_mode
    for mode in (0o600, 0o640, 0o666):
        file.chmod(mode)
        write(file, "a: 2\n")
        assert stat.S_IMODE(file.stat().st_mode) == mode


def test_a_draft_is_nobody_elses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Though somebody had guessed its name and laid a link there."""
    (tmp_path / "precious").write_text("precious")
    monkeypatch.setattr("secrets.token_hex", lambda size: "0" * size)
    write(tmp_path / "a.yaml", "a: 1\n")
    (tmp_path / f".kafila-{'0' * 8}.new").symlink_to(tmp_path / "precious")
    for touch in (check_writable, lambda path: write(path, "a: 2\n")):
        with pytest.raises(BadFile, match="cannot be written: file exists"):
            touch(tmp_path / "a.yaml")
    assert (tmp_path / "precious").read_text() == "precious"
    assert (tmp_path / "a.yaml").read_text() == "a: 1\n"


def test_as_long_a_name_as_can_be(tmp_path: Path) -> None:
    file = tmp_path / ("a" * 250 + ".yaml")
    check_writable(file)
    write(file, "a: 1\n")
    assert file.read_text() == "a: 1\n"


def test_a_pipe_is_written_to_and_not_replaced(tmp_path: Path) -> None:
    """Nor is a device: `--svg /dev/full` of root once made it a file."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    check_writable(pipe)
    write(pipe, "a: 1\n")
    assert os.read(reader, 100) == b"a: 1\n"
    os.close(reader)
    assert pipe.is_fifo()
    assert list(tmp_path.iterdir()) == [pipe]


def test_comments_and_headings_stand_where_they_belong() -> None:
    text = render(
        {"a": 1, "b": [{"c": "x", "d": {"e": 2}}], "f": []},
        comments={("a",): "one", ("b", 0, "d"): "flow"},
        headings={("b",): "two\nlines", ("b", 0): "an item"},
        inline=("d",),
    )
    assert text == (
        "a: 1                                      # one\n"
        "# two\n# lines\nb:\n  # an item\n  - c: x\n"
        "    d: {e: 2}                             # flow\n"
        "f: []\n"
    )


scalars = (
    st.none()
    | st.booleans()
    | st.integers(-(10**18), 10**18)
    | st.text(st.characters(exclude_categories=["Cs"]))
)
keys = st.from_regex(r"[a-z]{1,5}", fullmatch=True)
trees: st.SearchStrategy[Any] = st.recursive(
    scalars,
    lambda inner: (
        st.dictionaries(keys, inner, min_size=1, max_size=4)
        | st.lists(st.dictionaries(keys, inner, min_size=1, max_size=3) | scalars, max_size=3)
    ),
    max_leaves=12,
)


@given(st.dictionaries(keys, trees, min_size=1), st.sets(keys))
def test_what_is_written_is_read_back(value: dict[str, Any], inline: set[str]) -> None:
    text = render(value, comments={}, headings={}, inline=inline)
    assert parse(text, "f").value == value
