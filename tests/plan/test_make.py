"""The whole pipeline on plain values."""

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafila.errors import NotAdmitted
from kafila.plan.compare import STRATEGIES
from kafila.plan.make import Wishes, make_plan
from kafila.plan.values import Load, Strategy
from tests.plan.fleets import GB, ONE, device, macs, model

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
