"""What batching gains in a served ring: sixteen requests in one step beside four, a row a step.

The same random checkpoint is served by two rings at once, over the HTTP API: one takes four
requests in four groups, so no step has more than one row, the other sixteen in one group. They are
driven in turns; a rate counts all tokens over all of the time, prompts included.

    python -m tools.bench.batching --size 0.6B --members 1
"""

import json
import statistics
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

import click

from tools.bench.ring import division
from tools.loopback import Ring
from tools.make_checkpoint import SIZES, write_checkpoint

LOADS = {"unbatched": (4, 4), "batched": (16, 1)}
"""Requests at once and groups."""


def rate(ring: Ring, requests: int, tokens: int) -> float:
    """Tokens per second of all requests together, each with a prompt of its own."""
    prompts = [[3, 1, 4, 1, 5, request] for request in range(requests)]
    began = time.monotonic()
    ring.at_once(prompts, tokens)
    return requests * tokens / (time.monotonic() - began)


@click.command(context_settings={"show_default": True})
@click.option("--size", type=click.Choice(list(SIZES)), default="0.6B")
@click.option("--members", default=1)
@click.option("--tokens", default=64, help="Of each answer.")
@click.option("--runs", default=3)
def main(size: str, members: int, tokens: int, runs: int) -> None:
    """Serve a random checkpoint of a Qwen3 size twice and compare, the last line as JSON."""
    config = SIZES[size]
    found: dict[str, list[float]] = {name: [] for name in LOADS}
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        model = write_checkpoint(Path(folder) / "model", config)
        counts = division(config.blocks, members)
        rings = {
            name: stack.enter_context(
                Ring(Path(folder) / name, model, counts, concurrency=requests, groups=groups)
            )
            for name, (requests, groups) in LOADS.items()
        }
        for name, ring in rings.items():
            rate(ring, LOADS[name][0], 4)
        for _ in range(runs):
            for name, ring in rings.items():
                found[name].append(rate(ring, LOADS[name][0], tokens))
    ratios = [b / a for a, b in zip(found["unbatched"], found["batched"], strict=True)]
    result = {
        "bench": "batching",
        "size": size,
        "members": members,
        **{f"tokens_per_s_{name}": round(statistics.median(found[name]), 1) for name in LOADS},
        "ratio": round(statistics.median(ratios), 2),
    }
    print(
        f"4 requests, a row a step: {result['tokens_per_s_unbatched']} tok/s; "
        f"16 in one step: {result['tokens_per_s_batched']} tok/s, {result['ratio']} times as many"
    )
    print(json.dumps(result))


if __name__ == "__main__":
    main()
