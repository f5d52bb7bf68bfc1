"""How near does one stage come to what memory allows? Random weights of any Qwen3's shapes.

A decode step reads every weight and the valid part of every row's KV cache once, so the machine's
read bandwidth, measured between the steps of the same run, gives a floor for its time. Prefill is
bound by arithmetic and shown beside it.

    python -m tools.bench.stage 0.6B
    python -m tools.bench.stage 8B --blocks 4 --no-head --rows 1,4,16
"""

import dataclasses
import json
import statistics
import time
from collections.abc import Callable
from functools import partial

import click
import numpy as np

from stages import random
from stages.sampling import Sampling
from stages.stage import PREFILL_CHUNK, Stage
from tools.bench.bandwidth import Reader
from tools.make_checkpoint import SIZES

ROUNDS = 15


def seconds(call: Callable[[], object]) -> float:
    began = time.perf_counter()
    call()
    return time.perf_counter() - began


def median_seconds(call: Callable[[], object], rounds: int = ROUNDS) -> float:
    call()
    return statistics.median(seconds(call) for _ in range(rounds))


@click.command(context_settings={"show_default": True})
@click.argument("size", type=click.Choice(list(SIZES)))
@click.option("--blocks", type=click.IntRange(1), help="Instead of all.")
@click.option("--head/--no-head", default=True, help="With embedding, sampling, unembedding.")
@click.option("--rows", default="1,4", help="Rows in a step, with commas.")
@click.option("--context", type=click.IntRange(2), default=512, help="Positions of a KV cache.")
@click.option("--dtype", type=click.Choice(["bfloat16", "float32"]), default="bfloat16")
def main(size: str, blocks: int | None, head: bool, rows: str, context: int, dtype: str) -> None:
    """Time the decode steps and prefill chunks of one stage of SIZE."""
    counts = [int(n) for n in rows.split(",")]
    shape = SIZES[size]
    config = dataclasses.replace(shape, dtype=dtype, blocks=blocks or shape.blocks)
    weights = [random.block(config, seed) for seed in range(config.blocks)]
    top = random.head(config, config.blocks) if head else None
    began = time.perf_counter()
    stage = Stage(config, weights, top, context=context, groups=1, rows=max(counts))
    compile_s = time.perf_counter() - began
    read = sum(leaf.nbytes for block in weights for leaf in block)
    if head:
        read += config.vocab * config.hidden * config.itemsize
    print(f"{size}, {config.blocks} blocks{' and head' if head else ''}, {dtype}: ", end="")
    print(f"{read / 1e9:.3f} GB a step, compiled in {compile_s:.1f} s")

    reader = Reader()
    position = context // 2
    results = []
    for count in counts:
        x = np.ones((count, config.hidden), stage.wire_dtype)
        positions = np.full(count, position, np.int32)
        only_blocks = partial(stage.decode, 0, positions, x)
        greedy = Sampling.greedy(count)
        step = partial(stage.step, 0, positions, x, greedy) if head else only_blocks
        step()
        times, shares, bandwidths = [], [], []
        size_bytes = read + count * position * config.kv_bytes * config.blocks
        for _ in range(ROUNDS):
            bandwidths.append(reader.bandwidth())
            times.append(min(seconds(step) for _ in range(3)))
            shares.append(size_bytes / times[-1] / bandwidths[-1])
        blocks_s = median_seconds(only_blocks)
        middle = statistics.median(times)
        result = {
            "rows": count,
            "position": position,
            "step_ms": round(middle * 1e3, 2),
            "blocks_ms": round(blocks_s * 1e3, 2),
            "tokens_per_s": round(count / middle, 1),
            "gb_per_s": round(size_bytes / middle / 1e9, 1),
            "read_gb_per_s": round(statistics.median(bandwidths) / 1e9, 1),
            "share": round(statistics.median(shares), 3),
        }
        results.append(result)
        print(
            f"{count:3} rows: {result['step_ms']} ms a step (blocks {result['blocks_ms']}), "
            f"{result['tokens_per_s']} tok/s, {result['gb_per_s']} of "
            f"{result['read_gb_per_s']} GB/s = {result['share']:.0%}"
        )
    chunk = min(PREFILL_CHUNK, context)
    x = np.ones((chunk, config.hidden), stage.wire_dtype)
    prefill = chunk / median_seconds(lambda: stage.prefill(0, 0, 0, x), 3)
    print(f"prefill of {chunk}: {prefill:.0f} tok/s")
    print(
        json.dumps(
            {
                "bench": "stage",
                "size": size,
                "blocks": config.blocks,
                "head": head,
                "dtype": dtype,
                "context": context,
                "step_bytes": read,
                "compile_s": round(compile_s, 1),
                "decode": results,
                "prefill_tokens_per_s": round(prefill),
            }
        )
    )


if __name__ == "__main__":
    main()
