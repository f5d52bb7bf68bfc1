"""Head and members together, over in-memory wires: the same tokens whatever the ring."""

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import pytest

from kafila.errors import KafilaError, NetworkProblem
from kafila.serve.frames import Array, Failure, Release, encode
from kafila.serve.generation import Generation, Params
from kafila.serve.scheduler import QueueFull
from tests.serve.paced import PacedStage
from tests.serve.rings import ask, fleet, read, until
from tests.serve.toy import ToyStage, divide

BLOCKS = 7
PROMPTS = [[5], [1, 2, 3], list(range(11)), [9] * 4, [4, 3, 2, 1, 0], [96], [7] * 20, [8, 8]]


def stages(members: int, **sizes: int) -> list[ToyStage]:
    return [ToyStage(blocks, **sizes) for blocks in divide(BLOCKS, members)]


async def serial(members: int) -> list[list[int]]:
    """Every prompt's tokens, asked one after the other."""
    async with fleet(stages(members)) as ring:
        return [await ask(ring.head, prompt, 12) for prompt in PROMPTS]


async def test_the_division_does_not_matter() -> None:
    alone = await serial(1)
    assert len({tuple(tokens) for tokens in alone}) == len(PROMPTS)
    for members in (2, 3, 5, 7):
        assert await serial(members) == alone


@pytest.mark.parametrize(
    ("members", "groups", "rows"), [(1, 1, 8), (2, 2, 4), (3, 3, 1), (4, 1, 3), (5, 4, 2)]
)
async def test_company_does_not_matter(members: int, groups: int, rows: int) -> None:
    expected = await serial(1)
    async with fleet(stages(members, groups=groups, rows=rows)) as ring:
        together = await asyncio.gather(*(ask(ring.head, p, 12) for p in PROMPTS))
        assert together == expected
        await until(lambda: ring.head.schedule.used == 0)
        assert all(len(member.slots) == 0 for member in ring.members)


async def test_sampling_follows_seed_and_position() -> None:
    draws: list[list[int]] = []
    for members in (1, 3):
        async with fleet(stages(members)) as ring:
            a, b, c = (
                ask(ring.head, [1, 2], 9, Params(temperature=1.0, seed=seed)) for seed in (1, 2, 1)
            )
            draws += await asyncio.gather(a, b, c)
    assert draws[0] == draws[2] == draws[3] == draws[5]
    assert draws[0] != draws[1]


async def test_a_request_ends_at_eos_or_with_its_context() -> None:
    async with fleet(stages(2, context=16)) as ring:
        tokens = await ask(ring.head, [1, 2, 3], 99)
        assert len(tokens) == 13
        generation = ring.head.submit([1, 2, 3], Params(), 99, frozenset([tokens[4]]))
        assert await read(generation) == tokens[: tokens.index(tokens[4]) + 1]
        assert generation.finish == "stop"
        full = ring.head.submit(list(range(15)), Params(), 99, frozenset())
        assert len(await read(full)) == 1
        assert full.finish == "length"


LONG = [*range(20), *range(5)] * 2


@pytest.mark.parametrize(
    ("members", "groups", "rows"), [(1, 1, 3), (2, 2, 4), (3, 3, 1), (4, 1, 3), (5, 4, 2)]
)
async def test_what_was_computed_before_does_not_matter(
    members: int, groups: int, rows: int
) -> None:
    """Prompts that begin alike, together and one after the other, over what earlier ones left."""
    prompts = [[*LONG[:n], *tail] for n in (9, 24, 31, 40) for tail in ([], [3], [3, 1], [4] * 9)]
    async with fleet(stages(1, groups=1, rows=1)) as ring:
        expected = []
        for prompt in prompts:
            expected.append(await ask(ring.head, prompt, 5))
            await ask(ring.head, [99] * 40, 1)  # so that nothing is left
    async with fleet(stages(members, groups=groups, rows=rows)) as ring:
        for _ in range(2):
            assert await asyncio.gather(*(ask(ring.head, p, 5) for p in prompts)) == expected
        cached = []
        for prompt, tokens in zip(prompts, expected, strict=True):
            generation = ring.head.submit(prompt, Params(), 5, frozenset())
            assert await read(generation) == tokens
            assert generation.cached is not None
            assert generation.cached % ring.head._stage.chunk == 0
            assert generation.cached < len(prompt)
            cached.append(generation.cached)
        assert cached[-1] >= 40
        assert all(cached[1:])


def reached(generation: Generation, tokens: int) -> bool:
    return generation.produced >= tokens


async def test_cancel_frees_the_slot_round_the_ring() -> None:
    expected = await serial(1)
    async with fleet(stages(3, groups=1, rows=2)) as ring:
        head = ring.head
        for progress in range(8):  # at every stage of a request's life
            doomed = head.submit(PROMPTS[2], Params(), 40, frozenset())
            await until(partial(reached, doomed, progress))
            doomed.cancel()
            assert doomed.finish == "cancelled"
            together = await asyncio.gather(*(ask(head, PROMPTS[i], 12) for i in (1, 2, 6)))
            assert together == [expected[i] for i in (1, 2, 6)]
        await until(lambda: head.schedule.used == 0)
        assert all(len(member.slots) == 0 for member in ring.members)


async def test_a_cancelled_request_in_the_queue_never_runs() -> None:
    async with fleet(stages(2, groups=1, rows=1)) as ring:
        first = ring.head.submit([1], Params(), 5, frozenset())
        queued = ring.head.submit([2], Params(), 5, frozenset())
        last = ring.head.submit([3], Params(), 5, frozenset())
        queued.cancel()
        assert len(await read(first)) == len(await read(last)) == 5
        assert await read(queued) == []


async def test_the_queue_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kafila.serve.head.WAITING_REQUESTS", 2)
    async with fleet(stages(2, groups=1, rows=1)) as ring:
        taken = [ring.head.submit([1], Params(), 5, frozenset()) for _ in range(3)]
        with pytest.raises(QueueFull):
            ring.head.submit([1], Params(), 5, frozenset())
        answers = [await read(generation) for generation in taken]
        assert answers[0] == answers[1] == answers[2]
        assert len(await ask(ring.head, [1], 5)) == 5


async def test_a_slow_client_stops_only_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kafila.serve.generation.UNREAD_TOKENS", 4)
    async with fleet(stages(3, groups=1, rows=2, context=200)) as ring:
        slow = ring.head.submit([1, 2, 3], Params(), 60, frozenset())
        other = await ask(ring.head, [1, 2, 3], 60)
        assert slow.produced <= 4
        assert await read(slow) == other


async def test_a_client_that_never_reads_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kafila.serve.generation.UNREAD_TOKENS", 4)
    monkeypatch.setattr("kafila.serve.generation.UNREAD_SECONDS", 0.05)
    async with fleet(stages(2)) as ring:
        slow = ring.head.submit([1, 2, 3], Params(), 50, frozenset())
        await until(lambda: slow.produced == 4)
        await until(lambda: ring.head.schedule.used == 0)
        with pytest.raises(KafilaError, match="unread"):
            await read(slow)


async def test_a_lost_member_ends_requests_with_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kafila.serve.ring.LAST_WORDS_SECONDS", 0.05)
    async with fleet(stages(4, context=10_000)) as ring:
        running = [ring.head.submit([i], Params(), 9000, frozenset()) for i in range(5)]
        await until(lambda: running[0].produced > 3)
        ring.wires[1].cut("timed out")  # between m1 and m2
        for generation in running:
            with pytest.raises(NetworkProblem, match="m1: lost m2: timed out"):
                await read(generation)
        with pytest.raises(NetworkProblem, match="m1: lost m2"):
            ring.head.submit([1], Params(), 5, frozenset())
        words = [str(await one.failed) for one in ring.rings]
        told = {"m1: lost m2: timed out", "m2: lost m1: timed out"}
        assert words[0] in told
        assert words[3] in told
        assert words[1] in {"lost m2: timed out", *told}
        assert words[2] in {"lost m1: timed out", *told}


@pytest.mark.parametrize("noticed", [0, 1])
async def test_who_notices_a_death_tells_those_behind(
    monkeypatch: pytest.MonkeyPatch, noticed: int
) -> None:
    """m2 is killed. Of its neighbours only one has noticed: the other one reads its words, once."""
    monkeypatch.setattr("kafila.serve.ring.LAST_WORDS_SECONDS", 0.05)
    async with fleet(stages(3, context=10_000)) as ring, asyncio.timeout(5):
        running = ring.head.submit([1], Params(), 9000, frozenset())
        await until(lambda: running.produced > 3)
        dead = ring.wires[2], ring.wires[1].peer
        for end in dead:
            end._open = False
        end = dead[noticed].peer
        end._open = False
        end.on_closed("nothing was heard of m2 for 15 s.")
        words = f"m{noticed}: lost m2: nothing was heard of m2 for 15 s"
        assert str(await ring.rings[1 - noticed].failed) == words
        with pytest.raises(NetworkProblem) as caught:
            await read(running)
        assert str(caught.value) == words


async def test_clients_read_who_says_that_the_ring_is_over() -> None:
    async with fleet(stages(2, context=10_000)) as ring, asyncio.timeout(5):
        running = ring.head.submit([1], Params(), 9000, frozenset())
        ring.rings[0].fail(NetworkProblem("this member was stopped"))
        for answer in (read(running), ask(ring.head, [1], 5)):
            with pytest.raises(NetworkProblem) as caught:
                await answer
            assert str(caught.value) == "m0: this member was stopped"
        assert str(await ring.rings[0].failed) == "this member was stopped"
        assert str(await ring.rings[1].failed) == "m0: this member was stopped"


class Spoilt(ToyStage):
    """From position 6 on, every output is passed through `spoil`."""

    def __init__(self, stage: ToyStage, spoil: Callable[[Array], Any]) -> None:
        super().__init__(stage.blocks, groups=stage.groups, rows=stage.rows)
        self._spoil = spoil

    def prefill(self, group: int, row: int, start: int, x: Array) -> Array:
        y = super().prefill(group, row, start, x)
        return self._spoil(y) if start >= 6 else y

    def decode(self, group: int, positions: Array, x: Array) -> Array:
        y = super().decode(group, positions, x)
        return self._spoil(y) if positions.max() >= 6 else y


def without_memory(y: Array) -> Array:
    raise MemoryError("no room left for block 3\nat a place nobody needs to read")


def stopped(y: Array) -> Array:
    return next(iter(()))  # a future would not take a StopIteration


SPOILT = {
    without_memory: "MemoryError: no room left",
    stopped: "StopIteration",
    (lambda y: y[:, :-1]): r"gave float32\[1, 7\] where float32\[1, 8\] is due",
    (lambda y: y[:0]): r"gave float32\[0, 8\]",
    (lambda y: y.astype(np.float64)): "gave float64",
    (lambda y: None): "AttributeError",
}


@pytest.mark.parametrize("prompt", [[1, 2], [1] * 9], ids=["decode", "prefill"])
@pytest.mark.parametrize("where", [0, 1, 2])
@pytest.mark.parametrize("spoil", SPOILT)
async def test_a_faulty_stage_is_told_to_everyone(
    spoil: Callable[[Array], Any], where: int, prompt: list[int]
) -> None:
    """Whatever a stage does: no request hangs, and all members hear what it was."""
    toys = stages(3)
    toys[where] = Spoilt(toys[where], spoil)
    async with fleet(toys) as ring, asyncio.timeout(5):
        with pytest.raises(KafilaError, match=f"it failed: .*{SPOILT[spoil]}"):
            await ask(ring.head, prompt, 30)
        words = [str(await one.failed) for one in ring.rings]
        assert not words[where].startswith("m")
        for member in {0, 1, 2} - {where}:
            assert words[member] == f"m{where}: {words[where]}"
        assert "nobody needs" not in words[0]


async def test_a_faulty_stage_alone() -> None:
    for spoil, words in SPOILT.items():
        async with fleet([Spoilt(stages(1)[0], spoil)]) as ring, asyncio.timeout(5):
            with pytest.raises(KafilaError, match=words):
                await ask(ring.head, [1, 2], 30)


async def test_what_cannot_be_carried_out_ends_the_ring() -> None:
    """Numbers that fit no array, a link that refuses: nobody waits for what will never come."""
    async with fleet(stages(2)) as ring, asyncio.timeout(5):
        with pytest.raises(KafilaError, match="it failed: OverflowError"):
            await ask(ring.head, [1], 5, Params(temperature=1.0, top_k=2**40))
        with pytest.raises(KafilaError, match="OverflowError"):
            await ask(ring.head, [1], 5)
        assert "m0: it failed: OverflowError" in str(await ring.rings[1].failed)
    async with fleet(stages(3)) as ring, asyncio.timeout(5):

        def refuse(channel: int, message: bytes) -> None:
            if channel:
                raise ValueError("too long")
            wire_send(channel, message)

        wire_send = ring.wires[1].send
        ring.wires[1].send = refuse  # type: ignore[method-assign]
        with pytest.raises(KafilaError, match="m1: it failed: ValueError: too long"):
            await ask(ring.head, [1], 5)


async def test_a_failures_words_cannot_move_the_cursor() -> None:
    async with fleet(stages(3)) as ring:
        ring.wires[0].send(0, encode(Failure(0, 6, "\x1b[2Jall is\r\nwell\u202e")))
        for one in ring.rings[1:]:
            assert str(await one.failed) == "m0: [2Jall iswell"


async def test_frames_that_do_not_fit_end_the_ring_naming_their_sender() -> None:
    async with fleet(stages(3)) as ring:
        ring.wires[0].send(1, b"\x02nonsense")
        words = [str(await one.failed) for one in ring.rings]
        assert words[1].startswith("m0 sent what this ring does not speak")
        assert words[0] == words[2] == f"m1: {words[1]}"


async def test_a_forged_release_is_refused() -> None:
    async with fleet(stages(2)) as ring:
        running = ring.head.submit([1], Params(), 50, frozenset())
        await until(lambda: running.produced > 2)
        ring.wires[1].send(0, encode(Release(0, 0)))
        with pytest.raises(NetworkProblem, match="never sent"):
            await read(running)


async def test_steps_slip_between_the_chunks_of_a_long_prompt() -> None:
    async with fleet(stages(3, groups=2, rows=2, context=800)) as ring:
        running = ring.head.submit([1], Params(), 700, frozenset())
        await until(lambda: running.produced > 2)
        before = running.produced
        long = ring.head.submit([2] * 400, Params(), 1, frozenset())
        short = ring.head.submit([3] * 9, Params(), 1, frozenset())
        assert len(await read(short)) == 1
        assert long.produced == 0
        assert len(await read(long)) == 1
        assert 10 < running.produced - before < 600
        running.cancel()


def busiest(paced: Sequence[PacedStage]) -> int:
    """The most stages that were at work at one moment."""
    spans = [span for stage in paced for span in stage.worked]
    return max(sum(a <= began < b for a, b in spans) for began, _ in spans)


async def test_paced_stages_overlap() -> None:
    """Four members, four groups: one request passes every stage alone, four keep all at work."""
    paced = [PacedStage(blocks, groups=4, rows=1) for blocks in divide(4, 4)]
    async with fleet(paced) as ring:
        await ask(ring.head, [1], 6)
        assert busiest(paced) == 1
        await asyncio.gather(*(ask(ring.head, [i], 12) for i in range(4)))
        assert busiest(paced) == 4
