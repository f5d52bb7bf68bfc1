"""Do stages overlap, as far as the plan says? Four real processes with paced stages.

Balanced: 20 ms a row, one row a step. One request passes every stage alone; four requests in four
groups can keep all stages busy, so the ideal is 4.0 times the tokens per second. Then the uniform
and the memory division of Qwen3-8B over the LAN fleet (`tools.fleets`), each stage as fast as its
plan says, in as many groups as it chose and in four: what four requests gain over one, against the
plan's prediction. Everything but the stage is the real thing.

    python -m tools.bench.overlap [--balanced]
"""

import json
import statistics
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import click

from kafila.derive import plan_probes
from kafila.plan.make import Wishes
from kafila.plan.values import Strategy
from tools.fleets import fleet
from tools.loopback import Ring, divided
from tools.make_goldens import CASES

USERS = 4
COUNTS = (2, 1, 2, 1)
SLOWER = 2.0
"""Times of planned stages are doubled: what loopback takes then weighs as much as a planned LAN."""


def rate(ring: Ring, requests: int, tokens: int) -> float:
    """Tokens per second with that many requests at once."""
    began = time.monotonic()
    answers = ring.at_once([[3, 1, 4, 1]] * requests, tokens)
    assert all(len(answer) == tokens for answer in answers)
    return requests * tokens / (time.monotonic() - began)


def rates(
    folder: Path, paces: dict[str, Any], groups: int, tokens: int, runs: int
) -> tuple[float, float]:
    """Tokens per second of one request and of USERS, taken in turns; medians."""
    serve = ("-m", "tests.e2e.paced_serve", json.dumps(paces))
    model = CASES["tied"].write(folder / "model")
    ring = Ring(folder / "ring", model, COUNTS, concurrency=USERS, groups=groups, serve=serve)
    with ring:
        rate(ring, 1, 8)
        turns = [(rate(ring, 1, tokens), rate(ring, USERS, tokens)) for _ in range(runs)]
    return statistics.median(one for one, _ in turns), statistics.median(many for _, many in turns)


def planned(strategy: Strategy) -> Iterator[tuple[int, dict[str, Any], float]]:
    """A division in as many groups as its plan chose and in one a user: groups, paces, gain.

    Caches are full, as the plan takes them for all its users.
    """
    wishes = Wishes(strategy=strategy, force=True)
    plan = plan_probes(fleet("lan", "8b"), context=None, concurrency=USERS, wishes=wishes)
    counts = [len(member.block_range) for member in plan.ring]
    for groups in sorted({plan.groups, USERS}):
        fresh, more = divided(plan, counts, groups), max(USERS // groups - 1, 1)
        first = [(member.stage_us or 0) + (member.context_us or 0) for member in fresh.ring]
        loaded = [member.load_us or 0 for member in fresh.ring]
        further = [(all_ - one) / more for all_, one in zip(loaded, first, strict=True)]
        paces: dict[str, Sequence[float]] = {"first": first, "further": further, "chunk": first}
        seconds = {what: [SLOWER * us / 1e6 for us in times] for what, times in paces.items()}
        told = fresh.predictions
        yield groups, seconds, USERS * (told.token_full_us or 0) / (told.shared_token_us or 1)


@click.command()
@click.option("--balanced", is_flag=True, help="Only the balanced ring.")
def main(balanced: bool) -> None:
    """Time one and four requests on rings of paced stages, the last line as JSON."""
    with tempfile.TemporaryDirectory() as folder:
        one, many = rates(Path(folder), {}, USERS, tokens=192, runs=3)
    result: dict[str, Any] = {
        "bench": "overlap",
        "stages": len(COUNTS),
        "tokens_per_s_1": round(one, 2),
        "tokens_per_s_4": round(many, 2),
        "ratio": round(many / one, 3),
    }
    print(f"1 request {one:.2f} tok/s, {USERS} requests {many:.2f} tok/s: {many / one:.3f} times")
    strategies: tuple[Strategy, ...] = ("uniform", "memory")
    for strategy in () if balanced else strategies:
        for groups, paces, told in planned(strategy):
            with tempfile.TemporaryDirectory() as folder:
                one, many = rates(Path(folder), paces, groups, tokens=48, runs=2)
            came = many / one
            print(f"{strategy}, groups {groups}: {came:.2f} times, {told:.2f} planned")
            case = {
                "gain": round(came, 3),
                "planned": round(told, 3),
                "off": round(came / told - 1, 3),
            }
            result[f"{strategy}_{groups}"] = case
    print(json.dumps(result))


if __name__ == "__main__":
    main()
