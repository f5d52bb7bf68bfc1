"""A member computes on its slots only what can be right."""

import numpy as np
import pytest

from kafila.serve.frames import Decode, FrameError, Prefill, Release
from kafila.serve.slots import Slots

X = np.zeros((0, 1), np.float32)


def chunk(
    request: int, row: int, start: int, count: int, source: tuple[int, int] | None = None
) -> Prefill:
    return Prefill(request, 0, row, start, count, False, source or (0, row), X)


def step(row: int, position: int) -> Decode:
    return Decode(0, 1, (row,), (position,), X)


def filled(*chunks: Prefill) -> Slots:
    slots = Slots()
    for each in chunks:
        slots.prefill(each)
    return slots


def test_a_request_fills_its_slot_in_order() -> None:
    slots = filled(chunk(1, 0, 0, 4), chunk(1, 0, 4, 3))
    slots.decode(step(0, 7))
    assert len(slots) == 1
    slots.release(Release(0, 0))
    assert len(slots) == 0


def test_the_next_request_may_go_on_from_what_is_there() -> None:
    slots = filled(chunk(1, 0, 0, 8))
    slots.release(Release(0, 0))
    slots.prefill(chunk(2, 0, 4, 4))
    slots.decode(step(0, 8))


def test_what_another_slot_holds_may_be_copied() -> None:
    slots = filled(chunk(1, 0, 0, 8), chunk(2, 1, 4, 4, (0, 0)), chunk(2, 1, 8, 1))
    slots.release(Release(0, 0))
    slots.prefill(chunk(3, 2, 8, 1, (0, 0)))  # it is still there


@pytest.mark.parametrize(
    "wrong",
    [
        chunk(1, 0, 3, 1),  # written over
        chunk(1, 0, 5, 1),  # with a gap
        chunk(2, 0, 4, 1),  # another's
        chunk(1, 0, 4, 1, (0, 1)),  # copied over in the middle
        chunk(2, 1, 4, 1),  # after what is not there
        chunk(2, 1, 5, 1, (0, 0)),  # after more than the source has
        chunk(2, 1, 1, 1, (0, 2)),  # from a slot that was never used
    ],
)
def test_a_chunk_that_does_not_fit_is_refused(wrong: Prefill) -> None:
    slots = filled(chunk(1, 0, 0, 4))
    with pytest.raises(FrameError, match=f"a prefill from {wrong.start} of request"):
        slots.prefill(wrong)


def test_a_step_that_does_not_fit_is_refused() -> None:
    slots = filled(chunk(1, 0, 0, 4))
    for wrong in (step(0, 3), step(0, 5), step(1, 0)):
        with pytest.raises(FrameError, match="a step at"):
            slots.decode(wrong)
    slots.release(Release(0, 0))
    with pytest.raises(FrameError, match="a step at 4"):
        slots.decode(step(0, 4))
