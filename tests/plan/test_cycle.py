"""The cheapest cycle against brute force, with many ties, and the local search beside it."""

from collections.abc import Sequence
from itertools import pairwise, permutations
from math import cos, hypot, pi, sin
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafila.defaults import EXACT_RING
from kafila.plan import cycle
from kafila.plan.cycle import Matrix, cheapest_cycle


def cycle_cost(costs: Matrix, order: Sequence[int]) -> int:
    """The sum round the closed cycle."""
    return sum(costs[a][b] for a, b in pairwise((*order, order[0])))


def brute_force(costs: Matrix) -> tuple[int, ...]:
    """The cheapest order that starts with 0; of equals the smallest."""
    return min(
        ((0, *rest) for rest in permutations(range(1, len(costs)))),
        key=lambda order: (cycle_cost(costs, order), order),
    )


def matrix(size: int, numbers: list[int]) -> list[list[int]]:
    costs = [[0] * size for _ in range(size)]
    left = iter(numbers)
    for i in range(size):
        for j in range(i):
            costs[i][j] = costs[j][i] = next(left)
    return costs


@st.composite
def matrices(draw: st.DrawFn, most: int, largest: int) -> list[list[int]]:
    size = draw(st.integers(1, most))
    pairs = size * (size - 1) // 2
    return matrix(size, draw(st.lists(st.integers(0, largest), min_size=pairs, max_size=pairs)))


@settings(max_examples=1500)
@given(st.one_of(matrices(6, 1), matrices(6, 3), matrices(6, 10**9)))
def test_exact_search_finds_the_first_of_the_cheapest(costs: list[list[int]]) -> None:
    assert cheapest_cycle(costs) == brute_force(costs)


@pytest.mark.parametrize("largest", [1, 4, 10**6])
@pytest.mark.parametrize("size", [7, 8])
def test_exact_search_of_seven_and_eight(size: int, largest: int) -> None:
    for seed in range(8):
        numbers = [Random(seed).randint(0, largest) for _ in range(size * size)]
        costs = matrix(size, numbers)
        assert cheapest_cycle(costs) == brute_force(costs)


def test_the_largest_exact_ring() -> None:
    """Sixteen points on a circle in disorder: the circle is the answer."""
    at = [(i * 7) % EXACT_RING for i in range(EXACT_RING)]
    assert walked(at) == list(range(EXACT_RING))


def test_above_it_a_circle_is_still_found() -> None:
    at = [(i * 7) % 40 for i in range(40)]
    assert walked(at) == list(range(40))


def walked(at: list[int]) -> list[int]:
    """Stations of a circle in the order that the cheapest cycle visits them."""
    points = [(cos(2 * pi * i / len(at)), sin(2 * pi * i / len(at))) for i in at]
    costs = [[round(1e6 * hypot(a[0] - b[0], a[1] - b[1])) for b in points] for a in points]
    stations = [at[i] for i in cheapest_cycle(costs)]
    forward = [(each - stations[0]) % len(at) for each in stations]
    return forward if forward[1] == 1 else [(-each) % len(at) for each in forward]


@settings(max_examples=200)
@given(matrices(9, 50))
def test_local_search_is_a_cycle_close_to_the_best(costs: list[list[int]]) -> None:
    if len(costs) < 4:
        return
    found = cycle._local_search(costs)
    assert sorted(found) == list(range(len(costs)))
    assert found[0] == 0
    best = cycle_cost(costs, cycle._held_karp(costs))
    assert best <= cycle_cost(costs, found)
    assert not cycle._reverse(costs, list(found))
    assert not cycle._move(costs, list(found))


def test_local_search_of_the_largest_ring_ends_where_nothing_improves() -> None:
    random = Random(0)
    costs = matrix(64, [random.randrange(10**6) for _ in range(64 * 63 // 2)])
    found = list(cheapest_cycle(costs))
    assert not cycle._reverse(costs, found)
    assert not cycle._move(costs, found)


def test_local_search_is_good_on_the_plane() -> None:
    """Within a tenth of the optimum for points of a plane, on average over these."""
    total, best = 0, 0
    for seed in range(12):
        random = Random(seed)
        points = [(random.random(), random.random()) for _ in range(11)]
        costs = [[round(1e6 * hypot(a[0] - b[0], a[1] - b[1])) for b in points] for a in points]
        total += cycle_cost(costs, cycle._local_search(costs))
        best += cycle_cost(costs, cycle._held_karp(costs))
    assert best <= total <= best * 1.1
