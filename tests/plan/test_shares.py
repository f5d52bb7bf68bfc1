"""Divisions by share: every block once, nobody without one, and the published examples."""

from hypothesis import given
from hypothesis import strategies as st

from kafila.plan.shares import proportional, uniform


@given(st.integers(1, 12), st.integers(0, 60))
def test_uniform_differs_by_one_at_most(devices: int, more: int) -> None:
    counts = uniform(devices + more, devices)
    assert sum(counts) == devices + more
    assert max(counts) - min(counts) <= 1
    assert list(counts) == sorted(counts, reverse=True)


@given(st.lists(st.integers(0, 1000), min_size=1, max_size=9), st.integers(0, 60))
def test_proportional_is_within_a_block_of_the_share(shares: list[int], more: int) -> None:
    blocks, total = len(shares) + more, sum(shares)
    counts = proportional(blocks, shares)
    assert sum(counts) == blocks
    assert min(counts) >= 1
    if total and all(blocks * share >= total for share in shares):
        for share, count in zip(shares, counts, strict=True):
            assert abs(count - blocks * share / total) < 1


def test_remainders_go_to_the_largest_fractions_and_nobody_gets_nothing() -> None:
    assert proportional(40, [36, 96, 64, 96, 36]) == (4, 12, 8, 12, 4)
    assert proportional(5, [1, 1, 1]) == (2, 2, 1)
    assert proportional(4, [1000, 1, 1]) == (2, 1, 1)
    assert proportional(3, [0, 0, 0]) == (1, 1, 1)
