"""Edge prices and what bytes on a slow uplink add, against figures worked out by hand."""

from kafila.plan.edges import edge_us, edges_of, hops_us, uplink_us
from kafila.plan.values import Nat, Path
from tests.plan.fleets import device, model

LAN = Nat(public="203.0.113.7", networks=("10.0.0.0/8",))


def test_edge_prices() -> None:
    near, far = device("a", rtt_us=20_000), device("b", rtt_us=95_000)
    assert edge_us(near, far, "relayed") == 115_000
    assert edge_us(near, far, "direct") == edge_us(far, near, "direct") == 75_000
    assert edge_us(near, device("c"), "relayed") is None
    assert edge_us(device("c"), far, "direct") is None
    assert edge_us(device("c", machine="m"), device("d", machine="m"), "direct") == 0


def test_a_token_crosses_an_edge_in_one_direction() -> None:
    ring = [device("a", rtt_us=20_000), device("b", rtt_us=95_000), device("c")]
    paths: tuple[Path, ...] = ("direct", "relayed", "direct")
    edges = edges_of(ring, paths)
    assert [edge and edge.cost_us for edge in edges] == [75_000, None, None]
    assert [edge and edge.to for edge in edges] == ["b", "c", "a"]
    assert hops_us(model(), ring, paths, 1) == (37_500, 0, 0)
    assert edges_of(ring[:1], ["direct"]) == (None,)
    assert hops_us(model(), ring[:1], ["direct"], 1) == (0,)


def test_a_slow_uplink_adds_the_time_of_the_bytes() -> None:
    """1000 values of two bytes a token, a million bytes a second: 2 ms each."""
    slow, other = device("a", upload=10**6), device("b")
    assert hops_us(model(), [slow, other], ["direct", "direct"], 3) == (6000, 0)


def test_the_uplink_is_not_used_within_a_site() -> None:
    slow = device("a", upload=10**6, nat=LAN)
    assert hops_us(model(), [slow, device("b", nat=LAN)], ["direct"] * 2, 3) == (0, 0)
    inside = [device(name, upload=10**6, machine="m") for name in "ab"]
    assert hops_us(model(), inside, ["direct"] * 2, 3) == (0, 0)


def test_the_busiest_uplink_is_the_slowest_that_is_used() -> None:
    slow, fast = device("a", upload=10**6), device("b", upload=10**7)
    assert uplink_us(model(), [slow, fast, device("c")], 3) == 6000
    assert uplink_us(model(), [slow], 3) == 0
    assert uplink_us(model(), [device("a"), device("b")], 3) == 0
