"""The pipeline: devices, model and load in, a Plan out. Pure; raises what admission refuses."""

from collections.abc import Sequence

from kafila.errors import UsageProblem
from kafila.plan.admission import (
    Fit,
    Refused,
    check_members,
    need_bytes,
    refusal,
    share_rooms,
)
from kafila.plan.cost import context_us, edge_us, stage_us
from kafila.plan.groups import choose_groups, shared_token_us
from kafila.plan.head import divide, place_head
from kafila.plan.values import Device, Edge, Load, Model, Path, Plan, Predictions, Stage


def make_plan(model: Model, load: Load, devices: Sequence[Device], anchor: str) -> Plan:
    """Plan `model` over `devices` for `load`; `anchor` is who would be head if all were equal.

    The ring follows the order of `devices`. Raises Refused, NotAdmitted, BadFile, UsageProblem.
    """
    check_members(model, devices)
    check_load(model, load)
    devices, notes = share_rooms(devices)
    first = [device.name for device in devices].index(anchor)
    ring = (*devices[first:], *devices[:first])
    placement = place_head(model, load, ring)
    if placement is None:
        raise _does_not_fit(model, load, ring, notes)
    ring, counts = placement.ring, placement.division.counts
    paths: list[Path] = ["direct"] * len(ring)
    if placement.note:
        notes = (*notes, placement.note)
    groups = best_groups(model, load, ring, counts, paths)
    return evaluate(model, load, ring, counts, paths, groups, notes)


def check_load(model: Model, load: Load) -> None:
    """The declared load must be one that the model can serve."""
    if load.context > model.max_context:
        raise UsageProblem(
            f"{model.name} reaches {model.max_context} tokens; a context of {load.context} is "
            f"too long: --context {model.max_context}"
        )


def _does_not_fit(
    model: Model, load: Load, ring: Sequence[Device], notes: Sequence[str]
) -> Refused:
    """The refusal: the division that speed alone would choose, and who cannot hold its part."""
    wanted = divide(model, None, ring)
    assert wanted is not None  # there are no more members than blocks
    return refusal(
        model,
        load,
        fits_of(model, load, ring, wanted.counts, 1),
        lambda other: place_head(model, other, ring) is not None,
        notes,
    )


def fits_of(
    model: Model, load: Load, ring: Sequence[Device], counts: Sequence[int], groups: int
) -> tuple[Fit, ...]:
    """Need against room of every member of a division."""
    return tuple(
        Fit(
            device.name,
            device.room_bytes,
            need_bytes(model, load, device, blocks, groups, head=position == 0),
        )
        for position, (device, blocks) in enumerate(zip(ring, counts, strict=True))
    )


def best_groups(
    model: Model,
    load: Load,
    ring: Sequence[Device],
    counts: Sequence[int],
    paths: Sequence[Path],
) -> int:
    """The number of groups to serve a division in."""
    edges_us = one_way_us(edges_of(ring, paths))
    return choose_groups(
        load.concurrency,
        lambda groups: shared_token_us(model, load, ring, counts, edges_us, groups),
        lambda groups: (
            not any(fit.short_bytes for fit in fits_of(model, load, ring, counts, groups))
        ),
    )


def edges_of(ring: Sequence[Device], paths: Sequence[Path]) -> tuple[Edge | None, ...]:
    """The edge from each member to the next; a ring of one has none."""
    if len(ring) == 1:
        return (None,)
    following = (*ring[1:], ring[0])
    return tuple(
        Edge(after.name, path, edge_us(device, after, path))
        for device, after, path in zip(ring, following, paths, strict=True)
    )


def one_way_us(edges: Sequence[Edge | None]) -> float:
    """Once round the ring in microseconds: a token crosses an edge in one direction only.

    Untimed edges count nothing, so the prediction is then a lower bound.
    """
    return sum((edge.cost_us or 0) / 2 for edge in edges if edge is not None)


def evaluate(
    model: Model,
    load: Load,
    ring: Sequence[Device],
    counts: Sequence[int],
    paths: Sequence[Path],
    groups: int,
    notes: Sequence[str] = (),
) -> Plan:
    """Everything that follows from a division once it is decided, whoever decided it.

    `ring` starts at the head. Nothing is refused here: compare needs and rooms of the result.
    """
    edges = edges_of(ring, paths)
    fits = fits_of(model, load, ring, counts, groups)
    stages = []
    start = 0
    for position, (device, blocks) in enumerate(zip(ring, counts, strict=True)):
        stages.append(
            Stage(
                device=device,
                blocks=range(start, start + blocks),
                stage_us=stage_us(model, device, blocks, head=position == 0),
                context_us=context_us(model, device, blocks, load.context),
                need_bytes=fits[position].need_bytes,
                room_bytes=device.room_bytes,
                edge=edges[position],
            )
        )
        start += blocks
    edges_us = one_way_us(edges)
    empty = sum(stage.stage_us for stage in stages) + edges_us
    predictions = Predictions(
        bottleneck_us=max(stage.stage_us for stage in stages),
        token_us=empty,
        token_full_us=empty + sum(stage.context_us for stage in stages),
        shared_token_us=shared_token_us(model, load, ring, counts, edges_us, groups),
    )
    return Plan(model, load, groups, tuple(stages), predictions, tuple(notes))
