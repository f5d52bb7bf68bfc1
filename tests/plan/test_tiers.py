"""With less known, less is decided, and the plan says whose number is missing."""

from dataclasses import replace
from typing import Any

import pytest

from kafila.plan.admission import possible
from kafila.plan.make import Wishes, make_plan
from kafila.plan.tiers import tier_of
from kafila.plan.values import Device, Load, Plan, Workspace
from tests.plan.fleets import GB, ONE, device, model

FULL = [
    device("a", 100 * GB, flops=10**12),
    device("b", 200 * GB, flops=3 * 10**12),
    device("c", 300 * GB, flops=10**12, room_bytes=20 * GB),
]
CHAIN = model(10, head_read_bytes=8 * GB, head_resident_bytes=GB)


def lacking(name: str, **changes: Any) -> list[Device]:
    return [replace(each, **changes) if each.name == name else each for each in FULL]


def counts(plan: Plan) -> dict[str, int]:
    return {stage.device.name: len(stage.blocks) for stage in plan.ring}


def test_all_known_is_the_full_tier() -> None:
    assert tier_of(FULL) == ("full", None)
    assert make_plan(CHAIN, ONE, FULL, "a").tier == "full"


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"bandwidth": None}, "tier arithmetic: the probe of b gave no bandwidth"),
        ({"overhead_us": None}, "tier arithmetic: the probe of b gave no overhead"),
    ],
)
@pytest.mark.parametrize("strategy", ["load", "bottleneck"])
def test_arithmetic_rates_divide_where_one_cannot_be_priced(
    changes: dict[str, None], why: str, strategy: str
) -> None:
    """Rates 1:3:1, no head term, and the head stays with the opener."""
    wishes = Wishes(strategy="load" if strategy == "load" else "bottleneck", margin=0)
    plan = make_plan(CHAIN, ONE, lacking("b", **changes), "a", wishes)
    assert plan.tier == "arithmetic"
    assert counts(plan) == {"a": 2, "b": 6, "c": 2}
    assert plan.ring[0].device.name == "a"
    assert plan.notes[0] == why
    assert plan.notes[-1] == "head: a opened the session"
    assert plan.predictions is None
    assert plan.derived.load_outlook is None
    known = {stage.device.name: stage.stage_us for stage in plan.ring}
    assert known["b"] is None
    assert known["c"] == pytest.approx(2 * GB / (300 * GB) * 1e6)


def test_room_divides_where_nothing_else_is_known_of_all() -> None:
    plan = make_plan(CHAIN, ONE, lacking("b", bandwidth=None, flops=None), "a")
    assert plan.tier == "working-set"
    assert plan.notes[0] == (
        "tier working-set: the probe of b gave no bandwidth and no arithmetic rate"
    )
    members = lacking("b", bandwidth=None)
    members[2] = replace(members[2], flops=None)
    assert make_plan(CHAIN, ONE, members, "a").notes[0] == (
        "tier working-set: the probe of b gave no bandwidth and that of c no arithmetic rate"
    )


def test_room_counts_after_what_else_is_held() -> None:
    """Proportional to room alone, the head's share would not fit although a division does."""
    chain = model(8, head_resident_bytes=4 * GB)
    members = [
        replace(device(name, flops=None, room_bytes=room * GB + 100), bandwidth=None)
        for name, room in (("a", 6), ("b", 6))
    ]
    plan = make_plan(chain, ONE, members, "a")
    assert counts(plan) == {"a": 2, "b": 6}
    assert not possible(model(9, head_resident_bytes=4 * GB), ONE, members)


@pytest.mark.parametrize(
    ("missing", "tier"),
    [
        ({}, "full"),
        ({"bandwidth": None}, "arithmetic"),
        ({"bandwidth": None, "flops": None}, "working-set"),
    ],
)
def test_more_groups_where_one_needs_too_much_workspace(missing: dict[str, Any], tier: str) -> None:
    """Four rows a step take 4 GB; two take 2."""
    members = [device(name, room_bytes=5 * GB, workspace=Workspace(0, GB, 0)) for name in "ab"]
    members[1] = replace(members[1], **missing)
    chain, load = model(5, kv_bytes=0), Load(1, 4)
    for strategy in ("load", "bottleneck"):
        wishes = Wishes("load" if strategy == "load" else "bottleneck")
        plan = make_plan(chain, load, members, "a", wishes)
        assert plan.tier == tier
        assert plan.groups >= 2
        assert all(stage.need_bytes <= stage.room_bytes for stage in plan.ring)


def test_lower_tiers_are_refused_and_forced_like_others() -> None:
    small = [replace(device(name, flops=None, room_bytes=3 * GB), bandwidth=None) for name in "ab"]
    with pytest.raises(Exception, match="tiny does not fit"):
        make_plan(model(8), ONE, small, "a")
    assert make_plan(model(8), ONE, small, "a", Wishes(force=True)).forced


def test_the_opener_that_cannot_hold_the_head_gives_it_up_here_too() -> None:
    chain = model(4, head_resident_bytes=3 * GB)
    members = [
        replace(device("a", room_bytes=3 * GB), bandwidth=None),
        replace(device("b", room_bytes=9 * GB), bandwidth=None),
    ]
    assert make_plan(chain, ONE, members, "a").ring[0].device.name == "b"
