"""The probe's figures come from the code that serves; here they must exist and be sane."""

import dataclasses

import numpy as np
import psutil
import pytest

from stages import random
from stages.measure import ROWS, Measured, Shapes, measure_device
from stages.stage import Stage
from tools.make_checkpoint import SIZES

CONFIG = SIZES["tiny"]


@pytest.fixture(scope="module")
def told() -> list[tuple[str, int, int]]:
    return []


@pytest.fixture(scope="module")
def found(told: list[tuple[str, int, int]]) -> Measured:
    return measure_device(Shapes.of(CONFIG), lambda *progress: told.append(progress))


def test_measures_the_shapes_of_a_small_model(
    found: Measured, told: list[tuple[str, int, int]]
) -> None:
    assert found.platform == "cpu"
    assert found.device_bytes is None
    assert list(found.rows_ns) == list(ROWS)
    for value in dataclasses.asdict(found).values():
        assert value is None or not isinstance(value, int) or value >= 0
    block_bytes = 2 * sum(int(np.prod(shape)) for shape in CONFIG.block_shapes().values())
    # One and the same measurement, told in two ways.
    assert abs(block_bytes / found.bandwidth - found.rows_ns[1] / 1e9) < 0.2 * (
        found.rows_ns[1] / 1e9
    )
    assert 2**20 < found.runtime_bytes < psutil.virtual_memory().total
    assert found.workspace_base > 0
    assert found.workspace_row >= 4 * CONFIG.vocab  # a row's logits at least
    assert [done for _, done, _ in told] == list(range(len(told)))
    assert told[-1][1] == told[-1][2]


def test_the_workspace_covers_what_a_stage_needs(found: Measured) -> None:
    """The coefficients, against the executables of a stage of other rows and context."""
    block, head = random.block(CONFIG), random.head(CONFIG)
    stage = Stage(CONFIG, [block], head, context=700, groups=1, rows=4)
    said = found.workspace_base + 4 * found.workspace_row + 700 * found.workspace_context
    assert stage.workspace <= said


def test_standard_shapes_are_those_of_the_smallest_qwen3() -> None:
    assert Shapes.standard() == Shapes.of(SIZES["0.6B"])
