"""Strict YAML for the files people edit: plain values with line numbers in, commented text out.

Knows nothing of plans or reports. Scalars follow YAML 1.2's core rules (`no` is a word, `0-13` is
a word, `1_000` is not a number); anchors, tags and repeated keys are refused.
"""

import errno
import json
import os
import re
import secrets
import stat
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import yaml

from kafila.defaults import MAX_FILE_BYTES
from kafila.errors import BadFile

Place = tuple[str | int, ...]
"""Where a value sits: keys and list positions from the top."""

COMMENT_COLUMN = 40
MAX_DIGITS = 60
"""Of a whole number: enough for whatever follows from numbers that a plan may hold."""

_INT = re.compile(r"[-+]?(0|[1-9][0-9]*)")
_FLOAT = re.compile(r"[-+]?([0-9]+\.[0-9]*|\.[0-9]+|[0-9]+(?=[eE]))([eE][-+]?[0-9]+)?")
_BARE = re.compile(r"[A-Za-z0-9_./][A-Za-z0-9_./+@:-]*")
_TAGS = {f"tag:yaml.org,2002:{kind}" for kind in ("str", "seq", "map")}
_WORDS: Mapping[str, object] = {"true": True, "false": False, "null": None, "~": None, "": None}


@dataclass(frozen=True)
class Document:
    """A parsed file: its value, and the line of every key and list item in it."""

    source: str
    value: object
    lines: Mapping[Place, int]

    def problem(self, place: Place, message: str) -> BadFile:
        """The error for `place`, or for the nearest enclosing place that is in the file."""
        while place not in self.lines and place:
            place = place[:-1]
        return BadFile(f"{self.source}:{self.lines.get(place, 1)}: {message}")


def read(path: str | Path) -> Document:
    """Parse the file at `path`; BadFile when it is missing, too large or not our YAML."""
    try:
        with Path(path).open("rb") as file:
            raw = file.read(MAX_FILE_BYTES + 1)
        if len(raw) > MAX_FILE_BYTES:
            raise BadFile(f"{path}: larger than {MAX_FILE_BYTES} bytes; this is not a Kafila file")
        text = raw.decode("utf-8")
    except OSError as error:
        raise BadFile(f"{path}: {(error.strerror or str(error)).lower()}") from None
    except UnicodeDecodeError as error:
        raise BadFile(f"{path}: not UTF-8 text (byte {error.start})") from None
    return parse(text, str(path))


def parse(text: str, source: str) -> Document:
    """Parse one YAML document; `source` is what errors call it."""
    try:
        node = yaml.compose(text, yaml.BaseLoader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = mark.line + 1 if mark else 1
        raise BadFile(f"{source}:{line}: not valid YAML: {error.problem}") from None
    except yaml.YAMLError as error:
        raise BadFile(f"{source}:1: not valid YAML: {str(error).splitlines()[0]}") from None
    except RecursionError:
        raise BadFile(f"{source}:1: nested too deeply") from None
    if node is None:
        raise BadFile(f"{source}:1: the file is empty")
    lines: dict[Place, int] = {(): node.start_mark.line + 1}
    return Document(source, _value(node, (), source, lines, set()), lines)


def _value(
    node: yaml.Node, place: Place, source: str, lines: dict[Place, int], seen: set[int]
) -> object:
    line = node.start_mark.line + 1
    if id(node) in seen:
        raise BadFile(f"{source}:{line}: aliases (*name) are not used here; write the value out")
    seen.add(id(node))
    if node.tag not in _TAGS:
        raise BadFile(f"{source}:{line}: tags (!name) are not used here; remove it")
    if isinstance(node, yaml.ScalarNode):
        return _resolve(node.value) if node.style in (None, "") else node.value
    if isinstance(node, yaml.SequenceNode):
        items = []
        for position, child in enumerate(node.value):
            lines[(*place, position)] = child.start_mark.line + 1
            items.append(_value(child, (*place, position), source, lines, seen))
        return items
    assert isinstance(node, yaml.MappingNode)
    result: dict[str | int, object] = {}
    for key_node, child in node.value:
        line = key_node.start_mark.line + 1
        if not isinstance(key_node, yaml.ScalarNode):
            raise BadFile(f"{source}:{line}: a key must be a plain word")
        number = key_node.style in (None, "") and _is_whole(key_node.value)
        key: str | int = int(key_node.value) if number else key_node.value
        if key in result:
            raise BadFile(f"{source}:{line}: the key {key!r} is here twice; keep one of them")
        lines[(*place, key)] = line
        result[key] = _value(child, (*place, key), source, lines, seen)
    return result


def _resolve(text: str) -> object:
    """The value of a plain (unquoted) scalar."""
    if text in _WORDS:
        return _WORDS[text]
    if _is_whole(text):
        return int(text)
    return float(text) if _FLOAT.fullmatch(text) else text


def _is_whole(text: str) -> bool:
    return len(text) <= MAX_DIGITS and _INT.fullmatch(text) is not None


def check_writable(path: str | Path) -> None:
    """BadFile unless `path` could be written now; nothing stays behind."""
    with _place(path) as (target, draft):
        if target.is_dir():
            raise IsADirectoryError(errno.EISDIR, "is a directory")
        if draft:
            _create(draft, target)
            draft.unlink()


def write(path: str | Path, text: str) -> None:
    """Write a file whole or not at all, a device or pipe as it is; BadFile if that cannot be."""
    with _place(path) as (target, draft):
        if draft is None:
            target.write_text(text, encoding="utf-8")
            return
        try:
            _create(draft, target, text)
            draft.replace(target)
        finally:
            draft.unlink(missing_ok=True)


@contextmanager
def _place(path: str | Path) -> Iterator[tuple[Path, Path | None]]:
    """The file that a path or link leads to, and what is to become it: None for a device or pipe.

    BadFile where one of them cannot be used.
    """
    target = Path(path)
    try:
        mode = _mode(target)  # raises for links in a loop, which not every Python's resolve does
        if mode is None or stat.S_ISREG(mode) or stat.S_ISDIR(mode):
            target = target.resolve()
            yield target, target.with_name(f".kafila-{secrets.token_hex(8)}.new")
        else:
            yield target, None
    except OSError as error:
        raise BadFile(f"{path}: cannot be written: {(error.strerror or '').lower()}") from None


def _mode(path: Path) -> int | None:
    """Of what a path leads to; None: nothing is there."""
    try:
        return path.stat().st_mode
    except FileNotFoundError:
        return None


def _create(draft: Path, target: Path, text: str = "") -> None:
    """Write the draft, which nobody has made yet, with the permissions of what it shall replace."""
    mode = _mode(target)
    allowed = 0o666 if mode is None else stat.S_IMODE(mode)
    handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, allowed)
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        if mode is not None:
            with suppress(PermissionError):  # some file systems keep no permissions
                os.fchmod(handle, allowed)
        file.write(text)


def render(
    value: Mapping[str, object],
    *,
    comments: Mapping[Place, str],
    headings: Mapping[Place, str],
    inline: Collection[str] = (),
) -> str:
    """YAML text of `value` in its own key order.

    `comments` stand at the end of a place's line, `headings` on lines of their own above it;
    mappings under a key in `inline` are written on one line.
    """
    lines = []
    for place, line in _mapping(value, (), inline):
        indent = " " * (len(line) - len(line.lstrip()))
        lines += [f"{indent}# {words}" for words in headings.get(place, "").splitlines()]
        comment = comments.get(place)
        lines.append(f"{line:<{COMMENT_COLUMN}}  # {comment}" if comment else line)
    return "\n".join(lines) + "\n"


def _mapping(
    value: Mapping[str, object], place: Place, inline: Collection[str]
) -> Iterator[tuple[Place, str]]:
    for key, child in value.items():
        at = (*place, key)
        if isinstance(child, Mapping) and child and key not in inline:
            yield at, f"{key}:"
            for inner, line in _mapping(child, at, inline):
                yield inner, f"  {line}"
        elif isinstance(child, list | tuple) and child:
            yield at, f"{key}:"
            yield from _items(child, at, inline)
        else:
            yield at, f"{key}: {flow(child)}"


def _items(
    values: Collection[object], place: Place, inline: Collection[str]
) -> Iterator[tuple[Place, str]]:
    for position, item in enumerate(values):
        at = (*place, position)
        if not isinstance(item, Mapping):
            yield at, f"  - {flow(item)}"
            continue
        bullet = "- "
        for inner, line in _mapping(item, at, inline):
            # The heading of an item belongs above its first key.
            yield (at if bullet == "- " else inner), f"  {bullet}{line}"
            bullet = "  "


def flow(value: object) -> str:
    """One-line YAML of a scalar, list or mapping."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key}: {flow(child)}" for key, child in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(flow(child) for child in value) + "]"
    if isinstance(value, str):
        bare = _BARE.fullmatch(value) and not value.endswith(":")
        if bare and _resolve(value) == value:
            return value
        quoted = json.dumps(value, ensure_ascii=False)
        return "".join(c if c.isprintable() else f"\\U{ord(c):08x}" for c in quoted)
    return json.dumps(value)
