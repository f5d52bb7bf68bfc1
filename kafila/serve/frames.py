"""What members say to each other: frames to bytes and back. Knows no socket, clock or stage.

All numbers are little-endian. Nothing read from a message is used before it is checked against
the plan's `Shape`: a frame that decodes is one this ring could have sent.
"""

import itertools
import struct
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from kafila.defaults import FAILURE_TEXT_BYTES, GROUP_CHANNELS

Array = npt.NDArray[Any]

_PREFILL: Final = struct.Struct("<BBHHHIIHH")
# kind, last, group, row, count, start, request; the group and row of the source
_DECODE: Final = struct.Struct("<BxHHxxI")  # kind, group, count, step; then rows, positions, x
_RELEASE: Final = struct.Struct("<BxHH")  # kind, group, row
_LOADED: Final = struct.Struct("<BxH")  # kind, member; likewise of one that has checked
_READY: Final = struct.Struct("<B")  # kind
_FAILURE: Final = struct.Struct("<BBH")  # kind, exit code, member; then text in UTF-8


MOST_NUMBERED: Final = 0xFFFF
"""Groups, and rows of a group, that the 16 bits of their numbers and counts can tell apart."""


class FrameError(ValueError):
    """A message that no member of this ring would send; the text says what is wrong with it."""


@dataclass(frozen=True)
class Shape:
    """The sizes all frames of one ring agree on. `context` counts tokens, `chunk` likewise."""

    hidden: int
    dtype: np.dtype[Any]
    groups: int
    rows: int
    context: int
    chunk: int


@dataclass(frozen=True, eq=False)
class Prefill:
    """`count` prompt positions of a slot from `start` on.

    Those before `start` are in `source` (group, row); if that is another slot, they are copied.
    `x` is [count, hidden]; on the way back to the head it is [1, hidden] (the last position) for
    the `last` chunk and [0, hidden] for the others.
    """

    request: int
    group: int
    row: int
    start: int
    count: int
    last: bool
    source: tuple[int, int]
    x: Array


@dataclass(frozen=True, eq=False)
class Decode:
    """One step of a group: `rows` (ascending) at `positions`, and their x [len(rows), hidden]."""

    group: int
    step: int
    rows: tuple[int, ...]
    positions: tuple[int, ...]
    x: Array


@dataclass(frozen=True)
class Release:
    """The slot's request is over and nothing of it is under way; back at the head it is free."""

    group: int
    row: int


@dataclass(frozen=True)
class Loaded:
    """`member` (its ring position) can compute; travels on to the head."""

    member: int


@dataclass(frozen=True)
class Ready:
    """Everyone has loaded; the head says so to all."""


@dataclass(frozen=True)
class Failure:
    """`member` cannot go on: its own words (printable once read) and exit code, once round."""

    member: int
    code: int
    text: str


@dataclass(frozen=True)
class Checked:
    """`member` has looked at its edges and will not serve (`--check`); to its neighbours only."""

    member: int


Frame = Prefill | Decode | Release | Loaded | Ready | Failure | Checked

_KINDS: Final = {Prefill: 1, Decode: 2, Release: 3, Loaded: 4, Ready: 5, Failure: 6, Checked: 7}


def largest(shape: Shape) -> int:
    """Bytes of the largest message of a ring of this shape."""
    row = shape.hidden * shape.dtype.itemsize
    return max(_PREFILL.size + shape.chunk * row, _DECODE.size + shape.rows * (6 + row))


def channel(frame: Frame) -> int:
    """Groups decode on streams of their own, prefill has one, all else shares the control stream.

    With more than GROUP_CHANNELS groups some share; what matters is that a group keeps to one. All
    prefill comes in the order in which it was sent: a chunk is copied before it is written over.
    """
    match frame:
        case Decode():
            return 1 + frame.group % GROUP_CHANNELS
        case Prefill():
            return 1 + GROUP_CHANNELS
        case _:
            return 0


def encode(frame: Frame) -> bytes:
    """The message of a frame. A failure's text is cut at FAILURE_TEXT_BYTES."""
    kind = _KINDS[type(frame)]
    match frame:
        case Prefill():
            slot = frame.group, frame.row
            head = _PREFILL.pack(
                kind, frame.last, *slot, frame.count, frame.start, frame.request, *frame.source
            )
            return head + frame.x.tobytes()
        case Decode():
            count = len(frame.rows)
            head = _DECODE.pack(kind, frame.group, count, frame.step)
            slots = struct.pack(f"<{count}H{count}I", *frame.rows, *frame.positions)
            return head + slots + frame.x.tobytes()
        case Release():
            return _RELEASE.pack(kind, frame.group, frame.row)
        case Loaded() | Checked():
            return _LOADED.pack(kind, frame.member)
        case Ready():
            return _READY.pack(kind)
        case Failure():
            text = frame.text.encode("utf-8", "replace")[:FAILURE_TEXT_BYTES]
            return _FAILURE.pack(kind, frame.code, frame.member) + text


def decode(message: bytes, *, members: int, shape: Shape | None, to_head: bool) -> Frame:
    """The frame in a message.

    `shape` is None until this member has loaded: only control frames may come before that.
    `to_head` says that the receiver is the head, for which prefill carries fewer rows.

    Raises
    ------
    FrameError
        Unknown kind, wrong length, or a number outside the ring's shape.
    """
    if not message:
        raise FrameError("an empty message")
    kind = message[0]
    if kind == _KINDS[Loaded]:
        (_, member) = _exactly(_LOADED, message)
        return Loaded(_below(member, members, "member"))
    if kind == _KINDS[Checked]:
        (_, member) = _exactly(_LOADED, message)
        return Checked(_below(member, members, "member"))
    if kind == _KINDS[Ready]:
        _exactly(_READY, message)
        return Ready()
    if kind == _KINDS[Failure]:
        (_, code, member) = _leading(_FAILURE, message)
        text = message[_FAILURE.size :][:FAILURE_TEXT_BYTES].decode("utf-8", "replace")
        text = "".join(c for c in text if c.isprintable())  # it will be shown on terminals
        return Failure(_below(member, members, "member"), code, text)
    if shape is None:
        raise FrameError(f"a frame of kind {kind} before this member has loaded")
    if kind == _KINDS[Prefill]:
        return _prefill(message, shape, to_head)
    if kind == _KINDS[Decode]:
        return _decode(message, shape)
    if kind == _KINDS[Release]:
        (_, group, row) = _exactly(_RELEASE, message)
        return Release(_below(group, shape.groups, "group"), _below(row, shape.rows, "row"))
    raise FrameError(f"a frame of unknown kind {kind}")


def _prefill(message: bytes, shape: Shape, to_head: bool) -> Prefill:
    _, last, group, row, count, start, request, *source = _leading(_PREFILL, message)
    _below(last, 2, "last flag")
    for a, b in ((group, row), source):
        _below(a, shape.groups, "group")
        _below(b, shape.rows, "row")
    if not 1 <= count <= shape.chunk or start + count > shape.context:
        raise FrameError(f"a prefill of {count} positions from {start}")
    carried = last if to_head else count
    x = _activations(message, _PREFILL.size, carried, shape)
    return Prefill(request, group, row, start, count, bool(last), (source[0], source[1]), x)


def _decode(message: bytes, shape: Shape) -> Decode:
    _, group, count, step = _leading(_DECODE, message)
    _below(group, shape.groups, "group")
    if not 1 <= count <= shape.rows:
        raise FrameError(f"a decode step of {count} rows")
    end = _DECODE.size + 6 * count
    if len(message) < end:
        raise FrameError(f"a decode step cut at {len(message)} bytes")
    numbers = struct.unpack_from(f"<{count}H{count}I", message, _DECODE.size)
    rows, positions = numbers[:count], numbers[count:]
    if any(a >= b for a, b in itertools.pairwise(rows)):
        raise FrameError("a decode step whose rows do not ascend")
    _below(rows[-1], shape.rows, "row")
    _below(max(positions), shape.context, "position")
    x = _activations(message, end, count, shape)
    return Decode(group, step, rows, positions, x)


def _activations(message: bytes, offset: int, rows: int, shape: Shape) -> Array:
    expected = offset + rows * shape.hidden * shape.dtype.itemsize
    if len(message) != expected:
        raise FrameError(f"a frame of {len(message)} bytes where {expected} are due")
    flat = np.frombuffer(message, shape.dtype, count=rows * shape.hidden, offset=offset)
    return flat.reshape(rows, shape.hidden)


def _exactly(layout: struct.Struct, message: bytes) -> tuple[int, ...]:
    if len(message) != layout.size:
        raise FrameError(f"a frame of {len(message)} bytes where {layout.size} are due")
    return layout.unpack(message)


def _leading(layout: struct.Struct, message: bytes) -> tuple[int, ...]:
    if len(message) < layout.size:
        raise FrameError(f"a frame cut at {len(message)} bytes")
    return layout.unpack_from(message)


def _below(value: int, limit: int, what: str) -> int:
    if value >= limit:
        raise FrameError(f"{what} {value} where there are {limit}")
    return value
