"""Head placement: Algorithm 1 once for every rotation of the ring, and the anchor's privilege.

Rotating a ring leaves its edges where they are, so the order that was chosen stays.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from kafila.defaults import HEAD_MARGIN
from kafila.plan.admission import limit
from kafila.plan.cost import block_us, fixed_us
from kafila.plan.partition import Affine, partition
from kafila.plan.values import Device, Division, Load, Model
from kafila.words import gib


@dataclass(frozen=True, slots=True)
class Placement:
    """`ring` starts at the head and `division` follows it; `note` says why, where it needs to."""

    ring: tuple[Device, ...]
    division: Division
    note: str | None


def place_head(
    model: Model, load: Load, ring: Sequence[Device], margin: float = HEAD_MARGIN
) -> Placement | None:
    """The best rotation of `ring`, whose first is the anchor; None when no rotation fits.

    The anchor stays head unless another rotation's bottleneck is below anchor * (1 - margin):
    a smaller difference is within the noise of measured overheads. O(m) exact partitions.
    """
    rotations = [(*ring[start:], *ring[:start]) for start in range(len(ring))]
    divisions = [divide(model, load, rotation) for rotation in rotations]
    found = [
        (division.bottleneck_us, start)
        for start, division in enumerate(divisions)
        if division is not None
    ]
    if not found:
        return None
    least, best = min(found)
    anchor = divisions[0]
    name, host = ring[best].name, ring[0].name
    if anchor is None:
        note = (
            f"head: {name}, because no division fits with {host} as head, "
            f"which keeps {gib(model.head_resident_bytes)} beside its blocks"
        )
    elif least < anchor.bottleneck_us * (1 - margin):
        gain = 1 - least / anchor.bottleneck_us
        note = f"head: {name}; the slowest stage is {gain:.0%} shorter than with {host} as head"
    else:
        best, note = 0, None
    division = divisions[best]
    assert division is not None
    return Placement(rotations[best], division, note)


def divide(model: Model, load: Load | None, ring: Sequence[Device]) -> Division | None:
    """Algorithm 1 for a ring that starts at its head; without a load memory does not limit it."""
    return partition(
        model.blocks,
        [
            Affine(
                fixed_us(model, device, head=position == 0),
                block_us(model, device),
                limit(model, load, device, head=position == 0) if load else model.blocks,
            )
            for position, device in enumerate(ring)
        ],
    )
