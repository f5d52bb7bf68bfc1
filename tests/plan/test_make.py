"""The whole pipeline on plain values."""

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafila.errors import NotAdmitted
from kafila.plan.advice import untimed
from kafila.plan.compare import STRATEGIES
from kafila.plan.make import Wishes, make_plan
from kafila.plan.values import Load, Nat, Strategy
from tests.plan.fleets import GB, ONE, RESTRICTIVE, device, macs, model

PAPER = Wishes(strategy="bottleneck")


def test_five_macs() -> None:
    """40 blocks of 1 GB: the reference division and its bottleneck."""
    plan = make_plan(model(40), ONE, macs(), "m3max", PAPER)
    counts = {stage.device.name: len(stage.blocks) for stage in plan.ring}
    assert counts == {"m3max": 7, "ultra": 10, "studio": 8, "m4max": 10, "pro": 5}
    assert plan.predictions
    assert plan.predictions.bottleneck_us == pytest.approx(29_070, abs=1)
    assert plan.predictions.token_us == pytest.approx(138_090, abs=5)


def test_the_opener_comes_first_and_the_others_by_name_where_all_is_equal() -> None:
    plan = make_plan(model(40), ONE, macs(), "studio", PAPER)
    names = [stage.device.name for stage in plan.ring]
    assert names == ["studio", "m3max", "m4max", "pro", "ultra"]
    assert [stage.edge.to for stage in plan.ring if stage.edge] == [*names[1:], names[0]]


@settings(max_examples=200)
@given(
    st.integers(1, 80),
    st.lists(
        st.tuples(st.integers(1, 400), st.integers(0, 2000), st.integers(1, 100)),
        min_size=1,
        max_size=9,
    ),
    st.integers(1, 9),
    st.sampled_from(STRATEGIES),
)
def test_ranges_cover_every_block_once(
    blocks: int, specs: list[tuple[int, int, int]], concurrency: int, strategy: Strategy
) -> None:
    members = [
        device(f"d{i}", speed * GB, overhead_us=overhead, room_bytes=room * GB)
        for i, (speed, overhead, room) in enumerate(specs)
    ]
    chain = model(blocks, head_read_bytes=GB, head_resident_bytes=2 * GB)
    try:
        plan = make_plan(chain, Load(100, concurrency), members, "d0", Wishes(strategy))
    except NotAdmitted:
        return
    assert not plan.forced
    assert all(stage.need_bytes <= stage.room_bytes for stage in plan.ring)
    assert len(plan.ring) == len(members)
    assert plan.ring[0].blocks.start == 0
    assert plan.ring[-1].blocks.stop == blocks
    assert all(len(stage.blocks) >= 1 for stage in plan.ring)
    assert all(a.blocks.stop == b.blocks.start for a, b in pairwise(plan.ring))


def test_a_ring_of_one() -> None:
    plan = make_plan(model(4), ONE, [device("a")], "a")
    assert plan.ring[0].blocks == range(4)
    assert plan.ring[0].edge is None
    assert plan.predictions
    assert plan.predictions.token_us == plan.predictions.bottleneck_us


def test_two_members_share_one_edge_in_both_directions() -> None:
    """A token crosses it once each way: together one round trip."""
    members = [device("a", rtt_us=1000), device("b", rtt_us=5000)]
    plan = make_plan(model(4), ONE, members, "a")
    assert [stage.edge and stage.edge.cost_us for stage in plan.ring] == [4000, 4000]
    assert plan.predictions
    assert plan.predictions.token_us == pytest.approx(4 * 10_000 + 4000)
    assert plan.predictions.network_us == 4000


def test_predictions_grow_with_context_and_with_users() -> None:
    members = [device(name, rows_ns=((1, 100), (4, 300))) for name in "ab"]
    plan = make_plan(model(4, kv_bytes=10_000), Load(1000, 4), members, "a")
    made = plan.predictions
    assert made
    assert made.token_us == pytest.approx(40_000)
    assert made.token_full_us == pytest.approx(40_000 + 4 * 100)
    assert made.shared_token_us > made.token_full_us


def test_a_plan_is_what_its_own_strategy_gives() -> None:
    """Whatever was asked of its head, which a plan does not record."""
    members = [device(name, speed * GB, rtt_us=0) for name, speed in (("a", 100), ("b", 400))]
    chain = model(8, head_read_bytes=4 * GB)
    for strategy in ("load", "bottleneck"):
        for wishes in (Wishes(strategy, head="a"), Wishes(strategy, margin=0), Wishes(strategy)):
            plan = make_plan(chain, Load(1, 2), members, "a", wishes)
            made, derived = plan.predictions, plan.derived
            own = derived.load_outlook if strategy == "load" else derived.bottleneck_outlook
            assert made
            assert own
            assert own.head == plan.ring[0].device.name
            assert (own.token_us, own.shared_token_us) == (made.token_us, made.shared_token_us)


def test_a_forced_plan_has_no_outlook_for_its_strategy() -> None:
    members = [device("a", room_bytes=2 * GB), device("b", room_bytes=GB)]
    assert make_plan(model(8), ONE, members, "a", Wishes(force=True)).derived.load_outlook is None


def test_the_best_for_one_user_and_the_best_for_all_are_each_named() -> None:
    """One is quick alone and pays for every row, the other reads its weights once for all."""
    members = [
        device("quick", 400 * GB, rtt_us=0),
        device("many", 300 * GB, rtt_us=0, rows_ns=((1, 100), (16, 100))),
        device("slow", 10 * GB, rtt_us=10_000_000),
    ]
    plan = make_plan(model(4), Load(1, 4), members, "slow")
    alone = [each for each in plan.derived.warnings if each.startswith("this model fits")]
    assert [each.split()[3] for each in alone] == ["many", "quick"]
    same = [device("a", 400 * GB, rtt_us=0), device("b", 10 * GB, rtt_us=10_000_000)]
    assert len(make_plan(model(4), Load(1, 4), same, "b").derived.warnings) == 1


def test_where_an_edge_was_not_timed_nobody_is_advised_against() -> None:
    members = [device("a", 400 * GB), device("b", 10 * GB), device("c", 400 * GB)]
    plan = make_plan(model(4), ONE, members, "a")
    assert plan.derived.warnings == (
        "the edges from a to b, b to c and c to a were not timed and count as nothing: "
        "rates are at best",
    )


def test_a_ring_that_would_have_an_untimed_edge_is_not_advised() -> None:
    """In the ring of four the two that face each other were not timed, and would be neighbours."""
    faster = "without b this ring would be faster"
    for across, advised in ((), False), ((("c", 0), ("d", 0)), True):
        members = [
            device("a", 400 * GB, room_bytes=3 * GB, pairs_us=(("b", 0), *across[:1])),
            device("b", 10 * GB, pairs_us=(("c", 0), *across[1:])),
            device("c", 400 * GB, room_bytes=3 * GB, pairs_us=(("d", 0),)),
            device("d", 400 * GB, room_bytes=3 * GB, pairs_us=(("a", 0),)),
        ]
        plan = make_plan(model(6), ONE, members, "a")
        assert untimed(plan.ring) is None
        assert any(each.startswith(faster) for each in plan.derived.warnings) == advised


def test_many_untimed_edges_still_make_a_line() -> None:
    members = [device(f"{i:02}" + "x" * 61) for i in range(40)]
    (gap,) = make_plan(model(40), ONE, members, members[0].name).derived.warnings
    assert len(gap) < 2000
    assert "and 34 more were not timed" in gap


def test_an_unknown_nat_is_told_where_it_changes_an_edge() -> None:
    def notes(*nats: Nat, **changes: Any) -> list[str]:
        members = [
            device(name, nat=nat, rtt_us=0, **changes)
            for name, nat in zip("abc", nats, strict=False)
        ]
        return [each for each in make_plan(model(4), ONE, members, "a").notes if "NAT" in each]

    told = ["the NAT of a is unknown and taken for the strictest"]
    assert notes(Nat(), RESTRICTIVE) == told
    assert notes(Nat(), Nat("endpoint-independent", "endpoint-independent")) == []
    assert notes(Nat(), RESTRICTIVE, machine="one") == []
    assert notes(Nat(blocked=True), Nat()) == []
    assert notes(Nat(), Nat()) == ["the NAT of a and b is unknown and taken for the strictest"]
