"""How many groups: one where batching is free, as many as stages where it is not."""

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from kafila.plan.groups import choose_groups, rows_of, sensible_groups, shared_token_us
from kafila.plan.make import Wishes, make_plan
from kafila.plan.reach import paths_of
from kafila.plan.strategies import best_groups
from kafila.plan.values import Choice, Device, Load
from tests.plan.fleets import GB, device, model

FLAT = ((1, 100), (16, 100))
LINEAR = tuple((rows, 100 * rows) for rows in (1, 2, 4, 8, 16))


def served(ring: Sequence[Device], counts: Sequence[int], load: Load) -> int | None:
    choice = Choice(tuple(ring), tuple(counts), paths_of(ring), 1)
    return best_groups(model(8), load, choice)


def test_reading_weights_once_for_all_wants_one_group() -> None:
    ring = [device(name, rows_ns=FLAT) for name in "abcd"]
    assert served(ring, (2, 2, 2, 2), Load(1, 4)) == 1


def test_batches_that_cost_their_rows_want_a_group_a_stage() -> None:
    ring = [device(name, rows_ns=LINEAR) for name in "abcd"]
    assert served(ring, (2, 2, 2, 2), Load(1, 4)) == 4


def test_a_ring_of_one_gains_nothing() -> None:
    ring = [device("a", rows_ns=LINEAR)]
    assert served(ring, (8,), Load(1, 4)) == 1


def test_the_formula() -> None:
    """Two stages of 10 and 30 ms, linear in rows, edges of 2 ms in all, four requests."""
    ring = [device("a", rows_ns=LINEAR), device("b", rows_ns=LINEAR)]
    chain, load = model(4, kv_bytes=0), Load(1, 4)
    times = {
        groups: shared_token_us(chain, load, ring, (1, 3), lambda rows: 2000.0, groups)
        for groups in (1, 2, 4)
    }
    assert times == {1: 4 * 40_000 + 2000, 2: 2 * 2 * 30_000, 4: 4 * 30_000}
    assert choose_groups(4, times.__getitem__, lambda g: g in times) == 2


def test_groups_do_not_hide_a_slow_uplink() -> None:
    """Sixteen tokens of 2000 bytes take 2 ms each on the uplink, in any number of groups."""
    ring = [device("a", rows_ns=FLAT, upload=10**6), device("b", rows_ns=FLAT)]
    chain, load = model(2, block_bytes=GB // 100, kv_bytes=0), Load(1, 16)
    times = {
        groups: shared_token_us(chain, load, ring, (1, 1), lambda rows: rows * 2000.0, groups)
        for groups in (1, 4, 16)
    }
    assert times == {1: 32_000 + 200, 4: 32_000, 16: 32_000}
    assert choose_groups(16, lambda g: times.get(g, 1e9), lambda g: True) == 4


def test_groups_that_need_more_slots_than_fit_are_not_chosen() -> None:
    """Five requests in two groups allocate six slots; here only five fit."""
    chain = model(8, kv_bytes=GB // 10)
    load = Load(context=1, concurrency=5)
    rows = ((1, 100), (2, 200), (3, 201), (4, 1000), (5, 1000))
    roomy = [device(name, rows_ns=rows) for name in "ab"]
    tight = [device(name, rows_ns=rows, room_bytes=4 * (GB + 5 * GB // 10)) for name in "ab"]
    paper = Wishes(strategy="bottleneck")
    assert make_plan(chain, load, roomy, "a", paper).groups == 2
    for wishes in (paper, Wishes()):
        plan = make_plan(chain, load, tight, "a", wishes)
        assert plan.groups in (1, 5)
        assert all(stage.need_bytes <= stage.room_bytes for stage in plan.ring)


@given(st.integers(1, 200))
def test_every_number_of_rows_is_tried_with_the_fewest_groups(concurrency: int) -> None:
    load, fewest = Load(1, concurrency), {}
    for groups in range(concurrency, 0, -1):
        fewest[rows_of(load, groups)] = groups
    assert sensible_groups(concurrency) == sorted(fewest.values())
