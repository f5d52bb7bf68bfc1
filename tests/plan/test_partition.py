"""Algorithm 1 against brute force, where limits bind, devices are equal, or k is close to m."""

from collections.abc import Iterator, Sequence

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from kafila.plan.partition import partition
from kafila.plan.values import Affine


def divisions(blocks: int, devices: int) -> Iterator[tuple[int, ...]]:
    """All ways to give each device at least one block."""
    if devices == 1:
        if blocks >= 1:
            yield (blocks,)
        return
    for first in range(1, blocks - devices + 2):
        for rest in divisions(blocks - first, devices - 1):
            yield (first, *rest)


def brute_force(blocks: int, devices: Sequence[Affine]) -> float | None:
    return min(
        (
            max(device.cost(count) for device, count in zip(devices, counts, strict=True))
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


@settings(max_examples=3000)
@given(
    st.integers(1, 10),
    st.one_of(*(st.lists(kind, min_size=1, max_size=5) for kind in (whole, real, equal))),
)
@example(3, [Affine(0.0, 1.0, 1)] * 3)
@example(2, [Affine(0.0, 1.0, 9)] * 3)
@example(9, [Affine(5.0, 1.0, 9), Affine(0.0, 1.0, 2), Affine(0.0, 1.0, 9)])
def test_bottleneck_is_the_least_there_is(blocks: int, devices: list[Affine]) -> None:
    best = brute_force(blocks, devices)
    division = partition(blocks, devices)
    if best is None:
        assert division is None
        return
    assert division is not None
    assert division.cost_us == best
    assert sum(division.counts) == blocks
    assert all(
        1 <= count <= device.limit for count, device in zip(division.counts, devices, strict=True)
    )
    costs = [device.cost(count) for count, device in zip(division.counts, devices, strict=True)]
    assert max(costs) == best
    least = min(
        sum(costs)
        for counts in divisions(blocks, len(devices))
        for costs in [[each.cost(n) for each, n in zip(devices, counts, strict=True)]]
        if max(costs) == best
        and all(n <= each.limit for each, n in zip(devices, counts, strict=True))
    )
    assert sum(costs) == pytest.approx(least, rel=1e-12)


def test_no_devices_divide_nothing() -> None:
    assert partition(4, []) is None


def test_one_block_is_reserved_for_each_device_to_come() -> None:
    slow = Affine(0.0, 100.0, 99)
    division = partition(5, [Affine(0.0, 1.0, 99), slow, slow])
    assert division is not None
    assert division.counts == (3, 1, 1)


def test_a_large_chain_is_divided_exactly() -> None:
    """Far more candidates than could be tried one by one; checked by its own optimality."""
    devices = [Affine(float(i % 7), 1.0 + i % 11, 10_000) for i in range(60)]
    division = partition(5_000, devices)
    assert division is not None
    assert sum(division.counts) == 5_000
    below = division.cost_us * (1 - 1e-12)
    assert sum(device.most(below) for device in devices) < 5_000
