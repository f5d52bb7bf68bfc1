"""The `load` division against brute force: any costs, limits, network times and groups."""

from collections.abc import Sequence

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from kafila.plan.circuit import at_least, quickest, token_us
from kafila.plan.values import Affine
from tests.plan.test_partition import divisions


def brute_force(
    blocks: int, devices: Sequence[Affine], network_us: float, groups: int, uplink_us: float
) -> float | None:
    return min(
        (
            token_us(
                [device.cost(count) for device, count in zip(devices, counts, strict=True)],
                network_us,
                groups,
                uplink_us,
            )
            for counts in divisions(blocks, len(devices))
            if all(count <= device.limit for device, count in zip(devices, counts, strict=True))
        ),
        default=None,
    )


whole = st.builds(
    Affine, st.integers(0, 6).map(float), st.integers(1, 4).map(float), st.integers(-1, 10)
)
real = st.builds(Affine, st.floats(0, 1e4), st.floats(1e-3, 1e4), st.integers(0, 10))
equal = st.builds(Affine, st.just(0.0), st.just(1.0), st.integers(1, 10))


@settings(max_examples=4000)
@given(
    st.integers(1, 10),
    st.one_of(*(st.lists(kind, min_size=1, max_size=4) for kind in (whole, real, equal))),
    st.integers(0, 30).map(float) | st.floats(0, 1e5),
    st.integers(1, 6),
    st.integers(0, 9).map(float) | st.floats(0, 1e5),
)
@example(3, [Affine(0.0, 1.0, 1)] * 3, 0.0, 4, 0.0)
@example(9, [Affine(0.0, 1.0, 9), Affine(0.0, 3.0, 9)], 0.0, 2, 0.0)
def test_time_between_tokens_is_the_least_there_is(
    blocks: int, devices: list[Affine], network_us: float, groups: int, uplink_us: float
) -> None:
    best = brute_force(blocks, devices, network_us, groups, uplink_us)
    division = quickest(blocks, devices, network_us, groups, uplink_us)
    if best is None:
        assert division is None
        return
    assert division is not None
    assert division.cost_us == pytest.approx(best, rel=1e-12)
    assert division.groups == groups
    assert sum(division.counts) == blocks
    assert all(
        1 <= count <= device.limit for count, device in zip(division.counts, devices, strict=True)
    )
    costs = [device.cost(count) for count, device in zip(division.counts, devices, strict=True)]
    assert division.cost_us == token_us(costs, network_us, groups, uplink_us)
    assert at_least(blocks, devices, network_us, groups, uplink_us) <= best * (1 + 1e-12)


def test_one_group_fills_the_fastest() -> None:
    division = quickest(9, [Affine(0.0, 3.0, 9), Affine(0.0, 1.0, 6), Affine(0.0, 2.0, 9)], 5.0, 1)
    assert division is not None
    assert division.counts == (1, 6, 2)
    assert division.cost_us == 3 + 6 + 4 + 5


def test_many_groups_balance() -> None:
    division = quickest(9, [Affine(0.0, 1.0, 9)] * 3, 0.0, 9)
    assert division is not None
    assert division.counts == (3, 3, 3)


def test_between_the_two_it_stops_where_the_slowest_stage_would_decide() -> None:
    """Ten blocks, one device twice as fast: seven and three take 13 once round, two groups 14."""
    division = quickest(10, [Affine(0.0, 1.0, 10), Affine(0.0, 2.0, 10)], 0.0, 2)
    assert division is not None
    assert (division.counts, division.cost_us) in (((6, 4), 16.0), ((7, 3), 14.0))
    assert division.cost_us == 14.0


def test_an_uplink_that_decides_leaves_the_division_as_it_was() -> None:
    """Two groups of 14 keep the stages busy, of 20 the uplink: 40 whoever holds what."""
    devices = [Affine(0.0, 1.0, 10), Affine(0.0, 2.0, 10)]
    free, busy = (quickest(10, devices, 0.0, 2, uplink) for uplink in (0.0, 20.0))
    assert free is not None
    assert busy is not None
    assert busy.counts == free.counts
    assert (free.cost_us, busy.cost_us) == (14.0, 40.0)
