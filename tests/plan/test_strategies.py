"""Strategies on whole rings: `load` over heads, groups and divisions at once, and who wins."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafila.errors import UsageProblem
from kafila.plan.admission import all_fit, fits_of
from kafila.plan.compare import STRATEGIES, compare
from kafila.plan.edges import hops_us, sending_us
from kafila.plan.figures import figures
from kafila.plan.groups import shared_token_us
from kafila.plan.make import Wishes, make_plan
from kafila.plan.reach import paths_of
from kafila.plan.strategies import Ground, decide
from kafila.plan.values import Device, Figures, Load, Model, Order
from tests.plan.fleets import GB, ONE, ORDINARY, PERMISSIVE, RESTRICTIVE, device, key, macs, model
from tests.plan.test_partition import divisions


def quickest_of_all(chain: Model, load: Load, ring: tuple[Device, ...]) -> float | None:
    """Every head, number of groups and division that fits."""
    paths = paths_of(ring)

    def network_us(rows: int) -> float:
        return sum(hops_us(chain, ring, paths, rows))

    return min(
        (
            shared_token_us(chain, load, turned, counts, network_us, groups)
            for start in range(len(ring))
            for turned in [(*ring[start:], *ring[:start])]
            for counts in divisions(chain.blocks, len(ring))
            for groups in range(1, load.concurrency + 1)
            if all_fit(fits_of(chain, load, turned, counts, groups))
        ),
        default=None,
    )


ORDERS: tuple[Order, ...] = ("cost", "relays")

curves = st.sampled_from(
    [
        (),
        ((1, 100), (16, 100)),
        ((1, 100), (2, 101), (4, 150)),
        ((1, 100), (2, 200), (4, 400), (8, 800)),
    ]
)


@st.composite
def devices(draw: st.DrawFn) -> Device:
    return device(
        "x",
        draw(st.integers(1, 6)) * 50 * GB,
        overhead_us=draw(st.sampled_from([0, 40, 9000])),
        room_bytes=draw(st.integers(1, 9)) * GB,
        rows_ns=draw(curves),
        nat=draw(st.sampled_from([PERMISSIVE, ORDINARY, RESTRICTIVE])),
        rtt_us=draw(st.sampled_from([0, 10_000, 90_000])),
        upload=draw(st.sampled_from([None, 10**5, 10**6])),
    )


rings = st.lists(devices(), min_size=1, max_size=3).map(
    lambda ring: tuple(
        replace(each, name=f"d{i}", key=key(str(i)), machine=f"m{i}") for i, each in enumerate(ring)
    )
)


@settings(max_examples=1500)
@given(st.integers(1, 6), rings, st.integers(1, 5), st.sampled_from([0, 10**8]))
def test_load_is_the_best_of_all_heads_groups_and_divisions(
    blocks: int, ring: tuple[Device, ...], concurrency: int, kv_bytes: int
) -> None:
    chain = model(blocks, head_read_bytes=GB, head_resident_bytes=2 * GB, kv_bytes=kv_bytes)
    load = Load(1, concurrency)
    best = quickest_of_all(chain, load, ring)
    for margin in (0.0, 0.05):
        found = decide(Ground(chain, load, ring, paths_of(ring), "full", margin), "load")
        if best is None:
            assert found is None
            continue
        assert found is not None
        choice, _ = found
        assert all_fit(fits_of(chain, load, choice.ring, choice.counts, choice.groups))
        made = figures(chain, load, choice).predictions
        assert made
        assert made.shared_token_us >= best * (1 - 1e-9)
        assert made.shared_token_us * (1 - margin) <= best * (1 + 1e-9) + 0.01


@settings(max_examples=150)
@given(st.integers(3, 6), rings, st.integers(1, 20))
def test_no_prediction_is_beyond_what_an_uplink_carries(
    blocks: int, ring: tuple[Device, ...], concurrency: int
) -> None:
    """Whatever the division and the groups, each token of every request goes over every uplink."""
    chain = model(blocks, kv_bytes=0)
    roomy = [replace(each, room_bytes=10 * GB) for each in ring]
    for row in compare(chain, Load(1, concurrency), roomy, ring[0].name):
        placed = [stage.device for stage in row.plan.ring]
        predictions = row.plan.predictions
        assert predictions
        for sender, after in zip(placed, (*placed[1:], placed[0]), strict=True):
            least = sending_us(chain, sender, after, concurrency)
            assert predictions.shared_token_us >= least * (1 - 1e-9)


@settings(max_examples=150)
@given(st.integers(3, 9), rings, st.integers(1, 8))
def test_no_other_strategy_serves_all_users_faster(
    blocks: int, ring: tuple[Device, ...], concurrency: int
) -> None:
    chain = model(blocks, head_read_bytes=GB, head_resident_bytes=GB // 2, kv_bytes=10**7)
    roomy = [replace(each, room_bytes=4 * each.room_bytes) for each in ring]
    load = Load(1, concurrency)
    for margin in (0.0, 0.05):
        first, *others = compare(chain, load, roomy, ring[0].name, Wishes(margin=margin))
        assert first.strategy == "load"
        admitted = [row for row in others if not row.short]
        assert not (first.short and admitted)
        for row in admitted:
            mine, theirs = first.plan.predictions, row.plan.predictions
            assert mine
            assert theirs
            assert mine.shared_token_us * (1 - margin) <= theirs.shared_token_us + 0.01


@settings(max_examples=100)
@given(st.integers(3, 9), rings, st.integers(1, 8), st.booleans())
def test_a_row_is_what_planning_by_its_strategy_gives(
    blocks: int, ring: tuple[Device, ...], concurrency: int, timed: bool
) -> None:
    chain = model(blocks, head_read_bytes=GB, head_resident_bytes=GB // 2, kv_bytes=10**7)
    members = ring if timed else (replace(ring[0], overhead_us=None), *ring[1:])
    load, opener = Load(1, concurrency), ring[-1].name
    for order in ORDERS:
        for row in compare(chain, load, members, opener, Wishes(order=order)):
            wishes = Wishes(strategy=row.strategy, order=order, force=True)
            plan = make_plan(chain, load, members, opener, wishes)
            assert row.plan == Figures(plan.ring, plan.predictions)
            assert bool(row.short) == plan.forced


def test_the_worked_fleet() -> None:
    """Five Macs, 40 blocks of 1 GB, no head: divisions and slowest stages as published."""
    rows = {row.strategy: row for row in compare(model(40), ONE, macs(), "m3max")}
    names = ["m3max", "ultra", "studio", "m4max", "pro"]
    divided = {}
    for strategy, row in rows.items():
        counts = {stage.device.name: len(stage.blocks) for stage in row.plan.ring}
        assert row.plan.predictions
        slowest = row.plan.predictions.bottleneck_us / 1000
        divided[strategy] = ([counts[name] for name in names], round(slowest, 2))
    assert divided["bottleneck"] == ([7, 10, 8, 10, 5], 29.07)
    assert divided["bandwidth"] == ([7, 9, 9, 10, 5], 29.15)
    assert divided["memory"] == ([4, 12, 8, 12, 4], 34.88)
    assert divided["uniform"] == ([8, 8, 8, 8, 8], 45.05)
    assert divided["load"] == ([1, 1, 1, 36, 1], 102.51)


def test_table_four_columns() -> None:
    row = next(row for row in compare(model(40), ONE, macs(), "m3max") if row.strategy == "uniform")
    times = [8 / speed for speed in (264.4, 344.0, 308.7, 351.2, 177.6)]
    assert row.imbalance == pytest.approx(max(times) / min(times))
    assert row.utilisation == pytest.approx(sum(times) / 5 / max(times))


def test_load_on_the_ring_that_fills_is_bottleneck_where_batches_cost_their_rows() -> None:
    ring = [device(name, speed * GB, rows_ns=()) for name, speed in (("a", 100), ("b", 200))]
    load = Load(1, 2)
    assert make_plan(model(9), load, ring, "a").groups == 2
    plans = {row.strategy: row.plan for row in compare(model(9), load, ring, "a")}
    counts = [len(stage.blocks) for stage in plans["load"].ring]
    assert counts == [len(stage.blocks) for stage in plans["bottleneck"].ring] == [3, 6]


def test_a_share_by_bandwidth_needs_it() -> None:
    ring = [device("a", flops=1), replace(device("b"), bandwidth=None)]
    with pytest.raises(UsageProblem, match="the probe of b gave no bandwidth"):
        make_plan(model(4), ONE, ring, "a", Wishes(strategy="bandwidth"))
    assert [row.strategy for row in compare(model(4), ONE, ring, "a")] == [
        each for each in STRATEGIES if each != "bandwidth"
    ]


def test_uniform_is_refused_by_name_where_the_planner_is_admitted() -> None:
    """The laptop cannot hold an equal share."""
    ring = [device("a"), device("laptop", room_bytes=2 * GB + 10)]
    assert make_plan(model(8), ONE, ring, "a")
    with pytest.raises(Exception, match="undersized: laptop") as caught:
        make_plan(model(8), ONE, ring, "a", Wishes(strategy="uniform"))
    assert "uniform is what does not fit; --strategy load does" in str(caught.value)
