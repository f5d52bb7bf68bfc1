"""Tokens per second of one machine's ring: a random checkpoint served by real processes.

The same checkpoint is served by one member and by several, over the HTTP API; beside each rate
stands the share of the read bandwidth that it amounts to, bandwidth measured in the same run.

    python -m tools.bench.ring --size 0.6B --members 1 --members 3
"""

import json
import statistics
import tempfile
from itertools import pairwise
from pathlib import Path
from typing import Any

import click

from kafila.manifest import Manifest
from tools.bench.bandwidth import Reader
from tools.loopback import Ring
from tools.make_checkpoint import SIZES, write_checkpoint

PROMPT = 32


def division(blocks: int, members: int) -> list[int]:
    """As even as it gets, the head holding the fewest: it reads the unembedding too."""
    bounds = [blocks * i // members for i in range(members + 1)]
    return [b - a for a, b in pairwise(bounds)]


def decode_rate(ring: Ring, tokens: int) -> float:
    """Tokens per second of one greedy request, as the head measured it."""
    prompt = [(7 * i + 11) % 1000 for i in range(PROMPT)]
    body = {"prompt": prompt, "max_tokens": tokens, "temperature": 0, "ignore_eos": True}
    return float(ring.post("/v1/completions", body)["timings"]["predicted_per_second"])


@click.command()
@click.option("--size", type=click.Choice(list(SIZES)), default="0.6B", show_default=True)
@click.option("--members", type=int, multiple=True, default=(1, 3), show_default=True)
@click.option("--tokens", default=64, show_default=True, help="Of each answer.")
@click.option("--runs", default=5, show_default=True)
def main(size: str, members: tuple[int, ...], tokens: int, runs: int) -> None:
    """Serve a random checkpoint of a Qwen3 size and print its rates, the last line as JSON."""
    result: dict[str, Any] = {"bench": "ring", "size": size, "tokens": tokens, "rings": []}
    reader = Reader()
    with tempfile.TemporaryDirectory() as folder:
        model = write_checkpoint(Path(folder) / "model", SIZES[size])
        manifest = Manifest.of(str(model))
        token_bytes = manifest.blocks * manifest.block_bytes + manifest.head_read_bytes
        for count in members:
            counts = division(manifest.blocks, count)
            with Ring(Path(folder) / f"ring{count}", model, counts, context=512) as ring:
                decode_rate(ring, 8)
                rates, bandwidths = [], []
                for _ in range(runs):
                    bandwidths.append(reader.bandwidth())
                    rates.append(decode_rate(ring, tokens))
            rate, bandwidth = statistics.median(rates), statistics.median(bandwidths)
            share = rate * token_bytes / bandwidth
            print(
                f"{count} member{'s' if count > 1 else ''} {counts}: {rate:.1f} tok/s, "
                f"{rate * token_bytes / 1e9:.1f} of {bandwidth / 1e9:.1f} GB/s ({share:.0%})"
            )
            result["rings"].append(
                {
                    "members": count,
                    "tokens_per_s": round(rate, 2),
                    "read_gb_per_s": round(rate * token_bytes / 1e9, 2),
                    "bandwidth_gb_per_s": round(bandwidth / 1e9, 2),
                    "share": round(share, 3),
                }
            )
    print(json.dumps(result))


if __name__ == "__main__":
    main()
