"""Tokens per second of one machine's rings: a random checkpoint served by real processes.

Rings of one member and of several serve the same checkpoint over the HTTP API, in turns; beside
each rate stands the share of the read bandwidth that it amounts to, bandwidth measured in the same
rounds. llama.cpp's RPC may run the same shape in them, over one local server and over two.

    python -m tools.bench.ring --size 0.6B --members 1 --members 3
    python -m tools.bench.ring --members 2 --members 3 --vs llama.cpp --llama BUILD/bin
"""

import json
import statistics
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path
from typing import Any

import click

from kafila.manifest import Manifest
from tools.bench.bandwidth import Reader
from tools.bench.rivals import LlamaRing, Way
from tools.loopback import Ring
from tools.make_checkpoint import SIZES, write_checkpoint

PROMPT = 32

Rates = Sequence[float]


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
@click.option("--vs", type=click.Choice(["llama.cpp"]))
@click.option(
    "--llama", type=click.Path(exists=True, path_type=Path), help="Folder of llama-bench."
)
def main(
    size: str,
    members: tuple[int, ...],
    tokens: int,
    runs: int,
    vs: str | None,
    llama: Path | None,
) -> None:
    """Serve a random checkpoint of a Qwen3 size and print its rates, the last line as JSON."""
    if (vs is None) != (llama is None):
        raise click.UsageError("--vs llama.cpp and --llama, the folder of llama-bench, go together")
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        model = write_checkpoint(Path(folder) / "model", SIZES[size])
        manifest = Manifest.of(str(model))
        token_bytes = manifest.blocks * manifest.block_bytes + manifest.head_read_bytes
        rings = {
            count: stack.enter_context(
                Ring(
                    Path(folder) / f"ring{count}",
                    model,
                    division(manifest.blocks, count),
                    context=512,
                )
            )
            for count in members
        }
        rival = LlamaRing(llama, SIZES[size]) if llama else None
        if rival:
            stack.callback(rival.close)
        reader, bandwidths = Reader(), list[float]()
        own: dict[int, list[float]] = {count: [] for count in rings}
        theirs: dict[Way, list[float]] = {way: [] for way in (rival.ways if rival else ())}
        for ring in rings.values():
            decode_rate(ring, 8)
        for _ in range(runs):
            bandwidths.append(reader.bandwidth())
            for count, ring in rings.items():
                own[count].append(decode_rate(ring, tokens))
            for way, rates in theirs.items():
                assert rival is not None
                rates.append(rival.decode(way, tokens, PROMPT))

    found = [shown(count, rates, bandwidths, token_bytes) for count, rates in own.items()]
    result = {"bench": "ring", "size": size, "tokens": tokens, "rings": found}
    if theirs:
        result |= {"llama.cpp": compared(own, theirs)}
    print(json.dumps(result))


def shown(members: int, rates: Rates, bandwidths: Rates, token_bytes: int) -> dict[str, Any]:
    rate, bandwidth = statistics.median(rates), statistics.median(bandwidths)
    share = ratio([rate * token_bytes for rate in rates], bandwidths)
    print(
        f"{members} member{'s' if members > 1 else ''}: {rate:.1f} tok/s, "
        f"{rate * token_bytes / 1e9:.1f} of {bandwidth / 1e9:.1f} GB/s ({share:.0%})"
    )
    return {
        "members": members,
        "tokens_per_s": round(rate, 2),
        "read_gb_per_s": round(rate * token_bytes / 1e9, 2),
        "bandwidth_gb_per_s": round(bandwidth / 1e9, 2),
        "share": share,
    }


def compared(own: dict[int, list[float]], theirs: dict[Way, list[float]]) -> dict[str, Any]:
    """Each ring over each way of llama.cpp, and over the faster of those with the same servers."""
    middle = {way: statistics.median(rates) for way, rates in theirs.items()}
    for way, rate in middle.items():
        beside = ", ".join(f"{ratio(rates, theirs[way]):.2f} x" for rates in own.values())
        print(f"llama.cpp, {way}: {rate:.1f} tok/s; the rings {beside}")
    over: dict[str, float] = {}
    for servers, threads in sorted({(way.servers, way.threads) for way in theirs}):
        ways = [way for way in theirs if (way.servers, way.threads) == (servers, threads)]
        best = max(ways, key=middle.__getitem__)
        for members, rates in own.items():
            found = ratio(rates, theirs[best])
            over[f"{members}_members_over_{servers}_of_{threads}"] = found
            print(f"{members} members over {best}: {found:.3f}")
    each = [{**way._asdict(), "tokens_per_s": round(rate, 2)} for way, rate in middle.items()]
    return {"ways": each, "ratios": over}


def ratio(ours: Rates, others: Rates) -> float:
    """Median over the rounds: what was measured in the same minute is compared."""
    return round(statistics.median(a / b for a, b in zip(ours, others, strict=True)), 3)


if __name__ == "__main__":
    main()
