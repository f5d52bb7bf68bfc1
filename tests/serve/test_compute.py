"""The compute thread: order, bound, outcomes, and its end."""

import asyncio
import threading
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafila.serve.compute import Compute, Outcome
from kafila.serve.turns import Turns


@given(st.lists(st.booleans(), max_size=30))
def test_turns_keep_order_in_a_lane_and_starve_none(kinds: list[bool]) -> None:
    turns: Turns[tuple[bool, int]] = Turns(bound=30)
    for number, decode in enumerate(kinds):
        turns.push((decode, number), decode=decode)
    out = [turns.pop() for _ in kinds]
    for lane in (True, False):
        numbers = [number for decode, number in out if decode is lane]
        assert numbers == sorted(numbers)
    both = 2 * min(kinds.count(True), kinds.count(False))
    assert [decode for decode, _ in out[:both]] == [True, False] * (both // 2)
    with pytest.raises(IndexError):
        turns.pop()


def test_turns_are_bounded() -> None:
    turns: Turns[int] = Turns(bound=2)
    turns.push(1, decode=True)
    turns.push(2, decode=False)
    with pytest.raises(OverflowError):
        turns.push(3, decode=True)


async def test_calls_run_on_one_other_thread_in_their_turns() -> None:
    compute = Compute(bound=9)
    gate, begun = threading.Event(), threading.Event()
    ran: list[str] = []

    def wait() -> None:
        begun.set()
        gate.wait()

    done: list[Outcome[None]] = []
    compute.submit(wait, done.append)
    await asyncio.to_thread(begun.wait)
    for name in ("p1", "p2", "d1", "p3", "d2"):
        compute.submit(partial(ran.append, name), done.append, decode=name.startswith("d"))
    gate.set()
    assert await compute.run(threading.get_ident) != threading.get_ident()
    assert ran == ["d1", "p1", "d2", "p2", "p3"]
    assert [outcome.result() for outcome in done] == [None] * 6
    assert await compute.stop(5)


async def test_exceptions_arrive_and_the_thread_goes_on() -> None:
    compute = Compute(bound=2)
    with pytest.raises(ZeroDivisionError):
        await compute.run(lambda: 1 / 0)
    assert await compute.run(lambda: 7) == 7
    assert await compute.stop(5)


async def test_a_call_that_does_not_end_is_known() -> None:
    compute = Compute(bound=1)
    gate, begun = threading.Event(), threading.Event()

    def stuck() -> None:
        begun.set()
        gate.wait()

    call = asyncio.create_task(compute.run(stuck))
    await asyncio.to_thread(begun.wait)
    assert not await compute.stop(0.01)
    gate.set()
    await call
    assert await compute.stop(5)
