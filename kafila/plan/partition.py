"""Algorithm 1: divide a chain of equal blocks over devices in a fixed order, slowest stage least.

Chain-on-chain partitioning, exact (Pinar et al.); knows costs and limits, not where they come from.
"""

from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import replace
from math import inf

from kafila.plan.values import Affine, Division

_HALVINGS = 32
_FEW = 64
"""Candidates that are quicker sorted than halved away."""


def partition(blocks: int, devices: Sequence[Affine]) -> Division | None:
    """The division of `blocks` over all `devices`, at least one each, with the least bottleneck.

    Of the divisions that have it the one with the least sum, so that no slow device holds more
    than it must. None when the limits admit no division. O(km log km).
    """
    devices = reserved(blocks, devices)
    bottleneck = least_bound(devices, lambda bound: _feasible(blocks, devices, bound))
    if bottleneck is None:
        return None
    counts = cheapest(blocks, devices, bottleneck)
    assert counts is not None
    return Division(tuple(counts), bottleneck)


def reserved(blocks: int, devices: Sequence[Affine]) -> list[Affine]:
    """`devices` whose limits leave a block to everybody else."""
    room = blocks - len(devices) + 1
    return [replace(each, limit=min(each.limit, room)) for each in devices]


def least_bound(devices: Sequence[Affine], holds: Callable[[float], bool]) -> float | None:
    """The least stage cost that any device can have for which `holds`, which is monotone in it.

    None where it never holds. The bottleneck of a division is one of the k*m candidates
    fixed(i) + n*per(i); they are sorted and searched. Halving the interval first leaves only few
    to sort: O(m) for each halving.
    """
    low, high = 0.0, max((each.cost(each.limit) for each in devices), default=0.0)
    if not holds(high):
        return None
    for _ in range(_HALVINGS):
        if sum(each.most(high) - each.most(low) for each in devices) <= _FEW:
            break
        middle = (low + high) / 2
        if holds(middle):
            high = middle
        else:
            low = middle
    candidates = sorted(
        each.cost(count)
        for each in devices
        for count in range(each.most(low) + 1, each.most(high) + 1)
    )
    return candidates[bisect_left(candidates, True, key=holds)]


def _feasible(blocks: int, devices: Sequence[Affine], bound: float) -> bool:
    """One pass from left to right, each device taking all it may within `bound`.

    Right by exchange: a block that a device declines falls to a later one and cannot lower the
    bottleneck. One block stays reserved for each device still to come.
    """
    left, to_come = blocks, len(devices)
    for device in devices:
        to_come -= 1
        count = min(device.most(bound), left - to_come)
        if count < 1:
            return False
        left -= count
    return left == 0


def cheapest(blocks: int, devices: Sequence[Affine], bound: float) -> list[int] | None:
    """The division with the least sum of stage costs among those with none above `bound`: one
    block for everybody, the others to whom they cost least. None where there is none."""
    counts = [1] * len(devices)
    most = [device.limit if bound == inf else device.most(bound) for device in devices]
    left = blocks - len(devices)
    if min(most) < 1 or sum(most) < blocks:
        return None
    for i in sorted(range(len(devices)), key=lambda i: devices[i].per):
        more = min(left, most[i] - 1)
        counts[i] += more
        left -= more
    return counts
