"""Stage times, batch growth and edge prices, against figures worked out by hand."""

from dataclasses import replace

import pytest

from kafila.plan.cost import batch, chunk_us, chunks_of, context_us, growth, priced, stage
from kafila.plan.values import Load
from tests.plan.fleets import GB, device, model


def test_stage_time_is_overhead_and_reading() -> None:
    chain = model(4, head_read_bytes=2 * GB)
    member = device("a", 100 * GB, overhead_us=7)
    assert stage(chain, member, head=False).cost(3) == pytest.approx(7 + 3 * 10_000)
    assert stage(chain, member, head=True).cost(3) == pytest.approx(7 + 3 * 10_000 + 20_000)


def test_a_block_takes_more_than_reading() -> None:
    chain = model(4, head_read_bytes=2 * GB, kv_bytes=1000)
    rows = (1, 100), (4, 200)
    member = device("a", 100 * GB, overhead_us=7, rows_ns=rows, block_ns=50_000, flops=10**14)
    assert stage(chain, member, head=True).cost(3) == pytest.approx(7 + 20_000 + 3 * 10_050)
    load = Load(context=0, concurrency=4)
    assert batch(chain, load, member, 4, head=False).cost(3) == pytest.approx(7 + 3 * 2 * 10_050)
    assert chunk_us(chain, member, 2, 1) == pytest.approx(7 + 2 * 10_050)


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
    assert batch(chain, load, member, 1, head=True).cost(2) == 5 + weights + cache
    assert batch(chain, load, member, 4, head=True).cost(2) == 5 + 2 * weights + 4 * cache


def test_unmeasured_batches_cost_their_rows() -> None:
    member = device("a", rows_ns=())
    assert [growth(member, rows) for rows in (1, 2, 7)] == [1, 2, 7]


def test_only_who_has_bandwidth_and_overhead_is_priced() -> None:
    assert priced(device("a"))
    assert not priced(device("a", overhead_us=None))
    assert not priced(replace(device("a"), bandwidth=None))


def test_a_prefill_chunk_reads_or_computes_whichever_takes_longer() -> None:
    """A block of 1 GB in bfloat16 has 0.5e9 weights: 1e9 operations a token."""
    chain, member = model(4), device("a", 100 * GB, overhead_us=7, flops=10**12)
    assert chunk_us(chain, member, 2, 1) == pytest.approx(7 + 20_000)
    assert chunk_us(chain, member, 2, 250) == pytest.approx(7 + 2 * 250 * 1000)
    assert chunk_us(chain, device("a", flops=None), 2, 250) is None
    assert [chunks_of(prompt) for prompt in (1, 256, 257, 1000)] == [1, 1, 2, 4]
