"""The order of the ring: cheapest by measured round trips, or fewest relays where some are missing.

Costs are whole microseconds: in floats the all-relayed rings, which all cost the same, are no ties.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from kafila.plan.cycle import cheapest_cycle
from kafila.plan.edges import predicted_us
from kafila.plan.reach import PaperClass, paper_class, predict
from kafila.plan.values import Device, Order


@dataclass(frozen=True, slots=True)
class Ordered:
    """The ring, which starts with the anchor; by what it was ordered, and a word about it."""

    ring: tuple[Device, ...]
    by: Order
    note: str | None


def order_ring(devices: Sequence[Device], anchor: str, by: Order = "cost") -> Ordered:
    """Arrange `devices` in a ring that starts with `anchor`.

    By cost: the least sum of edge prices, of equals the least ring separation (the sum of
    |r_A - r_B|), of equals the first by name. Where an edge has no price, or where `by` asks for
    it: the fewest relayed edges, of equals the first by name.
    """
    members = sorted(devices, key=lambda device: (device.name != anchor, device.name))
    if by == "cost":
        unpriced = _unpriced(members)
        if unpriced is None:
            chosen = cheapest_cycle(_prices(members))
            return Ordered(tuple(members[i] for i in chosen), "cost", None)
        note = f"order: fewest relays, because {unpriced} has no round trip to the rendezvous"
        return Ordered(_fewest_relays(members), "relays", note)
    return Ordered(_fewest_relays(members), "relays", "order: fewest relays, as asked")


def _unpriced(members: Sequence[Device]) -> str | None:
    """Who keeps the ring from being priced: an untimed member of a pair that has no price."""
    for i, a in enumerate(members):
        for b in members[i + 1 :]:
            if predicted_us(a, b) is None:
                return a.name if a.rtt_us is None else b.name
    return None


def _prices(members: Sequence[Device]) -> list[list[int]]:
    """Cost and separation of every pair in one number: any cost outweighs all separations."""
    prices = [[0 if a is b else predicted_us(a, b) or 0 for b in members] for a in members]
    apart = [[_separation(a, b) for b in members] for a in members]
    weight = 1 + sum(max(row) for row in apart)
    return [
        [price * weight + separation for price, separation in zip(*rows, strict=True)]
        for rows in zip(prices, apart, strict=True)
    ]


def _separation(a: Device, b: Device) -> int:
    return 0 if a.rtt_us is None or b.rtt_us is None else abs(a.rtt_us - b.rtt_us)


def _fewest_relays(members: Sequence[Device]) -> tuple[Device, ...]:
    classes = [paper_class(member.nat) for member in members]
    relayed = [[predict(a, b).path == "relayed" for b in members] for a in members]
    three = all(
        relayed[i][j] == classes_relay(classes[i], classes[j])
        for i in range(len(members))
        for j in range(i)
    )
    if three and not {"unknown", "blocked"} & set(classes):
        chosen: Sequence[int] = alternate(classes)
    else:
        chosen = cheapest_cycle([[int(each) for each in row] for row in relayed])
    return tuple(members[i] for i in chosen)


def classes_relay(a: PaperClass, b: PaperClass) -> bool:
    """The paper's rule: a restrictive member reaches only permissive ones."""
    return "restrictive" in (a, b) and "permissive" not in (a, b)


def alternate(classes: Sequence[PaperClass]) -> tuple[int, ...]:
    """The paper's closed form: permissive and restrictive in turn, starting with the first.

    The rest of the two follows, then the ordinary: at most one stretch of restrictive members
    touches anything but permissive ones. Linear, and as few relayed edges as there can be, which
    is `least_relays`.
    """
    permissive, restrictive, ordinary = (
        [i for i, each in enumerate(classes) if each == wanted]
        for wanted in ("permissive", "restrictive", "ordinary")
    )
    pairs = min(len(permissive), len(restrictive))
    ring = [i for both in zip(permissive, restrictive, strict=False) for i in both]
    ring += restrictive[pairs:] + permissive[pairs:] + ordinary
    start = ring.index(0)
    return (*ring[start:], *ring[:start])


def least_relays(permissive: int, ordinary: int, restrictive: int) -> int:
    """Relayed edges of the best ring of three or more members.

    None if no member is restrictive or the permissive ones are at least as many; where an
    ordinary member is present too, they must be one more (the paper's "if and only if" overlooks
    it): every stretch of restrictive members needs a permissive one on both sides.
    """
    if not restrictive:
        return 0
    return max(0, restrictive - permissive + (1 if ordinary else 0))
