"""What planning must know of this machine, measured through the code that will serve.

Random weights of a model's shapes run through a real `Stage`; nothing is loaded or fitted.
"""

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax
import numpy as np
import psutil

from stages import random
from stages.compile import abstracts, compiled, workspace
from stages.config import Kept, Qwen3Config
from stages.executables import Executables, Spans
from stages.linear import Int8, Weight, product
from stages.mesh import Split
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

MORE_BLOCKS = 8
"""Of next to no weights, to see what a block takes beside reading."""

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
    kept: Kept | None = None

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
    """Figures of a device, or of several as one. A spread is the range from the first to the third
    quartile."""

    platform: str
    """"cpu", "cuda", "metal" or JAX's own word."""
    device: str
    """An accelerator in its maker's words, or several that work as one; empty for a CPU."""
    device_ids: tuple[str, ...]
    """Tell the memories of this machine apart that hold equal parts; empty for RAM."""
    device_bytes: int | None
    """What JAX may allocate in all of them; None where memory is RAM or not reported."""
    bandwidth: int
    """Bytes of weights per second, one row, while they are being read."""
    bandwidth_spread: int
    overhead_us: int
    """Of one stage call, whatever its blocks: conversions, dispatch, waking up."""
    overhead_spread_us: int
    flops: int
    """Multiplications and additions per second in a product the size of a prefill chunk."""
    flops_spread: int
    rows_ns: dict[int, int]
    """Rows in a step -> nanoseconds a block takes."""
    block_ns: int
    """What of that, with one row, is not reading: small operations, whatever the block's size."""
    runtime_bytes: int
    """What the process holds before any weight; compilers included."""
    workspace_base: int
    workspace_row: int
    workspace_context: int
    """Memory of executables beside weights and KV: base + rows * row + context * context_."""


class Probe:
    """One model's shapes on the devices that will serve it, compiled and ready to be measured, also
    again.

    Holds about WEIGHT_BYTES of random weights.
    """

    def __init__(self, shapes: Shapes, on_progress: Progress | None = None):
        """Takes seconds, most of them compiling. `on_progress` is told what comes next, how many
        parts are done and how many there are."""
        config = shapes.config()
        self._on_progress = on_progress
        self._parts = ["memory", "compiling", "overhead", "arithmetic"]
        self._parts += [f"{n} rows" for n in ROWS]
        self._say("memory")
        self._workspace = _workspace(config)
        self._runtime_bytes = psutil.Process().memory_info().rss
        self._say("compiling")
        self._split = Split.of(config)
        small = slight(config)
        nothing = random.block(small)
        self._nothing, self._nothings = (
            Stage(small, [nothing] * n, None, context=CONTEXT, groups=1, rows=1)
            for n in (1, 1 + MORE_BLOCKS)
        )
        self._product = _Product(config)
        self._stage, self._block_bytes = _stage(config)

    def measured(self, seconds: float = SECONDS, rows: Sequence[int] = ROWS) -> Measured:
        """The figures now, each repeated for so long; of steps of so many rows, some of ROWS."""
        self._say("overhead")
        overhead = _step_seconds(self._nothing, 1, seconds, idle=IDLE_SECONDS)
        unrested = _step_seconds(self._nothing, 1, seconds)
        beside = _more(_step_seconds(self._nothings, 1, seconds), unrested) / MORE_BLOCKS
        self._say("arithmetic")
        flops = self._product.rates(seconds)
        times = {}
        for n in rows:
            self._say(f"{n} rows")
            times[n] = per_block(
                _step_seconds(self._stage, n, seconds), unrested, self._stage.blocks
            )
        self._say("done")
        # Noise, or a tiny model: half is left for reading, so that both together are the block's.
        beside = min(beside, statistics.median(times[1]) / 2)
        rates = [self._block_bytes / max(each - beside, each / 2) for each in times[1]]
        base, row, context = self._workspace
        devices = self._split.devices
        platform = devices[0].platform
        limits = _limits(devices)
        return Measured(
            platform=PLATFORMS.get(platform, platform),
            device=self._split.words if platform != "cpu" else "",
            device_ids=self._split.names if limits else (),
            device_bytes=min(limits) * len(devices) if limits else None,
            bandwidth=_median(rates),
            bandwidth_spread=_spread(rates),
            overhead_us=_median([s * 1e6 for s in overhead]),
            overhead_spread_us=_spread([s * 1e6 for s in overhead]),
            flops=_median(flops),
            flops_spread=_spread(flops),
            rows_ns={n: _median([s * 1e9 for s in each]) for n, each in times.items()},
            block_ns=round(1e9 * beside),
            runtime_bytes=self._runtime_bytes,
            workspace_base=base,
            workspace_row=row,
            workspace_context=context,
        )

    def _say(self, part: str) -> None:
        if self._on_progress:
            parts = [*self._parts, "done"]
            self._on_progress(part, parts.index(part), len(self._parts))


def slight(config: Qwen3Config) -> Qwen3Config:
    """The same with next to no weights, on as many devices: a call costs its overhead."""
    count = Split.of(config).count
    return replace(
        config, heads=count, kv_heads=count, head_dim=32, ffn=32 * count, vocab=32 * count
    )


def measure_device(shapes: Shapes, on_progress: Progress | None = None) -> Measured:
    """What a probe of these shapes measures, once."""
    return Probe(shapes, on_progress).measured()


def _stage(config: Qwen3Config) -> tuple[Stage, int]:
    """A stage of as many distinct blocks as it takes, and the bytes of one."""
    blocks = [random.block(config)]
    size = sum(leaf.nbytes for leaf in blocks[0])
    count = min(MAX_BLOCKS, -(-WEIGHT_BYTES // size))
    blocks += [random.block(config, seed) for seed in range(1, count)]
    return Stage(config, blocks, None, context=CONTEXT, groups=1, rows=ROWS[-1]), size


def _step_seconds(stage: Stage, rows: int, seconds: float, *, idle: float = 0.0) -> list[float]:
    """Time of a whole step at this many rows, several times.

    A stage of next to no weights shows a call's overhead: after a sleep (`idle`) as in a ring,
    and without one as the steps here have it.
    """
    x = np.ones((rows, stage.hidden), stage.wire_dtype)
    positions = np.ones(rows, np.int32)
    return _times(lambda: stage.decode(0, positions, x), seconds, idle=idle)


def per_block(steps: list[float], overhead: list[float], blocks: int) -> list[float]:
    """Time of one of a step's blocks without the call's overhead, which the plan adds by itself.

    Noise may make the overhead of a tiny model look longer than its step: half is then left.
    """
    fixed = statistics.median(overhead)
    return [max(step - fixed, step / 2) / blocks for step in steps]


class _Product:
    """A prefill chunk's product with an [ffn, hidden] matrix, kept and split as the model's are."""

    def __init__(self, config: Qwen3Config):
        split, leaves = Split.of(config), config.block_leaves()
        names = [name for name in ("gate", "gate.scale") if name in leaves]
        gate, *scale = [split.put(name, np.ones(*leaves[name])) for name in names]
        self._x = split.put("x", np.ones((PREFILL_CHUNK, config.hidden), config.dtype))
        self._weight: Weight = Int8(gate, *scale) if scale else gate
        self._run = compiled(product, *abstracts((self._x, self._weight)))
        self._operations = 2 * PREFILL_CHUNK * config.ffn * config.hidden

    def rates(self, seconds: float) -> list[float]:
        """Operations per second."""
        times = _times(lambda: self._run(self._x, self._weight).block_until_ready(), seconds)
        return [self._operations / each for each in times]


def _workspace(config: Qwen3Config) -> tuple[int, int, int]:
    """Coefficients base, row and context from the compiler's analysis, of all devices together; no
    weight is made.

    Added over the executables although they run in turn: some tens of MB on the safe side.
    The context's is 0 on CPU, where attention holds the scores of one piece of the cache at a time
    (`stages.attention`); elsewhere those of all of it.
    """
    split = Split.of(config)

    def code(context: int) -> Executables:
        return Executables(config, split, spans=Spans(1, 1), head=True, context=context)

    def prefill(context: int) -> int:
        return split.count * workspace(code(context).prefill(PREFILL_CHUNK, context))

    def sample(rows: int) -> int:
        return split.count * workspace(code(CONTEXT).sample(rows))

    short, long = PREFILL_CHUNK, 4 * PREFILL_CHUNK
    small, large = prefill(short), prefill(long)
    context = max(0, -(-(large - small) // (long - short)))
    one, many = sample(1), sample(ROWS[-1])
    # What decoding needs of its own for a row is less: some 150 KB with kernels, which the compiler
    # does not see, or one row's attention at a time.
    row = max(0, -(-(many - one) // (ROWS[-1] - 1)))
    base = max(0, small - short * context) + one
    # The plan counts one of each leaf. (Of blocks these are norms: a few KB each.)
    return base + split.copies(config.head_leaves()), row, context


def _limits(devices: Sequence[jax.Device]) -> list[int]:
    """What JAX may allocate on each; none where the memory is RAM or one of them does not say."""
    found = [(each.memory_stats() or {}).get("bytes_limit") for each in devices]
    known = [limit for limit in found if limit is not None]
    return known if devices[0].platform != "cpu" and len(known) == len(found) else []


def _times(call: Callable[[], Any], seconds: float, *, idle: float = 0.0) -> list[float]:
    """Seconds of each call, after one that is not counted."""
    call()
    found: list[float] = []
    stop = time.perf_counter() + seconds
    while len(found) < REPEATS or time.perf_counter() < stop:
        if idle:
            time.sleep(idle)
        start = time.perf_counter()
        call()
        found.append(time.perf_counter() - start)
    return found


def _more(longer: list[float], shorter: list[float]) -> float:
    """How much longer one takes, which noise must not make negative."""
    return max(0.0, statistics.median(longer) - statistics.median(shorter))


def _median(values: list[float]) -> int:
    return max(1, round(statistics.median(values)))


def _spread(values: list[float]) -> int:
    first, _, third = statistics.quantiles(values, n=4)
    return round(third - first)
