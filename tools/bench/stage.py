"""How near does one stage come to what memory allows? Random weights of any Qwen3's shapes.

A decode step reads every weight and the valid part of every row's KV cache once, so the machine's
read bandwidth, measured between the steps of the same run, gives a floor for its time. Prefill is
bound by arithmetic and shown beside it. Rivals run the same shape in the same rounds.

    python -m tools.bench.stage 0.6B
    python -m tools.bench.stage 8B --blocks 4 --no-head --rows 1,4,16
    python -m tools.bench.stage 0.6B --rows 1,8 --vs transformers --vs llama.cpp --llama BUILD/bin
    python -m tools.bench.stage 0.6B --dtype int8 --vs bfloat16
"""

import dataclasses
import json
import os
import resource
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import numpy as np

from stages import kernels, random
from stages.config import Qwen3Config
from stages.measure import slight
from stages.sampling import Sampling
from stages.stage import Stage
from tools.bench.bandwidth import Reader
from tools.bench.rivals import LlamaCpp, Rival, Transformers
from tools.make_checkpoint import SIZES

SECONDS = 1.0
"""Of decoding in one round."""

PROMPT = 512
"""Tokens of a prefill."""


def seconds(call: Callable[[], object]) -> float:
    began = time.perf_counter()
    call()
    return time.perf_counter() - began


def median_seconds(call: Callable[[], object], for_seconds: float = SECONDS) -> float:
    """Of one call, after one that is not counted; at least three are."""
    call()
    found: list[float] = []
    stop = time.perf_counter() + for_seconds
    while len(found) < 3 or time.perf_counter() < stop:
        found.append(seconds(call))
    return statistics.median(found)


def overheads(config: Qwen3Config) -> tuple[float, float]:
    """Microseconds of a stage call and of each of its blocks, with next to no weights to read."""
    small = slight(config)
    x, positions = np.ones((1, config.hidden), config.dtype), np.ones(1, np.int32)
    times = []
    for blocks in (1, 9):
        leaves = [random.block(small, i) for i in range(blocks)]
        stage = Stage(small, leaves, None, context=16, groups=1, rows=1)
        times.append(1e6 * median_seconds(lambda: stage.decode(0, positions, x), 0.2))  # noqa: B023
    return times[0], (times[1] - times[0]) / 8


@click.command(context_settings={"show_default": True})
@click.argument("size", type=click.Choice(list(SIZES)))
@click.option("--blocks", type=click.IntRange(1), help="Instead of all.")
@click.option("--head/--no-head", default=True, help="With embedding, sampling, unembedding.")
@click.option("--rows", default="1,4", help="Rows in a step, with commas.")
@click.option("--context", type=click.IntRange(2), default=1024, help="Positions of a KV cache.")
@click.option("--position", type=click.IntRange(1), default=256, help="Those filled at a step.")
@click.option(
    "--dtype",
    type=click.Choice(["bfloat16", "float32", "int8"]),
    default="bfloat16",
    help="int8: the blocks' matrices; all else is bfloat16.",
)
@click.option("--kernels", "kind", default="best", help="An instruction set, best, or none.")
@click.option("--rounds", type=click.IntRange(1), default=5)
@click.option("--vs", multiple=True, type=click.Choice(["bfloat16", "transformers", "llama.cpp"]))
@click.option(
    "--llama",
    type=click.Path(exists=True, path_type=Path),
    help="Folder of llama-bench.",
)
@click.option(
    "--python",
    type=click.Path(path_type=Path),
    default=".venv-peers/bin/python",
    help="One that has torch and transformers; `make test-peers` makes the default.",
)
def main(
    size: str,
    blocks: int | None,
    head: bool,
    rows: str,
    context: int,
    position: int,
    dtype: str,
    kind: str,
    rounds: int,
    vs: tuple[str, ...],
    llama: Path | None,
    python: Path,
) -> None:
    """Time the decode steps and prefill of one stage of SIZE."""
    if set(vs) - {"bfloat16"} and not head:
        raise click.UsageError("rivals run whole models: not with --no-head")
    counts = [int(n) for n in rows.split(",")]
    shape = SIZES[size]
    config = dataclasses.replace(shape, blocks=blocks or shape.blocks)
    if dtype == "int8":
        config = dataclasses.replace(config, kept="int8")
    else:
        config = dataclasses.replace(config, dtype=dtype)
    rivals: list[Rival] = []
    if "bfloat16" in vs:
        other = dataclasses.replace(config, dtype="bfloat16", kept=None)
        with kernels.using(named(kind)):
            rivals.append(Bfloat16(other, context, max(counts), head))
    if "llama.cpp" in vs:
        if llama is None:
            raise click.UsageError("--vs llama.cpp needs --llama, the folder of llama-bench")
        rivals.append(LlamaCpp(llama, config, len(os.sched_getaffinity(0))))
    if "transformers" in vs:
        if not python.exists():
            raise click.UsageError(f"{python} is not there: --python names one with transformers")
        rivals.append(Transformers(python, config))
    try:
        with kernels.using(named(kind)):
            found = measure(config, counts, context, position, head, rounds, rivals)
    finally:
        for rival in rivals:
            rival.close()
    print(json.dumps({"bench": "stage", "size": size, **found}))


def named(kind: str) -> kernels.Kernels | None:
    if kind == "none":
        return None
    if kind == "best":
        return kernels.best()
    for one in kernels.available():
        if one.name == kind:
            return one
    raise click.UsageError(f"no kernels {kind} here")


def measure(
    config: Qwen3Config,
    counts: list[int],
    context: int,
    position: int,
    head: bool,
    rounds: int,
    rivals: list[Rival],
) -> dict[str, Any]:
    """What the last line says, printed for people as it comes."""
    chosen = kernels.chosen()
    weights = [random.block(config, seed) for seed in range(config.blocks)]
    top = random.head(config, config.blocks) if head else None
    took = time.perf_counter()
    stage = Stage(config, weights, top, context=context, groups=1, rows=max(counts))
    took = time.perf_counter() - took
    read = sum(leaf.nbytes for block in weights for leaf in block)
    if head:
        read += config.vocab * config.hidden * config.itemsize
    of = f"{config.blocks} blocks{' and head' if head else ''}, {config.kept or config.dtype}"
    print(f"{of}: {read / 1e9:.3f} GB a step, compiled in {took:.1f} s, kernels ", end="")
    print(chosen.name if chosen else "none", flush=True)

    reader = Reader()
    results = []
    for count in counts:
        step = step_of(stage, head, position, count)
        size = read + count * (position + 1) * config.kv_bytes * config.blocks
        times: list[float] = []
        bandwidths: list[float] = []
        theirs: dict[str, list[float]] = {rival.name: [] for rival in rivals}
        for _ in range(rounds):
            bandwidths.append(reader.bandwidth())
            times.append(median_seconds(step))
            for rival in rivals:
                theirs[rival.name].append(rival.decode(count, position))
        result = {
            "rows": count,
            "position": position,
            "step_ms": _round(1e3 * statistics.median(times)),
            "tokens_per_s": _round(count / statistics.median(times)),
            "gb_per_s": _round(size / statistics.median(times) / 1e9),
            "read_gb_per_s": _round(statistics.median(bandwidths) / 1e9),
            "share": _ratio([size / t for t in times], bandwidths),
            "vs": {
                name: {
                    "tokens_per_s": _round(statistics.median(rates)),
                    "ratio": _ratio([count / t for t in times], rates),
                }
                for name, rates in theirs.items()
            },
        }
        results.append(result)
        print(
            f"{count:3} rows: {result['step_ms']} ms a step, {result['tokens_per_s']} tok/s, "
            f"{result['gb_per_s']} of {result['read_gb_per_s']} GB/s = {result['share']:.0%}"
            + _against(result["vs"]),
            flush=True,
        )
    found: dict[str, Any] = {
        "blocks": config.blocks,
        "head": head,
        "dtype": config.kept or config.dtype,
        "kernels": chosen.name if chosen else None,
        "context": context,
        "step_bytes": read,
        "compile_s": _round(took),
        "decode": results,
    }
    if context >= PROMPT:
        found["prefill"] = prefill(stage, head, rounds, rivals)
    call, block = overheads(config)
    found |= {"call_us": round(call), "block_us": round(block), "peak_bytes": peak()}
    print(f"overhead {call:.0f} us a call and {block:.0f} a block more, ", end="")
    print(f"peak memory {found['peak_bytes'] / 2**30:.2f} GiB")
    return found


def step_of(stage: Stage, head: bool, position: int, rows: int) -> Callable[[], object]:
    """One step of so many rows with so much in their caches."""
    x = np.ones((rows, stage.hidden), stage.wire_dtype)
    positions, greedy = np.full(rows, position, np.int32), Sampling.greedy(rows)
    if head:
        return lambda: stage.step(0, positions, x, greedy)
    return lambda: stage.decode(0, positions, x)


def prompt_of(stage: Stage, head: bool, tokens: int) -> Callable[[], None]:
    """A prompt of so many tokens in chunks; with the head, from the tokens to the last one's
    logits."""
    x = np.ones(tokens, np.int32) if head else np.ones((tokens, stage.hidden), stage.wire_dtype)

    def chunks() -> None:
        for start in range(0, tokens, stage.chunk):
            y = stage.prefill(0, 0, start, x[start : start + stage.chunk])
        if head:
            stage.logits(y[-1:])

    return chunks


class Bfloat16:
    """The same shape with all its weights in bfloat16, through the same code."""

    name = "bfloat16"

    def __init__(self, config: Qwen3Config, context: int, rows: int, head: bool):
        weights = [random.block(config, seed) for seed in range(config.blocks)]
        top = random.head(config, config.blocks) if head else None
        self._stage = Stage(config, weights, top, context=context, groups=1, rows=rows)
        self._head = head

    def decode(self, rows: int, position: int) -> float:
        return rows / median_seconds(step_of(self._stage, self._head, position, rows))

    def prefill(self, tokens: int) -> float:
        return tokens / seconds(prompt_of(self._stage, self._head, tokens))

    def close(self) -> None:
        pass


def prefill(stage: Stage, head: bool, rounds: int, rivals: list[Rival]) -> dict[str, Any]:
    chunks = prompt_of(stage, head, PROMPT)
    own: list[float] = []
    theirs: dict[str, list[float]] = {rival.name: [] for rival in rivals}
    chunks()
    for rival in rivals:
        rival.prefill(PROMPT)
    for _ in range(rounds):
        own.append(PROMPT / seconds(chunks))
        for rival in rivals:
            theirs[rival.name].append(rival.prefill(PROMPT))
    found = {
        "tokens": PROMPT,
        "tokens_per_s": _round(statistics.median(own)),
        "vs": {
            name: {"tokens_per_s": _round(statistics.median(rates)), "ratio": _ratio(own, rates)}
            for name, rates in theirs.items()
        },
    }
    print(f"prefill of {PROMPT}: {found['tokens_per_s']} tok/s{_against(found['vs'])}", flush=True)
    return found


def peak() -> int:
    """Most bytes this process has held so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def _round(value: float) -> float:
    return float(f"{value:.3g}") if value < 100 else round(value)


def _ratio(ours: list[float], theirs: list[float]) -> float:
    """Median over the rounds: what was measured in the same minute is compared."""
    return round(statistics.median(a / b for a, b in zip(ours, theirs, strict=True)), 3)


def _against(vs: Any) -> str:
    return "".join(f"; {k} {v['tokens_per_s']} ({v['ratio']} x)" for k, v in vs.items())


if __name__ == "__main__":
    main()
