"""Stages give what transformers gave, token for token, however the blocks are divided."""

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest

from stages import kernels
from stages.checkpoint import Checkpoint
from stages.sampling import Sampling
from stages.stage import Stage
from tools.make_checkpoint import SIZES, write_checkpoint
from tools.make_goldens import CASES, LOGITS_AT, NEW_TOKENS, PROMPT_TOKENS, Golden

DIVISIONS = [
    ("tied", (6,)),
    ("tied", (1, 5)),
    ("tied", (2, 1, 3)),
    ("tied", (1, 1, 2, 1, 1)),
    ("untied-sharded", (7,)),
    ("untied-sharded", (3, 4)),
    ("untied-sharded", (4, 1, 2)),
    ("untied-sharded", (2, 1, 1, 1, 2)),
    ("tied-spare", (4, 1)),
    ("yarn", (1, 3, 1)),
    ("yarn-new-keys", (1, 1, 1, 2, 1)),
]
PIECES = (PROMPT_TOKENS - 17, 17)
"""The prompt goes in more than one prefill, neither of a round size."""


@pytest.fixture(autouse=True, params=["kernels", "pure"])
def way(request: pytest.FixtureRequest) -> Iterator[None]:
    """Both ways a CPU may compute: with the kernels, where there are any, and in pure JAX."""
    with kernels.using(kernels.best() if request.param == "kernels" else None):
        yield


class Ring:
    """All stages of a ring in one process, one request at a time; the head comes first."""

    def __init__(self, folder: Path, division: Sequence[int]) -> None:
        checkpoint = Checkpoint.open(folder)
        stops = np.cumsum(division)
        self.stages = [
            Stage.open(
                checkpoint,
                range(int(stop) - count, int(stop)),
                head=member == 0,
                context=PROMPT_TOKENS + NEW_TOKENS,
                groups=1,
                rows=1,
            )
            for member, (count, stop) in enumerate(zip(division, stops, strict=True))
        ]

    def prefill(self, start: int, tokens: Sequence[int]) -> np.ndarray:
        """Residual stream [n, hidden] after the last block."""
        x = np.asarray(tokens, np.int32)
        for stage in self.stages:
            x = stage.prefill(0, 0, start, x)
        return x

    def greedy(self, prompt: Sequence[int], count: int) -> tuple[list[int], np.ndarray]:
        """The `count` next tokens, and the residual stream [n, hidden] of prompt and answer."""
        stream, start = [], 0
        for size in PIECES:
            stream.append(self.prefill(start, prompt[start : start + size]))
            start += size
        head, *others = self.stages
        answer: list[int] = []
        for position in range(start, start + count):
            positions = np.asarray([position], np.int32)
            tokens, x = head.step(0, positions, stream[-1][-1:], Sampling.greedy(1))
            for stage in others:
                x = stage.decode(0, positions, x)
            answer.append(int(tokens[0]))
            stream.append(x)
        return answer, np.concatenate(stream)


@pytest.mark.parametrize(("name", "division"), DIVISIONS)
def test_every_division_gives_the_golden(
    golden_folder: Callable[[str], Path], name: str, division: tuple[int, ...]
) -> None:
    golden = Golden.read(name)
    ring = Ring(golden_folder(name), division)
    tokens, stream = ring.greedy(CASES[name].prompt, NEW_TOKENS)
    assert tokens == golden.tokens
    logits = np.concatenate([ring.stages[0].logits(stream[at : at + 1]) for at in LOGITS_AT])
    np.testing.assert_allclose(logits, golden.logits, rtol=0, atol=1e-3)


def test_bfloat16_is_the_same_to_the_bit_for_every_division(tmp_path: Path) -> None:
    config = dataclasses.replace(SIZES["tiny"], vocab=512)
    folder = write_checkpoint(tmp_path / "model", config, seed=1)
    prompt = CASES["tied"].prompt
    tokens, stream = Ring(folder, (6,)).greedy(prompt, 40)
    assert len(set(tokens)) > 20
    for division in [(2, 4), (1, 1, 2, 1, 1)]:
        same_tokens, same_stream = Ring(folder, division).greedy(prompt, 40)
        assert same_tokens == tokens
        assert same_stream.tobytes() == stream.tobytes()
