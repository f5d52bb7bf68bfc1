"""Head placement: one exact division for every rotation of the ring, and the opener's privilege.

Rotating a ring leaves its edges where they are, so the order that was chosen stays.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from kafila.plan.values import Device, Division
from kafila.words import gib

Divide = Callable[[tuple[Device, ...]], Division | None]
"""The best division of a ring that starts at its head, None when none fits."""


@dataclass(frozen=True, slots=True)
class Placement:
    """Where in the ring the head is, the division from there on, and why there."""

    start: int
    division: Division
    note: str


def place_head(
    ring: Sequence[Device],
    divide: Divide,
    *,
    margin: float,
    what: str,
    pinned: str | None = None,
    resident_bytes: int = 0,
) -> Placement | None:
    """The best rotation of `ring`, whose first member opened the session; None when none fits.

    The opener stays head unless another rotation costs less than opener * (1 - margin): a smaller
    difference is within the noise of measured overheads. `pinned` names the head instead. `what`
    and `resident_bytes` are for the note: what a cost is, and what a head keeps.
    """
    starts = [i for i, each in enumerate(ring) if pinned in (None, each.name)]
    divisions = {start: divide((*ring[start:], *ring[:start])) for start in starts}
    found = {start: each for start, each in divisions.items() if each is not None}
    if not found:
        return None
    best = min(found, key=lambda start: (found[start].cost_us, start))
    name, opener = ring[best].name, ring[0].name
    if pinned is not None:
        return Placement(best, found[best], f"head: {name}, as asked")
    if 0 not in found:
        note = (
            f"head: {name}, because nothing fits with {opener} as head, "
            f"which keeps {gib(resident_bytes)} beside its blocks"
        )
    elif found[best].cost_us < found[0].cost_us * (1 - margin):
        gain = 1 - found[best].cost_us / found[0].cost_us
        note = f"head: {name}; {what} is {gain:.1%} shorter than with {opener} as head"
    else:
        best = 0
        note = f"head: {opener} opened the session"
        if margin < 1:
            note += f", and no other makes {what} more than {margin:.0%} shorter"
    return Placement(best, found[best], note)
