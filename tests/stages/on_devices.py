"""What a stage answers and where it holds what, on as many devices as this process has.

The number of a CPU's devices is fixed when JAX starts, so `test_mesh` runs this as a program, too:

    python -m tests.stages.on_devices 4 FOLDER:[WORD]... -> one JSON object a line

WORD: int8, unkept (the same, but nothing is kept on disk), accelerator (computed as there), probe.
"""

import json
import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).parents[2]
ROWS, CONTEXT = 3, 300
SENT = re.compile(r" (all-[a-z]+|collective-[a-z]+|reduce-scatter)\(")
SECONDS = 240


def run(devices: int, cases: Sequence[tuple[Path, str]]) -> list[dict[str, Any]]:
    """The cases on so many devices: `found` of each."""
    words = [f"{folder}:{word}" for folder, word in cases]
    done = subprocess.run(
        [sys.executable, "-W", "error", "-m", "tests.stages.on_devices", str(devices), *words],
        cwd=ROOT,
        env={
            **os.environ,
            "JAX_PLATFORMS": "cpu",
            "XLA_FLAGS": f"--xla_force_host_platform_device_count={devices}",
        },
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def found(folder: Path, word: str) -> dict[str, Any]:
    """Answers of a whole model, the bytes on each device, and what goes between them."""
    from stages import kept
    from stages.checkpoint import Checkpoint
    from stages.functions import Functions
    from stages.stage import Stage

    if word == "unkept":
        kept.keep, kept.find = lambda *_: False, lambda *_: None
    checkpoint = Checkpoint.open(folder)
    config = checkpoint.config
    stage = Stage.open(
        checkpoint,
        range(config.blocks),
        head=True,
        context=CONTEXT,
        groups=2,
        rows=ROWS,
        kept="int8" if word in ("int8", "unkept") else None,
    )
    functions = Functions(config, head=True)
    assert functions.head is not None
    head = stage._head or []
    slot = stage._slots[0][0][0]
    return {
        "devices": stage.devices,
        "answers": answers(stage),
        "depths": stage._depths,
        "spans": stage._spans,
        "between": [
            dict(Counter(SENT.findall(stage._decode[2, depth].as_text())))
            for depth in stage._depths
        ],
        "leaves": [[part.nbytes for part in parts(leaf)] for leaf in stage._leaves[0]],
        "head": [[part.nbytes for part in parts(leaf)] for leaf in head],
        "slot": [[part.nbytes for part in parts(each)] for each in slot],
        "kept": {  # of each block
            f"{name} {size} of {depth}": executable.memory_analysis().alias_size_in_bytes / blocks
            for name, some, blocks in [
                ("decode", stage._decode, stage._spans.decode),
                ("prefill", stage._prefill, stage._spans.prefill),
                ("copy", {(1, CONTEXT): stage._copy}, 1),
            ]
            for (size, depth), executable in some.items()
        },
    }


def probed(folder: Path) -> dict[str, Any]:
    """What a probe of these shapes tells, few measurements a figure."""
    from stages.checkpoint import read_config
    from stages.measure import Probe, Shapes

    config = read_config(folder / "config.json")
    return asdict(Probe(Shapes.of(config)).measured(0, rows=(1,)))


def parts(array: Any) -> list[Any]:
    """What each device holds of it."""
    return [shard.data for shard in array.addressable_shards]


def answers(stage: Any) -> list[list[int]]:
    """Greedy tokens: of a short and a long prompt in chunks, of what begins like the long one,
    copied, and of all three in one step."""
    from stages.sampling import Sampling

    rng = np.random.default_rng(3)
    prompts = [rng.integers(0, stage.vocab, n).astype(np.int32) for n in (7, 280)]
    last = np.zeros((ROWS, stage.hidden), stage.wire_dtype)
    for row, prompt in enumerate(prompts):
        for start in range(0, len(prompt), 256):
            last[row] = stage.prefill(1, row, start, prompt[start : start + 256])[-1]
    stage.copy((1, 1), (1, 2), 270)
    last[2] = stage.prefill(1, 2, 270, prompts[0])[-1]
    positions = np.array([7, 280, 277], np.int32)
    told: list[list[int]] = [[] for _ in range(ROWS)]
    for step in range(12):
        now = positions + step
        if step % 4 == 3:  # one alone
            now[[0, 2]] = -1
            positions[[0, 2]] -= 1
        drawn, y = stage.step(1, now, last, Sampling.greedy(ROWS))
        for row in range(ROWS):
            if now[row] >= 0:
                told[row].append(int(drawn[row]))
                last[row] = y[row]
    return told


def main(devices: str, *cases: str) -> None:
    import jax

    from stages import stage

    assert jax.device_count() == int(devices)
    for case in cases:
        folder, _, word = case.rpartition(":")
        if word == "accelerator":
            jax.default_backend = lambda: "gpu"
            stage.LEAST_DEPTH = 70
        told = probed(Path(folder)) if word == "probe" else found(Path(folder), word)
        print(json.dumps(told))


if __name__ == "__main__":
    main(*sys.argv[1:])
