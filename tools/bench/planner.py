"""What planning costs, start-up included, and its exact searches at their largest.

python -m tools.bench.planner

Times are CPU seconds of the process, which on a busy machine say more than a clock: the median of
REPEATS of a whole `kafila plan`, the least of them for a search. The last line is JSON.
"""

import json
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from random import Random

import click

from kafila.defaults import EXACT_RING
from kafila.plan.cycle import cheapest_cycle
from kafila.plan.make import Wishes, make_plan
from kafila.plan.partition import partition
from kafila.plan.values import Affine, Behaviour, Device, Load, Model, Nat, Workspace
from tools.planfiles import FOLDER

REPEATS = 7
WORLD = str(FOLDER / "world-qwen3-32b.probes.yaml")


@click.command()
def main() -> None:
    """Time planning and the command line, the last line as JSON."""
    random = Random(0)
    measured = {
        "nothing_s": command(sys.executable, "-c", "pass"),
        "help_s": kafila("--help"),
        "plan_6_members_s": kafila("plan", WORLD),
        "compare_6_members_s": kafila("plan", WORLD, "--compare"),
        "partition_10000_blocks_500_devices_s": search(large_partition(random)),
        "order_16_members_s": search(largest_ring(random)),
        "order_64_members_s": search(largest_ring(random, 64)),
        "load_16_members_80_blocks_s": search(large_load(random)),
    }
    for name, seconds in measured.items():
        print(f"{name.removesuffix('_s').replace('_', ' '):<40} {seconds * 1000:8.0f} ms")
    figures = {name: round(seconds, 4) for name, seconds in measured.items()}
    print(json.dumps({"bench": "planner", **figures}))


def kafila(*words: str) -> float:
    return command(sys.executable, "-m", "kafila", *words)


def command(*words: str) -> float:
    """CPU seconds of a process, start to end."""
    times = []
    for _ in range(REPEATS):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(words, check=True, capture_output=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        times.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return statistics.median(times)


def search(work: Callable[[], object]) -> float:
    """CPU seconds of a call, the least of three."""
    times = []
    for _ in range(3):
        began = time.process_time()
        work()
        times.append(time.process_time() - began)
    return min(times)


def large_partition(random: Random) -> Callable[[], object]:
    devices = [Affine(random.uniform(0, 100), random.uniform(1, 11), 10_000) for _ in range(500)]
    return lambda: partition(10_000, devices)


def largest_ring(random: Random, size: int = EXACT_RING) -> Callable[[], object]:
    costs = [[0] * size for _ in range(size)]
    for i in range(size):
        for j in range(i):
            costs[i][j] = costs[j][i] = random.randrange(1 << 40)
    return lambda: cheapest_cycle(costs)


def large_load(random: Random) -> Callable[[], object]:
    """All of it: order, division, head, groups, advice, on as many members as are exact."""
    behaviours: tuple[Behaviour, ...] = ("endpoint-independent", "address-and-port-dependent")
    devices = [
        Device(
            name=f"d{i:02}",
            key=str(i),
            machine=str(i),
            machine_bytes=1 << 40,
            bandwidth=random.randrange(50, 1500) * 10**9,
            overhead_us=random.randrange(10, 100),
            flops=10**14,
            rows_ns=((1, 100), (4, 103), (16, 130)),
            room_bytes=40 << 30,
            runtime_bytes=0,
            workspace=Workspace(0, 0, 0),
            rtt_us=random.randrange(1000, 200_000),
            nat=Nat(random.choice(behaviours), random.choice(behaviours)),
        )
        for i in range(EXACT_RING)
    ]
    model = Model("large", 80, 4096, 10**9, 10**9, 2 * 10**9, 4096, 8192, 2)
    return lambda: make_plan(model, Load(4096, 8), devices, "d00", Wishes())


if __name__ == "__main__":
    main()
