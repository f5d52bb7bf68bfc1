"""The plan's stage times against measured ones: stages of several shapes, ranges, roles, contexts
and rows, none of which the model was ever fitted to.

The machine's bandwidth drifts within seconds, so a short probe is taken before and after every
measurement, which is predicted from the mean of the two; each stage is measured in several rounds,
and its error is their median. Predictions from the probe of standard shapes, which is all there is
before a model is chosen, stand apart.

    python -m tools.bench.cost
    python -m tools.bench.cost --size 1.7B --kernels none
"""

import json
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import product
from typing import Any

import click
import numpy as np

from kafila.plan import cost
from kafila.plan.values import Device, Load, Model, Workspace
from stages import kernels, random
from stages.config import Qwen3Config
from stages.measure import IDLE_SECONDS, Measured, Probe, Shapes
from stages.stage import Stage
from tools.bench.stage import named, step_of
from tools.make_checkpoint import SIZES

RANGES = {"0.6B": (4, 14, 28), "1.7B": (2, 6, 14), "4B": (1, 4, 8)}
"""Blocks of a stage; with head, caches and the probe's own weights less than 4 GiB."""

CONTEXT = 2048

WORKS = ((1, 16), (1, 512), (1, 1900), (4, 512))
"""Rows of a step and tokens in each one's cache."""

ROUNDS = 3

CELL_SECONDS = 0.2
"""Each stage at each context and number of rows is timed for so long in a round."""

PROBE_SECONDS = 0.05
"""The same of each figure of a probe."""

TARGET = 0.10
"""Median error of predictions from the model's own shapes."""


@dataclass(frozen=True)
class Cell:
    """A stage at work, and the relative errors of what it was predicted to take: positive where it
    was faster than that."""

    size: str
    blocks: int
    head: bool
    position: int
    rows: int
    measured_us: float
    own: float
    standard: float


def predicted_us(
    config: Qwen3Config, found: Measured, blocks: int, head: bool, position: int, rows: int
) -> float:
    """What a plan says of such a stage's step, from this probe."""
    model = Model(
        name="",
        blocks=config.blocks,
        max_context=config.max_positions,
        block_bytes=sum(
            int(np.prod(shape)) * np.dtype(dtype).itemsize
            for shape, dtype in config.block_leaves().values()
        ),
        head_read_bytes=config.vocab * config.hidden * config.itemsize,
        head_resident_bytes=0,
        kv_bytes=config.kv_bytes,
        hidden=config.hidden,
        itemsize=config.itemsize,
    )
    device = Device(
        name="",
        key="",
        machine="",
        machine_bytes=0,
        bandwidth=found.bandwidth,
        overhead_us=found.overhead_us,
        flops=found.flops,
        rows_ns=tuple(found.rows_ns.items()),
        block_ns=found.block_ns,
        room_bytes=0,
        runtime_bytes=0,
        workspace=Workspace(0, 0, 0),
        rtt_us=None,
    )
    load = Load(context=position, concurrency=rows)
    return cost.batch(model, load, device, rows, head=head).cost(blocks)


def mean(a: Measured, b: Measured) -> Measured:
    """Between two measurements of one device."""
    return replace(
        a,
        bandwidth=(a.bandwidth + b.bandwidth) // 2,
        overhead_us=(a.overhead_us + b.overhead_us) // 2,
        block_ns=(a.block_ns + b.block_ns) // 2,
        rows_ns={n: (ns + b.rows_ns[n]) // 2 for n, ns in a.rows_ns.items()},
    )


def rested_seconds(call: Callable[[], object]) -> float:
    """Median time of a call that comes after a sleep, as in a ring."""
    call()
    found: list[float] = []
    stop = time.perf_counter() + CELL_SECONDS
    while len(found) < 5 or time.perf_counter() < stop:
        time.sleep(IDLE_SECONDS)
        began = time.perf_counter()
        call()
        found.append(time.perf_counter() - began)
    return statistics.median(found)


def cells(size: str, standard: Probe) -> Iterator[Cell]:
    """All stages of one shape at work, each measurement between two of the machine."""
    config = SIZES[size]
    weights = [random.block(config, seed) for seed in range(max(RANGES[size]))]
    top = random.head(config)
    own = standard if Shapes.of(config) == Shapes.standard() else Probe(Shapes.of(config))

    rows = sorted({rows for rows, _ in WORKS})

    def probed() -> tuple[Measured, Measured]:
        found = own.measured(PROBE_SECONDS, rows)
        return found, found if own is standard else standard.measured(PROBE_SECONDS, rows)

    for blocks, head in product(RANGES[size], (False, True)):
        stage = Stage(
            config,
            weights[:blocks],
            top if head else None,
            context=CONTEXT,
            groups=1,
            rows=max(rows),
        )
        times: dict[tuple[int, int], list[tuple[float, float, float]]] = {w: [] for w in WORKS}
        before = probed()
        for count, position in WORKS * ROUNDS:
            measured = 1e6 * rested_seconds(step_of(stage, head, position, count))
            after = probed()
            own_us, standard_us = (
                predicted_us(config, mean(a, b), blocks, head, position, count)
                for a, b in zip(before, after, strict=True)
            )
            times[count, position].append((measured, own_us, standard_us))
            before = after
        for (count, position), found in times.items():
            yield Cell(
                size,
                blocks,
                head,
                position,
                count,
                statistics.median(took for took, _, _ in found),
                statistics.median(said / took - 1 for took, said, _ in found),
                statistics.median(said / took - 1 for took, _, said in found),
            )


def summary(errors: Sequence[float]) -> dict[str, float]:
    """Of relative errors: the median size, the quartiles and the worst, and which way they lean."""
    sizes = sorted(map(abs, errors))
    first, middle, third = statistics.quantiles(sizes, n=4)
    return {
        "cells": len(sizes),
        "median": round(middle, 4),
        "first_quartile": round(first, 4),
        "third_quartile": round(third, 4),
        "worst": round(sizes[-1], 4),
        "bias": round(statistics.median(errors), 4),
    }


def show(cell: Cell) -> None:
    what = f"{cell.size:>5} {cell.blocks:3} blocks {'+ head' if cell.head else '      '}"
    print(
        f"{what} {cell.rows} rows at {cell.position:5}: {cell.measured_us / 1e3:8.2f} ms, "
        f"own {cell.own:+7.1%}, standard {cell.standard:+7.1%}",
        flush=True,
    )


@click.command(context_settings={"show_default": True})
@click.option(
    "--size", "sizes", type=click.Choice(list(RANGES)), multiple=True, default=list(RANGES)
)
@click.option("--kernels", "kind", default="best", help="An instruction set, best, or none.")
def main(sizes: tuple[str, ...], kind: str) -> None:
    """Compare predicted with measured stage times."""
    began = time.perf_counter()
    found: list[Cell] = []
    chosen = named(kind)
    with kernels.using(chosen):
        standard = Probe(Shapes.standard())
        for size in sizes:
            for cell in cells(size, standard):
                show(cell)
                found.append(cell)
    one = [cell for cell in found if cell.rows == 1]
    parts = {
        "one row": [cell.own for cell in one],
        "one row, without head": [cell.own for cell in one if not cell.head],
        "one row, with head": [cell.own for cell in one if cell.head],
        "several rows": [cell.own for cell in found if cell.rows > 1],
        "one row, from standard shapes": [
            cell.standard for cell in one if Shapes.of(SIZES[cell.size]) != Shapes.standard()
        ],
    }
    told: dict[str, Any] = {name: summary(errors) for name, errors in parts.items() if errors}
    for name, each in told.items():
        print(
            f"{name}: {each['cells']} stages, median error {each['median']:.1%} "
            f"({each['first_quartile']:.1%} to {each['third_quartile']:.1%}, worst "
            f"{each['worst']:.1%}), leaning {each['bias']:+.1%}"
        )
    print(
        json.dumps(
            {
                "bench": "cost",
                "kernels": chosen.name if chosen else None,
                "seconds": round(time.perf_counter() - began),
                "errors": told,
                "within_target": told["one row"]["median"] <= TARGET,
                "cells": [asdict(cell) for cell in found],
            }
        )
    )


if __name__ == "__main__":
    main()
