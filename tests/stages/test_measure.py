"""The probe's figures come from the code that serves; here they must exist and be sane."""

import dataclasses

import jax
import psutil
import pytest

from stages import random
from stages.compile import workspace
from stages.measure import ROWS, Measured, Shapes, _Product, measure_device, per_block
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
    assert 1e6 < found.bandwidth < 1e14  # bytes a second, of a toaster and of no machine
    assert 1e6 < found.flops < 1e16
    assert 0 <= found.block_ns <= found.rows_ns[1] / 2 + 1
    assert 2**20 < found.runtime_bytes < psutil.virtual_memory().total
    assert found.workspace_base > 0
    assert found.workspace_row >= 4 * CONFIG.vocab  # a row's logits at least
    assert [done for _, done, _ in told] == list(range(len(told)))
    assert told[-1][1] == told[-1][2]


def test_a_block_is_reading_and_what_it_takes_beside(found: Measured) -> None:
    """The plan's price of a block is what was measured, however little of a tiny one is reading."""
    size = CONFIG.block_weights * CONFIG.itemsize
    said = found.block_ns + 1e9 * size / found.bandwidth
    assert said == pytest.approx(found.rows_ns[1], rel=0.02)


def test_a_blocks_time_is_free_of_the_calls_overhead() -> None:
    steps = [0.010, 0.012]
    assert per_block(steps, [0.001, 0.002, 0.009], 4) == pytest.approx([0.002, 0.0025])
    assert per_block([0.001], [0.002], 5) == pytest.approx([0.0001]), "noise, not less than nothing"


def test_arithmetic_is_measured_with_weights_as_they_are_kept() -> None:
    """A prefill of int8 widens each matrix first, which may take as long as the product."""
    for config in (CONFIG, dataclasses.replace(CONFIG, kept="int8")):
        timed = _Product(config)
        weight, *_ = jax.tree.leaves(timed._weight)
        assert (weight.shape, str(weight.dtype)) == config.block_leaves()["gate"]
        assert min(timed.rates(0)) > 0


def test_the_workspace_covers_what_a_stage_needs(found: Measured) -> None:
    """The coefficients, against the executables of a stage of other rows and context."""
    block, head = random.block(CONFIG), random.head(CONFIG)
    stage = Stage(CONFIG, [block], head, context=700, groups=1, rows=4)
    said = found.workspace_base + 4 * found.workspace_row + 700 * found.workspace_context
    sets = stage._decode, stage._prefill, stage._sample, stage._enter
    assert max(workspace(executable) for some in sets for executable in some.values()) <= said


def test_standard_shapes_are_those_of_the_smallest_qwen3() -> None:
    assert Shapes.standard() == Shapes.of(SIZES["0.6B"])
