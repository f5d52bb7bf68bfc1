"""The cheapest cycle through all members of a symmetric matrix of whole costs.

Exact (Held-Karp) up to EXACT_RING members, a local search above. Knows indices, no members.
"""

from collections.abc import Sequence
from operator import add

from kafila.defaults import EXACT_RING

Matrix = Sequence[Sequence[int]]


def cheapest_cycle(costs: Matrix) -> tuple[int, ...]:
    """An order of 0..m-1 that starts with 0, whose closed cycle costs least.

    `costs` is symmetric with whole numbers >= 0. Up to EXACT_RING members it is the optimum, and
    of several the one that is smallest when compared index by index. Above, no reversal of a
    stretch and no move of one to three neighbours improves it.
    """
    if len(costs) <= 3:
        return tuple(range(len(costs)))
    return _held_karp(costs) if len(costs) <= EXACT_RING else _local_search(costs)


def _held_karp(costs: Matrix) -> tuple[int, ...]:
    """O(2^m m^2): best[visited][last] is the least cost from 0 through `visited` to `last`.

    Costs are symmetric, so that is also the least cost back from `last`: the optimum is read off
    from 0 without back pointers, at each step the smallest index that still leads to it.
    """
    others = len(costs) - 1
    never = sum(map(sum, costs)) + 1  # more than any cycle
    # arrive[j]: by where it came from; `never` plus a cost stays above every real path
    arrive = [[costs[i + 1][j + 1] for i in range(others)] for j in range(others)]
    best = [[never] * others for _ in range(1 << others)]
    for j in range(others):
        best[1 << j][j] = costs[0][j + 1]
    for visited in range(3, 1 << others):
        if visited & (visited - 1):
            row = best[visited]
            for j in range(others):
                if visited >> j & 1:
                    row[j] = min(map(add, best[visited ^ 1 << j], arrive[j]))
    order, left = [0], (1 << others) - 1
    while left:
        here = order[-1]
        least = best[left]
        step = min(
            (j for j in range(others) if left >> j & 1),
            key=lambda j: costs[here][j + 1] + least[j],
        )
        order.append(step + 1)
        left ^= 1 << step
    return tuple(order)


def _local_search(costs: Matrix) -> tuple[int, ...]:
    """Cheapest insertion, then 2-opt and Or-opt in turn until neither improves anything."""
    order = [0]
    for new in range(1, len(costs)):
        place = min(
            range(len(order)),
            key=lambda i: (
                costs[order[i]][new]
                + costs[new][order[(i + 1) % len(order)]]
                - costs[order[i]][order[(i + 1) % len(order)]]
            ),
        )
        order.insert(place + 1, new)
    improved = True
    while improved:
        improved = _reverse(costs, order) or _move(costs, order)
    at = order.index(0)
    forward = (*order[at:], *order[:at])
    return min(forward, (0, *forward[:0:-1]))


def _reverse(costs: Matrix, order: list[int]) -> bool:
    """2-opt: reverse the first stretch for which that is cheaper."""
    size = len(order)
    for i in range(size - 1):
        for j in range(i + 1, size):
            a, b, c, d = order[i - 1], order[i], order[j], order[(j + 1) % size]
            if a != c and costs[a][c] + costs[b][d] < costs[a][b] + costs[c][d]:
                order[i : j + 1] = order[i : j + 1][::-1]
                return True
    return False


def _move(costs: Matrix, order: list[int]) -> bool:
    """Or-opt: put one to three neighbours elsewhere, where that is cheaper."""
    size = len(order)
    for length in (1, 2, 3):
        for start in range(size):
            turned = order[start:] + order[:start]
            piece, rest = turned[:length], turned[length:]
            saved = costs[rest[-1]][piece[0]] + costs[piece[-1]][rest[0]] - costs[rest[-1]][rest[0]]
            for i in range(len(rest) - 1):
                a, b = rest[i], rest[i + 1]
                added = costs[a][piece[0]] + costs[piece[-1]][b] - costs[a][b]
                if added < saved:
                    order[:] = rest[: i + 1] + piece + rest[i + 1 :]
                    return True
    return False
