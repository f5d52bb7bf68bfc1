"""What planning must know of this machine, measured through the code that will serve.

Random weights of a model's shapes run through a real `Stage`; nothing is loaded or fitted.
"""

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
import psutil

from stages import random
from stages.attention import empty_slot
from stages.compile import abstract, abstracts, compiled, workspace
from stages.config import Qwen3Config
from stages.functions import Functions
from stages.linear import product
from stages.sampling import Sampling
from stages.stage import PREFILL_CHUNK, Stage

WEIGHT_BYTES = 1 << 29
"""Distinct weights to read in turn, well beyond any cache; at least one block of any size."""

MAX_BLOCKS = 32
"""Of a small model that is all; its weights stay in the cache when it serves, too."""

ROWS = (1, 2, 4, 8, 16)

CONTEXT = 16
"""Reading the KV cache is a term of its own in the plan, so here there is next to none."""

SECONDS = 0.5
"""Each measurement repeats for this long, and at least `REPEATS` times."""

REPEATS = 5

IDLE_SECONDS = 0.001
"""Before each call whose overhead is timed: in a ring a stage has slept since its last step."""

PLATFORMS = {"gpu": "cuda", "mps": "metal"}
"""JAX's word -> the word people use."""

Progress = Callable[[str, int, int], None]


@dataclass(frozen=True)
class Shapes:
    """What of a model decides how fast it runs."""

    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    ffn: int
    vocab: int
    dtype: str

    @classmethod
    def standard(cls) -> "Shapes":
        """Qwen3-0.6B's: what is measured when no model has been chosen."""
        return cls(1024, 16, 8, 128, 3072, 151936, "bfloat16")

    @classmethod
    def of(cls, model: object) -> "Shapes":
        """Of a config or a manifest: anything with attributes of these names."""
        return cls(**{name: getattr(model, name) for name in cls.__dataclass_fields__})

    def config(self) -> Qwen3Config:
        """One block of these shapes, all else as in any Qwen3."""
        return Qwen3Config(
            **vars(self),
            blocks=1,
            eps=1e-6,
            rope_theta=1e6,
            yarn=None,
            tied=True,
            max_positions=40960,
        )


@dataclass(frozen=True)
class Measured:
    """One device's figures. A spread is the range from the first to the third quartile."""

    platform: str
    """"cpu", "cuda", "metal" or JAX's own word."""
    device: str
    """An accelerator in its maker's words; empty for a CPU."""
    device_id: str
    """Tells one memory of this machine from another; empty for RAM."""
    device_bytes: int | None
    """What JAX may allocate on an accelerator; None where memory is RAM or not reported."""
    bandwidth: int
    """Bytes of weights per second, one row."""
    bandwidth_spread: int
    overhead_us: int
    """Of one stage call, whatever its blocks: conversions, dispatch, waking up."""
    overhead_spread_us: int
    flops: int
    """Multiplications and additions per second in a product the size of a prefill chunk."""
    flops_spread: int
    rows_ns: dict[int, int]
    """Rows in a step -> nanoseconds a block takes."""
    runtime_bytes: int
    """What the process holds before any weight; compilers included."""
    workspace_base: int
    workspace_row: int
    workspace_context: int
    """Memory of executables beside weights and KV: base + rows * row + context * context_."""


def measure_device(shapes: Shapes, on_progress: Progress | None = None) -> Measured:
    """Measure JAX's default device; takes some seconds, most of them compiling.

    Holds about WEIGHT_BYTES of random weights meanwhile. on_progress is told what comes next, how
    many measurements are done and how many there are.
    """
    config = shapes.config()
    steps = ["memory", "overhead", "arithmetic", "compiling", *(f"{n} rows" for n in ROWS)]

    def say(step: str) -> None:
        if on_progress:
            on_progress(step, steps.index(step), len(steps))

    say("memory")
    base, row, context = _workspace(config)
    runtime_bytes = psutil.Process().memory_info().rss
    say("overhead")
    overhead, unrested = _overhead(config)
    say("arithmetic")
    flops = _arithmetic(config)
    say("compiling")
    stage, block_bytes = _stage(config)
    rows = {}
    for n in ROWS:
        say(f"{n} rows")
        rows[n] = per_block(_step_seconds(stage, n), unrested, stage.blocks)
    rates = [block_bytes / seconds for seconds in rows[1]]
    if on_progress:
        on_progress("done", len(steps), len(steps))
    device = jax.devices()[0]
    own = device.platform != "cpu"
    limit = (device.memory_stats() or {}).get("bytes_limit") if own else None
    return Measured(
        platform=PLATFORMS.get(device.platform, device.platform),
        device=device.device_kind if own else "",
        device_id=str(device.id) if limit is not None else "",
        device_bytes=limit,
        bandwidth=_median(rates),
        bandwidth_spread=_spread(rates),
        overhead_us=_median([s * 1e6 for s in overhead]),
        overhead_spread_us=_spread([s * 1e6 for s in overhead]),
        flops=_median(flops),
        flops_spread=_spread(flops),
        rows_ns={n: _median([s * 1e9 for s in seconds]) for n, seconds in rows.items()},
        runtime_bytes=runtime_bytes,
        workspace_base=base,
        workspace_row=row,
        workspace_context=context,
    )


def _stage(config: Qwen3Config) -> tuple[Stage, int]:
    """A stage of as many distinct blocks as it takes, and the bytes of one."""
    blocks = [random.block(config)]
    size = sum(leaf.nbytes for leaf in blocks[0])
    count = min(MAX_BLOCKS, -(-WEIGHT_BYTES // size))
    blocks += [random.block(config, seed) for seed in range(1, count)]
    return Stage(config, blocks, None, context=CONTEXT, groups=1, rows=ROWS[-1]), size


def _step_seconds(stage: Stage, rows: int) -> list[float]:
    """Time of a whole step at this many rows, several times."""
    x = np.ones((rows, stage.hidden), stage.wire_dtype)
    positions = np.ones(rows, np.int32)
    return _times(lambda: stage.decode(0, positions, x))


def per_block(steps: list[float], overhead: list[float], blocks: int) -> list[float]:
    """Time of one of a step's blocks without the call's overhead, which the plan adds by itself.

    Noise may make the overhead of a tiny model look longer than its step: half is then left.
    """
    fixed = statistics.median(overhead)
    return [max(step - fixed, step / 2) / blocks for step in steps]


def _overhead(config: Qwen3Config) -> tuple[list[float], list[float]]:
    """Time of a stage call with the same hidden state but next to no weights: after a sleep as in
    a ring, and without one as in the measurements of steps here.
    """
    small = Shapes(config.hidden, 1, 1, 32, 32, 32, config.dtype).config()
    stage = Stage(small, [random.block(small)], None, context=CONTEXT, groups=1, rows=1)
    x, positions = np.ones((1, config.hidden), stage.wire_dtype), np.ones(1, np.int32)

    def call() -> Any:
        return stage.decode(0, positions, x)

    return _times(call, idle=IDLE_SECONDS), _times(call)


def _arithmetic(config: Qwen3Config) -> list[float]:
    """Operations per second of a prefill chunk's product with an [ffn, hidden] matrix."""
    x = jax.device_put(np.ones((PREFILL_CHUNK, config.hidden), config.dtype))
    weight = jax.device_put(np.ones((config.ffn, config.hidden), config.dtype))
    run = compiled(product, *abstracts((x, weight)))
    operations = 2 * PREFILL_CHUNK * config.ffn * config.hidden
    return [operations / s for s in _times(lambda: run(x, weight).block_until_ready())]


def _workspace(config: Qwen3Config) -> tuple[int, int, int]:
    """Coefficients base, row and context from the compiler's analysis; no weight is made.

    Added over the executables although they run in turn: some tens of MB on the safe side.
    The context's is 0 on CPU, where attention holds the scores of one piece of the cache at a time
    (`stages.attention`); elsewhere those of all of it.
    """
    functions = Functions(config, head=True)
    assert functions.head is not None
    block = [_abstract_leaves(functions.block.names, config.block_shapes(), config)]
    head = _abstract_leaves(functions.head.names, config.head_shapes(), config)

    def prefill(context: int) -> int:
        slot = jax.eval_shape(lambda: empty_slot(config, context))
        x, start = abstract((PREFILL_CHUNK, config.hidden), config.dtype), abstract((), np.int32)
        return workspace(compiled(functions.prefill, block, x, start, [[slot]], donate=3))

    def sample(rows: int) -> int:
        x, positions = abstract((rows, config.hidden), config.dtype), abstract((rows,), np.int32)
        greedy = abstracts(Sampling.greedy(rows))
        return workspace(compiled(functions.sample, head, x, positions, greedy))

    short, long = PREFILL_CHUNK, 4 * PREFILL_CHUNK
    small, large = prefill(short), prefill(long)
    context = max(0, -(-(large - small) // (long - short)))
    one, many = sample(1), sample(ROWS[-1])
    # A row's decode attention works one row at a time and is smaller than a prefill's.
    row = max(0, -(-(many - one) // (ROWS[-1] - 1)))
    return max(0, small - short * context) + one, row, context


def _abstract_leaves(names: list[str], shapes: dict[str, Any], config: Qwen3Config) -> list[Any]:
    return [abstract(shapes[name], config.dtype) for name in names]


def _times(call: Callable[[], Any], *, idle: float = 0.0) -> list[float]:
    """Seconds of each call, after one that is not counted."""
    call()
    seconds: list[float] = []
    stop = time.perf_counter() + SECONDS
    while len(seconds) < REPEATS or time.perf_counter() < stop:
        if idle:
            time.sleep(idle)
        start = time.perf_counter()
        call()
        seconds.append(time.perf_counter() - start)
    return seconds


def _median(values: list[float]) -> int:
    return max(1, round(statistics.median(values)))


def _spread(values: list[float]) -> int:
    first, _, third = statistics.quantiles(values, n=4)
    return round(third - first)
