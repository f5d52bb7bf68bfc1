"""Does a member hold what admission counted for it, and no more after many requests?

A ring of real processes on loopback. Counted is what the planner counts: weights and KV caches of
the member's range, and the runtime term and workspace that `kafila probe` reports here. Beside it
stands the most the kernel has seen resident of the process (VmHWM). That includes pages of mapped
files, which the system could take back: so does the runtime term, which is the same kind of figure,
and the next token would have to wait until they are read again.

    python -m tools.bench.memory 1.7B
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

import click

from kafila.derive import recheck
from kafila.planfile import PlanFile, read
from kafila.probe.report import Report, read_probes
from tools.bench.ring import division
from tools.bench.start import peak
from tools.loopback import NAMES, Ring
from tools.make_checkpoint import SIZES, TOKENIZER, write_checkpoint

AT_ONCE = 4


def probed(folder: Path, model: Path) -> Report:
    """What `kafila probe` says of this machine."""
    file = folder / "probe.yaml"
    words = ["--model", str(model), "--home", str(folder / "probe"), "-o", str(file)]
    subprocess.run([sys.executable, "-m", "kafila", "probe", *words], check=True)
    return read_probes(file).reports[0]


def counted(plan: PlanFile, report: Report) -> list[int]:
    """What admission says each member needs, with the figures that were measured here."""
    figures = {"runtime_bytes": report.runtime_bytes, "workspace": report.workspace}
    ring = tuple(
        member.model_copy(update={"measured": member.measured.model_copy(update=figures)})
        for member in plan.ring
    )
    fresh = recheck(plan.model_copy(update={"ring": ring})).plan
    return [member.need_bytes for member in fresh.ring]


@click.command(context_settings={"show_default": True})
@click.argument("size", type=click.Choice(list(SIZES)))
@click.option("--members", type=click.IntRange(1, len(NAMES)), default=3)
@click.option("--requests", type=click.IntRange(2 * AT_ONCE), default=200)
@click.option("--tokens", type=click.IntRange(1), default=4, help="Of each answer.")
@click.option("--context", type=click.IntRange(64), default=1024, help="Of the plan.")
def main(size: str, members: int, requests: int, tokens: int, context: int) -> None:
    """Serve SIZE in a ring and compare what its members hold with what was counted."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        model = write_checkpoint(folder / "model", SIZES[size], tokenizer=TOKENIZER)
        report = probed(folder, model)
        counts = division(SIZES[size].blocks, members)
        with Ring(folder / "ring", model, counts, context=context, concurrency=AT_ONCE) as ring:
            need = counted(read(folder / "ring" / "plan.yaml"), report)
            pids = [ring.process(who).pid for who in ring.names]
            held = [[peak(pid) for pid in pids]]
            for count in (requests // 10, requests - requests // 10):
                for first in range(0, count, AT_ONCE):
                    prompts = [
                        [(7 * i + first + j) % 1000 for i in range(32)] for j in range(AT_ONCE)
                    ]
                    ring.at_once(prompts, tokens)
                held.append([peak(pid) for pid in pids])
    rows = []
    for i, blocks in enumerate(counts):
        ready, early, late = (figures[i] for figures in held)
        row = {
            "blocks": blocks,
            "counted": need[i],
            "ready": ready,
            "peak": late,
            "of_counted": round(late / need[i], 3),
            "grown": late - early,
        }
        rows.append(row)
        print(
            f"{blocks} blocks{' and head' if not i else ''}: counted {need[i] / 1e9:.2f} GB, when "
            f"ready {ready / 1e9:.2f}, after {requests // 10} requests {early / 1e9:.2f}, after "
            f"{requests} {late / 1e9:.2f} ({row['of_counted']} of counted)"
        )
    print(
        json.dumps(
            {"bench": "memory", "size": size, "runtime": report.runtime_bytes, "members": rows}
        )
    )


if __name__ == "__main__":
    main()
