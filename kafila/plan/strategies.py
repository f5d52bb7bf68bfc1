"""The strategies: how a ring is divided, by name, with as much knowledge as there is.

`load` and `bottleneck` search with the cost model; the others are what other systems do.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from kafila.errors import UsageProblem
from kafila.plan.admission import all_fit, fits_of, limit
from kafila.plan.circuit import at_least, quickest
from kafila.plan.cost import batch, stage
from kafila.plan.edges import hops_us, uplink_us
from kafila.plan.groups import choose_groups, rows_of, sensible_groups, shared_token_us
from kafila.plan.head import Divide, Placement, place_head
from kafila.plan.partition import partition
from kafila.plan.shares import proportional, uniform
from kafila.plan.tiers import by_arithmetic
from kafila.plan.values import Choice, Device, Division, Load, Model, Path, Strategy, Tier
from kafila.words import counted

_NOISE = 1e-3
"""Microseconds: what floats may differ by, so that more groups are not taken for nothing."""


@dataclass(frozen=True, slots=True)
class Ground:
    """What is to be divided: a model for a load, over a ring whose first member is the opener.

    `paths[i]` leads from `ring[i]` to the next; `head` is who must be head, None for the best.
    """

    model: Model
    load: Load
    ring: tuple[Device, ...]
    paths: tuple[Path, ...]
    tier: Tier
    margin: float
    head: str | None = None

    def network_us(self, rows: int) -> float:
        """Once round all edges with that many rows."""
        return sum(hops_us(self.model, self.ring, self.paths, rows))


def decide(ground: Ground, strategy: Strategy) -> tuple[Choice, str] | None:
    """What `strategy` makes of it within everybody's room, and why that head; None if none fits."""
    if strategy in ("load", "bottleneck"):
        placed = _searched(ground, strategy, capped=True)
    else:
        placed = _shared(ground, strategy)
    if placed is None:
        return None
    chosen = _rotated(ground, placed)
    if ground.tier == "full" and strategy != "load":
        groups = best_groups(ground.model, ground.load, chosen)
        return None if groups is None else (replace(chosen, groups=groups), placed.note)
    fits = fits_of(ground.model, ground.load, chosen.ring, chosen.counts, chosen.groups)
    return (chosen, placed.note) if all_fit(fits) else None


def wanted(ground: Ground, strategy: Strategy) -> tuple[Choice, str]:
    """The division `strategy` would choose if memory did not matter: the one that is refused.

    For `load` that is the balanced one of `bottleneck`: filling only the fastest member would
    name the wrong one as undersized.
    """
    if strategy in ("load", "bottleneck"):
        placed = _searched(ground, "bottleneck", capped=False)
    else:
        placed = _shared(ground, strategy)
    assert placed is not None  # there are no more members than blocks
    return _rotated(ground, placed), placed.note


def best_groups(model: Model, load: Load, choice: Choice) -> int | None:
    """The number of groups to serve a priced division in; None where none fits."""

    def network_us(rows: int) -> float:
        return sum(hops_us(model, choice.ring, choice.paths, rows))

    return choose_groups(
        load.concurrency,
        lambda groups: shared_token_us(model, load, choice.ring, choice.counts, network_us, groups),
        lambda groups: all_fit(fits_of(model, load, choice.ring, choice.counts, groups)),
    )


def _rotated(ground: Ground, placed: Placement) -> Choice:
    at = placed.start
    return Choice(
        ring=(*ground.ring[at:], *ground.ring[:at]),
        counts=placed.division.counts,
        paths=(*ground.paths[at:], *ground.paths[:at]),
        groups=placed.division.groups,
    )


def _searched(ground: Ground, strategy: Strategy, *, capped: bool) -> Placement | None:
    """Head and division together, as well as the tier allows."""
    what = "the slowest stage"
    if ground.tier == "working-set":
        divide = _by_room(ground, capped=capped)
    elif ground.tier == "full" and strategy == "load":
        divide = _by_load(ground)
        what = f"the time between tokens of {counted(ground.load.concurrency, 'user')}"
    else:
        divide = _balanced(ground, capped=capped)
    return place_head(
        ground.ring,
        divide,
        margin=ground.margin if ground.tier == "full" else 1.0,
        what=what,
        pinned=ground.head,
        resident_bytes=ground.model.head_resident_bytes,
    )


def _limits(ground: Ground, ring: Sequence[Device], groups: int) -> list[int]:
    return [
        limit(ground.model, ground.load, device, groups, head=position == 0)
        for position, device in enumerate(ring)
    ]


def _balanced(ground: Ground, *, capped: bool) -> Divide:
    """Algorithm 1 on eq. 2, or on what the tier has instead; without a cap memory is no limit."""

    def within(ring: tuple[Device, ...], limits: Sequence[int]) -> Division | None:
        model, devices = ground.model, ring
        if ground.tier == "arithmetic":
            model, devices = by_arithmetic(model, ring)
        stages = [
            stage(model, device, head=position == 0, limit=most)
            for position, (device, most) in enumerate(zip(devices, limits, strict=True))
        ]
        return partition(model.blocks, stages)

    if capped:
        return lambda ring: _in_fewest_groups(ground, ring, within)
    return lambda ring: within(ring, [ground.model.blocks] * len(ring))


def _in_fewest_groups(
    ground: Ground,
    ring: tuple[Device, ...],
    within: Callable[[tuple[Device, ...], Sequence[int]], Division | None],
) -> Division | None:
    """The division within the limits of one group; of more where their smaller workspace is what
    makes one fit."""
    for groups in sensible_groups(ground.load.concurrency):
        division = within(ring, _limits(ground, ring, groups))
        if division is not None:
            return replace(division, groups=groups)
    return None


def _by_load(ground: Ground) -> Divide:
    """The least time between tokens over every sensible number of groups, fewer where equal."""
    model, load = ground.model, ground.load

    def divide(ring: tuple[Device, ...]) -> Division | None:
        best: Division | None = None
        for groups in sensible_groups(load.concurrency):
            rows = rows_of(load, groups)
            stages = [
                batch(model, load, device, rows, head=position == 0, limit=most)
                for position, (device, most) in enumerate(
                    zip(ring, _limits(ground, ring, groups), strict=True)
                )
            ]
            travel = (ground.network_us(rows), groups, uplink_us(model, ring, rows))
            if best and at_least(model.blocks, stages, *travel) >= best.cost_us:
                continue
            division = quickest(model.blocks, stages, *travel)
            if division and (best is None or division.cost_us < best.cost_us - _NOISE):
                best = division
        return best

    return divide


def _by_room(ground: Ground, *, capped: bool) -> Divide:
    """In proportion to the blocks that each has room for: it fits whenever anything does."""
    blocks = ground.model.blocks

    def within(ring: tuple[Device, ...], limits: Sequence[int]) -> Division | None:
        if min(limits) < 1 or sum(limits) < blocks:
            return None
        return Division(proportional(blocks, limits), 0.0)

    if capped:
        return lambda ring: _in_fewest_groups(ground, ring, within)
    return lambda ring: Division(proportional(blocks, [each.room_bytes for each in ring]), 0.0)


def _shared(ground: Ground, strategy: Strategy) -> Placement:
    """The rules that look at no cost: the head stays with the opener."""

    def divide(ring: tuple[Device, ...]) -> Division:
        if strategy == "uniform":
            return Division(uniform(ground.model.blocks, len(ring)), 0.0)
        shares = [
            device.room_bytes if strategy == "memory" else _bandwidth(device) for device in ring
        ]
        return Division(proportional(ground.model.blocks, shares), 0.0)

    head = ground.head or ground.ring[0].name
    placed = place_head(ground.ring, divide, margin=1.0, what="", pinned=head)
    assert placed is not None
    if ground.head is None:
        return Placement(placed.start, placed.division, f"head: {head} opened the session")
    return placed


def _bandwidth(device: Device) -> int:
    if device.bandwidth is None:
        raise UsageProblem(f"--strategy bandwidth: the probe of {device.name} gave no bandwidth")
    return device.bandwidth
