"""Frames survive the wire, and nothing else gets through."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from ml_dtypes import bfloat16

from kafila.defaults import MAX_CHANNELS
from kafila.serve import frames
from kafila.serve.frames import (
    Checked,
    Decode,
    Failure,
    Frame,
    FrameError,
    Loaded,
    Prefill,
    Ready,
    Release,
    Shape,
)

MEMBERS = 5
SHAPES = [
    Shape(hidden=3, dtype=np.dtype(np.float32), groups=2, rows=4, context=40, chunk=8),
    Shape(hidden=6, dtype=np.dtype(bfloat16), groups=3, rows=1, context=9, chunk=16),
]


@st.composite
def some(draw: st.DrawFn) -> tuple[Frame, Shape, bool]:
    """A frame that its ring could send, the ring's shape, and whether the head receives it."""
    shape, to_head = draw(st.sampled_from(SHAPES)), draw(st.booleans())
    group, row = draw(st.integers(0, shape.groups - 1)), draw(st.integers(0, shape.rows - 1))
    kind = draw(st.sampled_from([Prefill, Decode, Release, Loaded, Ready, Failure, Checked]))

    def x(n: int) -> frames.Array:
        bits = draw(st.binary(min_size=2 * n * shape.hidden, max_size=2 * n * shape.hidden))
        return np.frombuffer(bits, np.uint16).astype(shape.dtype).reshape(n, shape.hidden)

    if kind is Prefill:
        start = draw(st.integers(0, shape.context - 1))
        count = draw(st.integers(1, min(shape.chunk, shape.context - start)))
        last = draw(st.booleans())
        carried = int(last) if to_head else count
        request = draw(st.integers(0, 2**32 - 1))
        source = draw(st.integers(0, shape.groups - 1)), draw(st.integers(0, shape.rows - 1))
        frame = Prefill(request, group, row, start, count, last, source, x(carried))
        return frame, shape, to_head
    if kind is Decode:
        rows = draw(st.sets(st.integers(0, shape.rows - 1), min_size=1))
        positions = [draw(st.integers(0, shape.context - 1)) for _ in rows]
        step = draw(st.integers(0, 2**32 - 1))
        decode = Decode(group, step, tuple(sorted(rows)), tuple(positions), x(len(rows)))
        return decode, shape, to_head
    if kind is Release:
        return Release(group, row), shape, to_head
    if kind is Loaded or kind is Checked:
        return kind(draw(st.integers(0, MEMBERS - 1))), shape, to_head
    if kind is Failure:
        member, code = draw(st.integers(0, MEMBERS - 1)), draw(st.integers(0, 255))
        text = "".join(c for c in draw(st.text(max_size=100)) if c.isprintable())
        return Failure(member, code, text), shape, to_head
    return Ready(), shape, to_head


def fields(frame: Frame) -> list[object]:
    """All of a frame, comparable."""
    values = list(vars(frame).values())
    return [
        type(frame),
        *((v.tobytes(), v.shape) if isinstance(v, np.ndarray) else v for v in values),
    ]


@given(some())
def test_round_trip(case: tuple[Frame, Shape, bool]) -> None:
    frame, shape, to_head = case
    back = frames.decode(frames.encode(frame), members=MEMBERS, shape=shape, to_head=to_head)
    assert fields(back) == fields(frame)


@given(some())
def test_none_is_larger_than_the_largest(case: tuple[Frame, Shape, bool]) -> None:
    frame, shape, _ = case
    if isinstance(frame, Prefill | Decode):
        assert len(frames.encode(frame)) <= frames.largest(shape)


def test_the_largest_is_reached() -> None:
    for shape in SHAPES:
        count = min(shape.chunk, shape.context)
        x = np.zeros((count, shape.hidden), shape.dtype)
        chunk = Prefill(1, 0, 0, 0, count, False, (0, 0), x)
        rows = tuple(range(shape.rows))
        step = Decode(0, 1, rows, rows, np.zeros((shape.rows, shape.hidden), shape.dtype))
        most = max(len(frames.encode(frame)) for frame in (chunk, step))
        assert most <= frames.largest(shape)
        assert most == frames.largest(shape) or shape.chunk > shape.context


@given(some(), st.data())
def test_any_other_length_is_refused(case: tuple[Frame, Shape, bool], data: st.DataObject) -> None:
    frame, shape, to_head = case
    message = frames.encode(frame)
    if isinstance(frame, Failure):  # its text may have any length
        message = message[:4]
    cut = data.draw(st.integers(0, len(message) - 1))
    others = [message[:cut]] if isinstance(frame, Failure) else [message[:cut], message + b"\0"]
    for other in others:
        with pytest.raises(FrameError):
            frames.decode(other, members=MEMBERS, shape=shape, to_head=to_head)


@given(st.binary(max_size=200), st.sampled_from(SHAPES), st.booleans())
def test_garbage_is_refused_or_within_the_shape(
    message: bytes, shape: Shape, to_head: bool
) -> None:
    try:
        frame = frames.decode(message, members=MEMBERS, shape=shape, to_head=to_head)
    except FrameError:
        return
    if isinstance(frame, Prefill):
        assert frame.start + frame.count <= shape.context
    if isinstance(frame, Decode):
        assert max(frame.rows) < shape.rows
        assert max(frame.positions) < shape.context
    if isinstance(frame, Loaded | Failure):
        assert frame.member < MEMBERS


@pytest.mark.parametrize(
    ("frame", "complaint"),
    [
        (Release(2, 0), "group 2 where there are 2"),
        (Release(0, 4), "row 4 where there are 4"),
        (Loaded(5), "member 5 where there are 5"),
        (Prefill(1, 0, 0, 36, 8, False, (0, 0), np.zeros((8, 3), np.float32)), "8 positions from"),
        (Prefill(1, 0, 0, 0, 9, False, (0, 0), np.zeros((9, 3), np.float32)), "9 positions from 0"),
        (Prefill(1, 0, 0, 0, 2, False, (0, 0), np.zeros((2, 4), np.float32)), "bytes where"),
        (Prefill(1, 0, 0, 1, 1, True, (2, 0), np.zeros((1, 3), np.float32)), "group 2 where"),
        (Prefill(1, 0, 0, 1, 1, True, (0, 4), np.zeros((1, 3), np.float32)), "row 4 where"),
        (Decode(0, 1, (1, 1), (5, 5), np.zeros((2, 3), np.float32)), "do not ascend"),
        (Decode(0, 1, (1,), (40,), np.zeros((1, 3), np.float32)), "position 40"),
        (Decode(0, 1, (0, 7), (5, 5), np.zeros((2, 3), np.float32)), "row 7"),
    ],
)
def test_what_the_ring_does_not_have_is_refused(frame: Frame, complaint: str) -> None:
    with pytest.raises(FrameError, match=complaint):
        frames.decode(frames.encode(frame), members=MEMBERS, shape=SHAPES[0], to_head=False)


def test_only_control_frames_pass_before_loading() -> None:
    message = frames.encode(Loaded(1))
    assert frames.decode(message, members=MEMBERS, shape=None, to_head=True) == Loaded(1)
    with pytest.raises(FrameError, match="before this member has loaded"):
        frames.decode(frames.encode(Release(0, 0)), members=MEMBERS, shape=None, to_head=True)


def test_a_failures_text_is_bounded() -> None:
    message = frames.encode(Failure(0, 6, "é" * 5000))
    frame = frames.decode(message, members=MEMBERS, shape=None, to_head=False)
    assert isinstance(frame, Failure)
    assert len(frame.text) <= 1001


def test_groups_and_prefill_have_channels_of_their_own() -> None:
    x = np.zeros((1, 3), np.float32)
    used = [frames.channel(Decode(g, 0, (0,), (0,), x)) for g in range(62)]
    used += [frames.channel(Prefill(1, 3, 0, 0, 1, True, (3, 0), x))]
    used += [frames.channel(Release(1, 1))]
    assert sorted(used) == list(range(MAX_CHANNELS))
    assert 1 <= frames.channel(Decode(500, 0, (0,), (0,), x)) <= 62
    assert frames.channel(Prefill(1, 500, 0, 0, 1, True, (0, 0), x)) == 63
