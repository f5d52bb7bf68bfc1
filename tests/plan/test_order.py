"""The order of the ring: price, separation, names, and relays by counting classes."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import permutations, product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafila.plan.edges import edge_us, pair_us, predicted_us
from kafila.plan.order import alternate, classes_relay, least_relays, order_ring
from kafila.plan.reach import PaperClass, predict
from kafila.plan.values import Device, Nat
from tests.plan.fleets import ORDINARY, PERMISSIVE, RESTRICTIVE, device

CLASSES: tuple[PaperClass, ...] = ("permissive", "ordinary", "restrictive")


def rings(devices: Sequence[Device]) -> Iterator[tuple[Device, ...]]:
    """All rings that start with the first device, by name."""
    for rest in permutations(sorted(devices[1:], key=lambda each: each.name)):
        yield (devices[0], *rest)


def price(ring: Sequence[Device]) -> int:
    return sum(predicted_us(a, b) or 0 for a, b in zip(ring, (*ring[1:], ring[0]), strict=True))


def separation(ring: Sequence[Device]) -> int:
    return sum(
        abs((a.rtt_us or 0) - (b.rtt_us or 0))
        for a, b in zip(ring, (*ring[1:], ring[0]), strict=True)
    )


def relays(ring: Sequence[Device]) -> int:
    return sum(
        predict(a, b).path == "relayed" for a, b in zip(ring, (*ring[1:], ring[0]), strict=True)
    )


def names(ring: Sequence[Device]) -> list[str]:
    return [each.name for each in ring]


nats = st.builds(
    Nat,
    st.sampled_from(["endpoint-independent", "address-dependent", "unknown"]),
    st.sampled_from(
        ["endpoint-independent", "address-dependent", "address-and-port-dependent", "unknown"]
    ),
    st.booleans() | st.just(False),
    st.sampled_from([None, "203.0.113.7"]),
    st.sampled_from([(), ("10.0.0.0/8",)]),
    st.booleans(),
)


def fleets(most: int, rtts: st.SearchStrategy[int | None]) -> st.SearchStrategy[list[Device]]:
    members = st.lists(st.tuples(nats, rtts), min_size=1, max_size=most)
    return members.map(
        lambda specs: [
            device("hgfedcba"[i], nat=nat, rtt_us=rtt) for i, (nat, rtt) in enumerate(specs)
        ]
    )


@settings(max_examples=1000)
@given(fleets(6, st.integers(0, 5) | st.integers(1000, 300_000)))
def test_priced_order_is_cheapest_then_closest_then_first(devices: list[Device]) -> None:
    found = order_ring(devices, devices[0].name)
    best = min(rings(devices), key=lambda ring: (price(ring), separation(ring), names(ring)))
    assert found.by == "cost"
    assert names(found.ring) == names(best)


def test_priced_order_of_eight() -> None:
    kinds = (PERMISSIVE, ORDINARY, RESTRICTIVE, RESTRICTIVE)
    for seed in range(3):
        members = [
            device(
                f"d{i}",
                nat=kinds[(i * 5 + seed) % 4],
                rtt_us=(i * 37_777 + seed * 911) % 90_000 + 3000,
            )
            for i in range(8)
        ]
        found = order_ring(members, "d0").ring
        best = min(rings(members), key=lambda ring: (price(ring), separation(ring), names(ring)))
        assert names(found) == names(best)


def test_all_relayed_rings_cost_the_same_and_separation_decides() -> None:
    """The paper's degenerate case: two members who share a site end up beside each other."""
    rtts = {"a": 20_000, "b": 110_000, "c": 21_000, "d": 111_000, "e": 60_000}
    members = [device(name, nat=RESTRICTIVE, rtt_us=rtt) for name, rtt in rtts.items()]
    costs = {price(ring) for ring in rings(members)}
    assert costs == {2 * sum(rtts.values())}
    ring = names(order_ring(members, "a").ring)
    assert "c" in (ring[1], ring[-1])
    assert abs(ring.index("b") - ring.index("d")) == 1
    assert separation(order_ring(members, "a").ring) == min(map(separation, rings(members)))


def test_a_measured_pair_replaces_the_bound() -> None:
    """b and c are equally far from the rendezvous, and far from each other."""
    a, b, c = (device(name, rtt_us=50_000) for name in "abc")
    assert predicted_us(b, c) == 0
    far = replace(b, pairs_us=(("c", 90_000),))
    assert predicted_us(far, c) == predicted_us(c, far) == 90_000
    both = replace(c, pairs_us=(("b", 90_011), ("a", 7)))
    assert pair_us(far, both) == 90_005
    assert predicted_us(a, both) == 7
    assert edge_us(far, both, "relayed") == 100_000
    members = [a, far, c, device("d", rtt_us=50_000)]
    ring = names(order_ring(members, "a").ring)
    assert abs(ring.index("b") - ring.index("c")) == 2


def test_somebody_untimed_leaves_counting() -> None:
    members = [device("a", rtt_us=5), device("b"), device("c", rtt_us=7)]
    found = order_ring(members, "a")
    assert found.by == "relays"
    assert found.note == "order: fewest relays, because b has no round trip to the rendezvous"


def test_who_needs_no_rendezvous_needs_no_time() -> None:
    """All pairs are within a machine or measured, so every ring has a price."""
    a, b = (device(name, machine="m") for name in "ab")
    c = device("c", pairs_us=(("a", 300), ("b", 100)))
    assert order_ring([a, b, c], "a").by == "cost"


@settings(max_examples=1000)
@given(fleets(6, st.none()))
def test_unpriced_order_has_the_fewest_relays(devices: list[Device]) -> None:
    lone = all(each.machine == devices[0].machine for each in devices)
    found = order_ring(devices, devices[0].name, "cost" if not lone else "relays")
    assert found.ring[0] is devices[0]
    assert sorted(names(found.ring)) == sorted(names(devices))
    assert relays(found.ring) == min(map(relays, rings(devices)))


MULTISETS = [(p, o, r) for p, o, r in product(range(9), repeat=3) if 1 <= p + o + r <= 8]


def arrangements(p: int, o: int, r: int) -> Iterator[tuple[PaperClass, ...]]:
    if not p + o + r:
        yield ()
        return
    for i, (kind, left) in enumerate(zip(CLASSES, (p, o, r), strict=True)):
        if left:
            counts = [p, o, r]
            counts[i] -= 1
            for rest in arrangements(*counts):
                yield (kind, *rest)


def class_relays(ring: Sequence[PaperClass]) -> int:
    return sum(classes_relay(a, b) for a, b in zip(ring, (*ring[1:], ring[0]), strict=True))


def test_alternation_is_best_for_every_multiset_of_classes() -> None:
    """Brute force over all arrangements of all multisets up to eight members."""
    for p, o, r in MULTISETS:
        if p + o + r == 1:
            continue
        best = min(map(class_relays, arrangements(p, o, r)))
        classes = ["restrictive"] * r + ["ordinary"] * o + ["permissive"] * p
        for first in {classes[0], classes[-1], "ordinary" if o else classes[0]}:
            members = list(classes)
            members.remove(first)
            mixed = [*([first]), *members]
            order = alternate([CLASSES[CLASSES.index(each)] for each in mixed])
            assert order[0] == 0
            assert sorted(order) == list(range(len(mixed)))
            ring = [CLASSES[CLASSES.index(mixed[i])] for i in order]
            assert class_relays(ring) == best, (p, o, r)
        if p + o + r > 2:
            assert least_relays(p, o, r) == best, (p, o, r)


def test_where_the_papers_if_and_only_if_fails() -> None:
    """As many permissive as restrictive members, and still no ring without a relay: there is an
    ordinary one. It is exactly then that the paper's count is wrong."""
    for p, o, r in MULTISETS:
        if p + o + r < 3:
            continue
        all_direct = min(map(class_relays, arrangements(p, o, r))) == 0
        paper = p >= r
        assert (all_direct != paper) == (o > 0 and r > 0 and p == r)
    assert least_relays(1, 1, 1) == 1


def test_the_search_over_relays_agrees_with_the_closed_form() -> None:
    """One odd NAT (filtering by address) takes the general way; without it the closed form."""
    kinds = {"permissive": PERMISSIVE, "ordinary": ORDINARY, "restrictive": RESTRICTIVE}
    for p, o, r in MULTISETS:
        if not 3 <= p + o + r <= 7:
            continue
        classes = ["restrictive"] * r + ["ordinary"] * o + ["permissive"] * p
        members = [device(f"d{i}", nat=kinds[each]) for i, each in enumerate(classes)]
        assert relays(order_ring(members, "d0").ring) == least_relays(p, o, r)


@pytest.mark.parametrize("by", ["cost", "relays"])
def test_reports_in_any_order_give_one_ring(by: str) -> None:
    members = [
        device(name, nat=nat, rtt_us=rtt)
        for name, nat, rtt in (
            ("a", PERMISSIVE, 10_000),
            ("b", RESTRICTIVE, 20_000),
            ("c", RESTRICTIVE, 20_000),
            ("d", ORDINARY, 10_000),
        )
    ]
    found = {
        tuple(names(order_ring(mixed, "a", "cost" if by == "cost" else "relays").ring))
        for mixed in permutations(members)
    }
    assert len(found) == 1


def test_order_by_relays_is_blind_to_cost() -> None:
    """The ablation: four direct members, two near and two far; by name it crosses three times."""
    members = [
        device(name, rtt_us=rtt)
        for name, rtt in (("a", 10_000), ("b", 90_000), ("c", 11_000), ("d", 91_000))
    ]
    assert names(order_ring(members, "a").ring) == ["a", "b", "d", "c"]
    blind = order_ring(members, "a", "relays")
    assert names(blind.ring) == ["a", "b", "c", "d"]
    assert blind.note == "order: fewest relays, as asked"
    assert price(blind.ring) == 2 * price(order_ring(members, "a").ring) - 4000
