"""How long does a member take from its process' start until it answers, and what does it hold then?

A real `kafila serve` of a random checkpoint, as the only member of its ring, with a cache folder
of its own: started with nothing in it ("new"), with the kernels built but nothing compiled or
converted ("first"), and again with all there ("second").

    python -m tools.bench.start 0.6B
"""

import json
import os
import shutil
import statistics
import tempfile
import time
from pathlib import Path

import click
import psutil

from tools.loopback import NAMES, Ring
from tools.make_checkpoint import SIZES, TOKENIZER, write_checkpoint

KINDS = ("new", "first", "second")


def start(folder: Path, model: Path, blocks: int, context: int) -> tuple[float, int]:
    """Seconds until it answers, and the most memory it held, in bytes."""
    with Ring(folder, model, [blocks], context=context) as ring:
        ready = time.time()
        process = psutil.Process(ring.process(NAMES[0]).pid)
        return ready - process.create_time(), peak(process.pid)


def peak(pid: int) -> int:
    """Most resident bytes of a process so far (Linux), pages of mapped files included."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM"):
            return int(line.split()[1]) * 1024
    raise ValueError(f"process {pid} is gone")


def prepare(kind: str, cache: Path) -> None:
    """Leave of the cache what this kind of start finds there."""
    kept = {"new": (), "first": ("kernels",), "second": ("kernels", "xla", "weights")}[kind]
    if cache.exists():
        for folder in cache.iterdir():
            if folder.name not in kept:
                shutil.rmtree(folder)


@click.command(context_settings={"show_default": True})
@click.argument("size", type=click.Choice(list(SIZES)))
@click.option("--runs", type=click.IntRange(1), default=3)
@click.option("--context", type=click.IntRange(1), default=1024, help="Of the plan.")
def main(size: str, runs: int, context: int) -> None:
    """Start a member that serves all of SIZE, several times."""
    found: dict[str, list[tuple[float, int]]] = {kind: [] for kind in KINDS}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        model = write_checkpoint(folder / "model", SIZES[size], tokenizer=TOKENIZER)
        os.environ["XDG_CACHE_HOME"] = str(folder / "cache")
        for run in range(runs):
            for kind in KINDS:
                prepare(kind, folder / "cache" / "kafila")
                took, held = start(folder / f"{kind}{run}", model, SIZES[size].blocks, context)
                found[kind].append((took, held))
                print(f"{kind:6} {took:6.2f} s, peak {held / 1e9:.2f} GB", flush=True)
    seconds = {kind: statistics.median(s for s, _ in found[kind]) for kind in KINDS}
    peaks = [held for starts in found.values() for _, held in starts]
    result = {f"{kind}_s": round(took, 2) for kind, took in seconds.items()} | {
        "second_of_first": round(seconds["second"] / seconds["first"], 3),
        "second_of_new": round(seconds["second"] / seconds["new"], 3),
        "peak_bytes": max(peaks),
    }
    print(json.dumps({"bench": "start", "size": size, "context": context, **result}))


if __name__ == "__main__":
    main()
