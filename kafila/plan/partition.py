"""Algorithm 1: divide a chain of equal blocks over devices in a fixed order, slowest stage least.

Chain-on-chain partitioning, exact (Pinar et al.); knows costs and limits, not where they come from.
"""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass

from kafila.plan.values import Division

_HALVINGS = 32


@dataclass(frozen=True, slots=True)
class Affine:
    """A device's stage cost fixed + n * per (per > 0) and its lim(i), the most blocks it holds."""

    fixed: float
    per: float
    limit: int

    def cost(self, blocks: int) -> float:
        """Stage time with that many blocks."""
        return self.fixed + blocks * self.per

    def most(self, bound: float) -> int:
        """The most blocks whose cost is within `bound`, exactly as `cost` rounds; 0 if none."""
        blocks = int(min(max((bound - self.fixed) / self.per, 0), self.limit))
        while blocks < self.limit and self.cost(blocks + 1) <= bound:
            blocks += 1
        while blocks > 0 and self.cost(blocks) > bound:
            blocks -= 1
        return blocks


def partition(blocks: int, devices: Sequence[Affine]) -> Division | None:
    """The division of `blocks` over all `devices`, at least one each, with the least bottleneck.

    None when the limits admit no division. The bottleneck is one of the k*m candidates
    fixed(i) + n*per(i); sorting them and searching with one pass a test is O(km log km). Halving
    the interval first leaves only few candidates to sort: O(m) for each halving.
    """
    room = blocks - len(devices) + 1  # everybody else gets a block too
    devices = [Affine(each.fixed, each.per, min(each.limit, room)) for each in devices]
    low, high = 0.0, max((each.cost(each.limit) for each in devices), default=0.0)
    if _fill(blocks, devices, high) is None:
        return None
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        if _fill(blocks, devices, middle) is None:
            low = middle
        else:
            high = middle
    candidates = sorted(
        each.cost(count)
        for each in devices
        for count in range(each.most(low) + 1, each.most(high) + 1)
    )
    best = bisect_left(
        candidates, True, key=lambda bound: _fill(blocks, devices, bound) is not None
    )
    counts = _fill(blocks, devices, candidates[best])
    assert counts is not None
    return Division(tuple(counts), candidates[best])


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
