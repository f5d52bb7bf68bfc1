"""Algorithm 1: divide a chain of equal blocks over devices in a fixed order, slowest stage least.

Chain-on-chain partitioning, exact (Pinar et al.); knows costs and limits, not where they come from.
"""

from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import replace

from kafila.plan.values import Affine, Division

_HALVINGS = 32
_FEW = 64
"""Candidates that are quicker sorted than halved away."""


def partition(blocks: int, devices: Sequence[Affine]) -> Division | None:
    """The division of `blocks` over all `devices`, at least one each, with the least bottleneck.

    None when the limits admit no division. O(km log km).
    """
    devices = reserved(blocks, devices)
    bottleneck = least_bound(devices, lambda bound: _fill(blocks, devices, bound) is not None)
    if bottleneck is None:
        return None
    counts = _fill(blocks, devices, bottleneck)
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


def _fill(blocks: int, devices: Sequence[Affine], bound: float) -> list[int] | None:
    """Feasible: one pass from left to right, each device taking all it may within `bound`.

    Optimal by exchange: a block that a device declines falls to a later one and cannot lower the
    bottleneck. One block stays reserved for each device still to come.
    """
    counts = []
    left, to_come = blocks, len(devices)
    for device in devices:
        to_come -= 1
        count = min(device.most(bound), left - to_come)
        if count < 1:
            return None
        counts.append(count)
        left -= count
    return counts if left == 0 else None
