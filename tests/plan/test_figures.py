"""What follows from a choice: the network's share, the first token, and advice."""

from dataclasses import replace

import pytest

from kafila.plan.figures import figures, first_token_us, utilisation
from kafila.plan.make import Wishes, derive, make_plan
from kafila.plan.values import Choice, Load
from tests.plan.fleets import GB, ONE, PERMISSIVE, RESTRICTIVE, device, model

ROWS = ((1, 100), (16, 100))


def test_the_networks_part_of_a_token() -> None:
    ring = (device("a", rtt_us=10_000), device("b", rtt_us=90_000))
    made = figures(model(4), ONE, Choice(ring, (2, 2), ("direct", "direct"), 1)).predictions
    assert made
    assert made.network_us == 80_000
    assert made.token_us == 40_000 + 80_000
    untimed = (ring[0], replace(ring[1], rtt_us=None))
    made = figures(model(4), ONE, Choice(untimed, (2, 2), ("direct", "direct"), 1)).predictions
    assert made
    assert made.network_us is None
    assert made.token_us == 40_000


def test_first_token_of_one_chunk() -> None:
    """Two blocks of 1 GB at 100 GB/s and 1e12 operations a second; 100 tokens are 100 ms a block,
    20 ms on the edge, and the head's own step at the end reads the unembedding."""
    chain = model(2, head_read_bytes=GB)
    ring = (device("a", flops=10**12, upload=10**7), device("b", flops=10**12))
    choice = Choice(ring, (1, 1), ("direct", "direct"), 1)
    assert first_token_us(chain, choice, 100) == pytest.approx(200_000 + 20_000 + 20_000)


def test_chunks_follow_each_other_as_fast_as_the_slowest_allows() -> None:
    """1000 tokens in four chunks of 250: the first goes round, the others come at the pace of the
    slowest stage, of the uplink, or of the window of as many chunks as members."""
    chain = model(3)
    ring = (device("a", flops=10**12), device("b", flops=10**12))
    choice = Choice(ring, (1, 2), ("direct", "direct"), 1)
    step = 10_000
    assert first_token_us(chain, choice, 1000) == pytest.approx(750_000 + 3 * 500_000 + step)
    slow = (replace(ring[0], upload=500_000), ring[1])  # 250 tokens of 2000 bytes take a second
    found = first_token_us(chain, replace(choice, ring=slow), 1000)
    assert found == pytest.approx(1_750_000 + 3 * 1_000_000 + step)
    far = tuple(replace(each, rtt_us=time) for each, time in zip(ring, (0, 4_000_000), strict=True))
    found = first_token_us(chain, replace(choice, ring=far), 1000)
    assert found == pytest.approx(4_750_000 + 3 * 1_187_500 + step)


def test_without_arithmetic_there_is_no_first_token() -> None:
    ring = (device("a", flops=None), device("b"))
    assert first_token_us(model(2), Choice(ring, (1, 1), ("direct",) * 2, 1), 10) is None


def test_utilisation_is_the_average_over_the_slowest() -> None:
    assert utilisation([1.0, 3.0, 2.0]) == pytest.approx(2 / 3)


def test_one_member_alone_that_is_faster_is_named() -> None:
    members = [
        device("a", 100 * GB, rtt_us=0, rows_ns=ROWS),
        device("b", 400 * GB, rtt_us=0, rows_ns=ROWS),
    ]
    plan = make_plan(model(4), Load(1, 4), members, "a")
    assert plan.derived.warnings == (
        "this model fits b alone: 100.0 tok/s (4 users 400.0 tok/s) there, "
        "57.1 tok/s (4 users 228.6 tok/s) on this ring",
    )
    one = make_plan(model(4), ONE, members, "a")
    assert one.derived.warnings == (
        "this model fits b alone: 100.0 tok/s there, 57.1 tok/s on this ring",
    )


def test_nobody_is_named_who_cannot_hold_the_model() -> None:
    members = [
        device("a", 100 * GB, rtt_us=0, rows_ns=ROWS, room_bytes=3 * GB),
        device("b", 400 * GB, rtt_us=0, rows_ns=ROWS, room_bytes=3 * GB),
    ]
    assert make_plan(model(4), ONE, members, "a").derived.warnings == ()


def test_the_member_without_whom_the_ring_is_faster_is_named() -> None:
    members = [
        device("a", 400 * GB, rtt_us=0, rows_ns=ROWS, room_bytes=3 * GB),
        device("slow", 10 * GB, rtt_us=0, rows_ns=ROWS),
        device("c", 400 * GB, rtt_us=0, rows_ns=ROWS, room_bytes=3 * GB),
    ]
    plan = make_plan(model(4), ONE, members, "a")
    assert plan.derived.warnings == (
        "without slow this ring would be faster: 100.0 tok/s, not 9.3 tok/s "
        "(kafila plan --without slow)",
    )
    fewer = make_plan(model(4), ONE, [each for each in members if each.name != "slow"], "a")
    assert fewer.predictions
    assert fewer.predictions.token_us == pytest.approx(10_000)


def test_a_member_that_is_needed_is_not_advised_against() -> None:
    members = [
        device("a", 400 * GB, rtt_us=0, room_bytes=3 * GB),
        device("slow", 10 * GB, rtt_us=0),
        device("c", 400 * GB, rtt_us=0, room_bytes=3 * GB),
    ]
    assert make_plan(model(6), ONE, members, "a").derived.warnings == ()


def test_the_joined_neighbours_are_predicted_anew() -> None:
    """Without the slow one between them, two restrictive members would have to relay."""
    slow = device("b", 50 * GB, rtt_us=500_000, room_bytes=2 * GB - 1)
    for nat, warnings in ((RESTRICTIVE, 0), (PERMISSIVE, 1)):
        a, c = (device(name, nat=nat, rtt_us=500_000, room_bytes=3 * GB + 99) for name in "ac")
        plan = make_plan(model(6), ONE, [a, slow, c], "a")
        assert len(plan.derived.warnings) == warnings


def test_outlooks_are_both_strategies_with_their_own_heads() -> None:
    members = [
        device("a", 100 * GB, rows_ns=ROWS, room_bytes=9 * GB),
        device("b", 400 * GB, rows_ns=ROWS, room_bytes=9 * GB),
    ]
    chain, load = model(8, head_read_bytes=2 * GB), Load(1, 2)
    plans = {
        strategy: make_plan(chain, load, members, "a", Wishes(strategy=strategy))
        for strategy in ("load", "bottleneck")
    }
    for plan in plans.values():
        for strategy, outlook in (
            ("load", plan.derived.load_outlook),
            ("bottleneck", plan.derived.bottleneck_outlook),
        ):
            same = plans[strategy]
            assert outlook
            assert same.predictions
            assert outlook.head == same.ring[0].device.name
            assert outlook.shared_token_us == same.predictions.shared_token_us
            assert outlook.token_us == same.predictions.token_us


def test_derived_figures_do_not_depend_on_where_the_ring_starts() -> None:
    members = (device("a", 100 * GB), device("b", 400 * GB), device("c", 50 * GB))
    choice = Choice(members, (2, 4, 2), ("direct",) * 3, 1)
    turned = Choice((*members[1:], members[0]), (4, 2, 2), ("direct",) * 3, 1)
    first, second = (derive(model(8), ONE, each, "a", forced=False) for each in (choice, turned))
    assert first.load_outlook == second.load_outlook
    assert first.bottleneck_outlook == second.bottleneck_outlook
