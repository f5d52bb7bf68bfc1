"""The `load` strategy's division: the least time between tokens of requests that travel in groups.

Exact for a given head and number of groups; knows costs and limits, not where they come from.
"""

from collections.abc import Sequence
from dataclasses import replace
from math import inf, nextafter

from kafila.plan.partition import cheapest, least_bound, reserved
from kafila.plan.values import Affine, Division


def token_us(
    costs: Sequence[float], network_us: float, groups: int, uplink_us: float = 0.0
) -> float:
    """Every group gets its next token after once round the ring, or after the slowest stage has
    served all groups, or the busiest uplink (`uplink_us` a group) has sent them all, whichever is
    longest (DESIGN 3.5)."""
    return max(sum(costs) + network_us, groups * max(costs), groups * uplink_us)


def quickest(
    blocks: int,
    devices: Sequence[Affine],
    network_us: float,
    groups: int,
    uplink_us: float = 0.0,
) -> Division | None:
    """The division of `blocks` over all `devices`, at least one each, with the least `token_us`.

    None when the limits admit no division. For a bound on the slowest stage the least sum fills
    the cheapest devices first. A higher bound never makes that sum longer and always makes the
    other side longer, so the optimum is where they cross: the first candidate bound at which the
    slowest stage decides, or the last before it. No division changes what uplinks take: that is a
    floor under all of them.
    """
    devices = reserved(blocks, devices)

    def slowest_decides(bound: float) -> bool:
        counts = cheapest(blocks, devices, bound)
        if counts is None:
            return False
        slowest = max(device.cost(device.most(bound)) for device in devices)
        return groups * slowest >= sum(_costs(devices, counts)) + network_us

    # With one group the slowest stage never decides alone: it is part of the sum.
    crossing = least_bound(devices, slowest_decides) if groups > 1 else None
    bounds = (inf,) if crossing is None else (crossing, nextafter(crossing, 0.0))
    divisions = [
        Division(tuple(counts), token_us(_costs(devices, counts), network_us, groups), groups)
        for counts in (cheapest(blocks, devices, bound) for bound in bounds)
        if counts is not None
    ]
    best = min(divisions, key=lambda division: division.cost_us, default=None)
    return best and replace(best, cost_us=max(best.cost_us, groups * uplink_us))


def at_least(
    blocks: int,
    devices: Sequence[Affine],
    network_us: float,
    groups: int,
    uplink_us: float = 0.0,
) -> float:
    """No division has a smaller `token_us`: blocks in fractions, without limits. O(m)."""
    rate = sum(1 / device.per for device in devices)
    bottleneck = (blocks + sum(device.fixed / device.per for device in devices)) / rate
    fixed = sum(device.cost(1) for device in devices)
    once = fixed + (blocks - len(devices)) * min(device.per for device in devices) + network_us
    return max(once, groups * bottleneck, groups * uplink_us)


def _costs(devices: Sequence[Affine], counts: Sequence[int]) -> list[float]:
    return [device.cost(count) for device, count in zip(devices, counts, strict=True)]
