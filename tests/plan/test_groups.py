"""How many groups: one where batching is free, as many as stages where it is not."""

from kafila.plan.groups import choose_groups, shared_token_us
from kafila.plan.make import best_groups, make_plan
from kafila.plan.values import Load
from tests.plan.fleets import GB, device, model

FLAT = ((1, 100), (16, 100))
LINEAR = tuple((rows, 100 * rows) for rows in (1, 2, 4, 8, 16))


def test_reading_weights_once_for_all_wants_one_group() -> None:
    ring = [device(name, rows_ns=FLAT) for name in "abcd"]
    assert best_groups(model(8), Load(1, 4), ring, (2, 2, 2, 2), ["direct"] * 4) == 1


def test_batches_that_cost_their_rows_want_a_group_a_stage() -> None:
    ring = [device(name, rows_ns=LINEAR) for name in "abcd"]
    assert best_groups(model(8), Load(1, 4), ring, (2, 2, 2, 2), ["direct"] * 4) == 4


def test_a_ring_of_one_gains_nothing() -> None:
    ring = [device("a", rows_ns=LINEAR)]
    assert best_groups(model(8), Load(1, 4), ring, (8,), ["direct"]) == 1


def test_the_formula() -> None:
    """Two stages of 10 and 30 ms, linear in rows, edges of 2 ms in all, four requests."""
    ring = [device("a", rows_ns=LINEAR), device("b", rows_ns=LINEAR)]
    times = {
        groups: shared_token_us(model(4, kv_bytes=0), Load(1, 4), ring, (1, 3), 2000.0, groups)
        for groups in (1, 2, 4)
    }
    assert times == {1: 4 * 40_000 + 2000, 2: 2 * 2 * 30_000, 4: 4 * 30_000}
    assert choose_groups(4, times.__getitem__, lambda g: g in times) == 2


def test_groups_that_need_more_slots_than_fit_are_not_chosen() -> None:
    """Five requests in two groups allocate six slots; here only five fit."""
    chain = model(8, kv_bytes=GB // 10)
    load = Load(context=1, concurrency=5)
    rows = ((1, 100), (2, 200), (3, 201), (4, 1000), (5, 1000))
    roomy = [device(name, rows_ns=rows) for name in "ab"]
    tight = [device(name, rows_ns=rows, room_bytes=4 * (GB + 5 * GB // 10)) for name in "ab"]
    assert make_plan(chain, load, roomy, "a").groups == 2
    plan = make_plan(chain, load, tight, "a")
    assert plan.groups in (1, 5)
    assert all(stage.need_bytes <= stage.room_bytes for stage in plan.ring)
