"""Rings of real stages: together as one by one, in float32 and bfloat16, whatever the division."""

import asyncio
import dataclasses
from pathlib import Path

import numpy as np
import pytest

from stages.checkpoint import Checkpoint
from stages.stage import Stage
from tests.serve.rings import ask, fleet
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
