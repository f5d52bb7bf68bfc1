"""Stage times, batch growth and edge prices, against figures worked out by hand."""

import pytest

from kafila.plan.cost import batch_us, context_us, edge_us, growth, stage_us
from kafila.plan.values import Load
from tests.plan.fleets import GB, device, model


def test_stage_time_is_overhead_and_reading() -> None:
    chain = model(4, head_read_bytes=2 * GB)
    member = device("a", 100 * GB, overhead_us=7)
    assert stage_us(chain, member, 3, head=False) == pytest.approx(7 + 3 * 10_000)
    assert stage_us(chain, member, 3, head=True) == pytest.approx(7 + 3 * 10_000 + 20_000)


def test_context_is_read_at_the_same_rate() -> None:
    chain = model(4, kv_bytes=4096)
    assert context_us(chain, device("a", 100 * GB), 2, 10_000) == pytest.approx(819.2)


def test_growth_takes_the_next_bucket_up_and_never_shrinks() -> None:
    member = device("a", rows_ns=((1, 100), (2, 90), (4, 150), (8, 140), (16, 400)))
    steps = {1: 1, 2: 1, 3: 1.5, 4: 1.5, 5: 1.5, 8: 1.5, 9: 4, 16: 4, 17: 8, 33: 12}
    assert {rows: growth(member, rows) for rows in steps} == steps


def test_a_batch_reads_weights_once_and_every_cache() -> None:
    chain = model(4, head_read_bytes=GB, kv_bytes=1000)
    member = device("a", 1 * GB, overhead_us=5, rows_ns=((1, 100), (4, 200)))
    load = Load(context=1000, concurrency=4)
    weights, cache = (2 + 1) * 1e6, 2 * 1000
    assert batch_us(chain, load, member, 2, 1, head=True) == 5 + weights + cache
    assert batch_us(chain, load, member, 2, 4, head=True) == 5 + 2 * weights + 4 * cache


def test_edge_prices() -> None:
    near, far = device("a", rtt_us=20_000), device("b", rtt_us=95_000)
    assert edge_us(near, far, "relayed") == 115_000
    assert edge_us(near, far, "direct") == edge_us(far, near, "direct") == 75_000
    assert edge_us(near, device("c"), "relayed") is None
    assert edge_us(device("c"), far, "direct") is None
    assert edge_us(device("c", machine="m"), device("d", machine="m"), "direct") == 0
