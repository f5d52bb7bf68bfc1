"""How much is known of the members, and what can still be planned with less (paper, section V-D).

Full: every stage is priced. Arithmetic: the same search on the ratio of arithmetic rates, without
the head's read, which they do not price. Working set: no search, blocks in proportion to room.
"""

from collections.abc import Sequence
from dataclasses import replace

from kafila.plan.cost import priced
from kafila.plan.values import Device, Model, Tier


def tier_of(devices: Sequence[Device]) -> tuple[Tier, str | None]:
    """The best tier that all reports allow, and whose missing number forbids a better one."""
    unpriced = next((each for each in devices if not priced(each)), None)
    if unpriced is None:
        return "full", None
    number = "bandwidth" if unpriced.bandwidth is None else "overhead"
    why = f"the probe of {unpriced.name} gave no {number}"
    slow = next((each for each in devices if each.flops is None), None)
    if slow is None:
        return "arithmetic", f"tier arithmetic: {why}"
    also = "" if slow is unpriced else f" that of {slow.name}"
    return "working-set", f"tier working-set: {why} and{also} no arithmetic rate"


def by_arithmetic(model: Model, devices: Sequence[Device]) -> tuple[Model, tuple[Device, ...]]:
    """A model and devices for the search, with arithmetic in place of everything that has a cost.

    The times that come of it have no unit; only their ratios mean something.
    """
    relative = tuple(
        replace(each, bandwidth=each.flops, overhead_us=0, block_ns=0) for each in devices
    )
    return replace(model, head_read_bytes=0), relative
