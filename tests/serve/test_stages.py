"""Rings of real stages: together as one by one, in float32 and bfloat16, whatever the division."""

import asyncio
import dataclasses
from pathlib import Path

import numpy as np
import pytest

from kafila.serve.generation import Params
from stages.checkpoint import Checkpoint
from stages.stage import Stage
from tests.serve.rings import ask, fleet, read
from tests.serve.toy import divide
from tools.make_checkpoint import SIZES, write_checkpoint

BLOCKS = 3
PROMPTS = [
    [int(t) for t in np.random.default_rng(n).integers(0, 2048, 3 + 9 * n)] for n in range(8)
]
TOKENS = 16


@pytest.fixture(scope="module", params=["float32", "bfloat16"])
def checkpoint(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    config = dataclasses.replace(SIZES["tiny"], blocks=BLOCKS, dtype=request.param)
    return write_checkpoint(tmp_path_factory.mktemp("checkpoints") / request.param, config)


def stages(folder: Path) -> list[Stage]:
    opened = [
        Stage.open(
            Checkpoint.open(folder),
            blocks,
            head=blocks.start == 0,
            context=96,
            groups=2,
            rows=2,
        )
        for blocks in divide(BLOCKS, 2)
    ]
    for stage in opened:
        stage.chunk = 32  # so that prompts take several
    return opened


async def test_eight_together_are_eight_one_by_one(checkpoint: Path) -> None:
    async with fleet(stages(checkpoint)) as ring:
        one_by_one = [await ask(ring.head, prompt, TOKENS) for prompt in PROMPTS]
        assert len({tuple(tokens) for tokens in one_by_one}) == 8
        together = await asyncio.gather(*(ask(ring.head, p, TOKENS) for p in PROMPTS))
        assert together == one_by_one


async def test_what_was_computed_before_changes_no_answer(checkpoint: Path) -> None:
    """Prompts that begin alike, each after one that left nothing of use; then over each other's."""
    begin = [int(t) for t in np.random.default_rng(9).integers(0, 2048, 70)]
    prompts = [[*begin[:size], *tail] for size in (33, 70) for tail in ([], [7], [5] * 9)]
    async with fleet(stages(checkpoint)) as ring:
        head, alone = ring.head, []
        for prompt in prompts:
            await asyncio.gather(*(ask(head, [slot] * 64, 1) for slot in range(4)))
            alone.append(await ask(head, prompt, TOKENS))
        assert await asyncio.gather(*(ask(head, p, TOKENS) for p in prompts)) == alone
        assert [await ask(head, p, TOKENS) for p in reversed(prompts)] == alone[::-1]
        last = head.submit(prompts[-1], Params(), 1, frozenset())
        await read(last)
        assert last.cached == 64
