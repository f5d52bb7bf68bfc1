"""Rewrite `planfiles/`: the plan file's JSON Schema, example reports, and a plan for each of them.

Run `python -m tools.planfiles` after a change to the planner, the file's model or the fleets.
"""

import json
from pathlib import Path

from kafila import yamlfile
from kafila.defaults import CONCURRENCY, CONTEXT
from kafila.derive import plan_probes
from kafila.planfile import PlanFile
from kafila.plantext import render
from kafila.probe.report import Probes, read_probes, render_probes
from tools.fleets import fleet

FOLDER = Path(__file__).parents[1] / "planfiles"
SUFFIX = ".probes.yaml"
MEASURED = FOLDER / f"one-machine-qwen3-0.6b{SUFFIX}"
"""Reports of a real machine, which nothing generates."""

FLEETS = {
    "lan": ("8b",),
    "region": ("8b", "14b", "32b"),
    "world": ("8b", "14b", "32b"),
    "macs": ("32b",),
}
"""Those the models fit; the LAN's 12 GB slice bounds it to the smallest."""


def reports() -> dict[Path, Probes]:
    """Every committed report file."""
    made = {
        FOLDER / f"{name}-qwen3-{size}{SUFFIX}": fleet(name, size)
        for name, sizes in FLEETS.items()
        for size in sizes
    }
    return {**made, MEASURED: read_probes(MEASURED)}


def generated() -> dict[Path, str]:
    """Each file that follows from others, with the text it should have."""
    texts = {FOLDER / "plan.schema.json": json.dumps(PlanFile.model_json_schema(), indent=2) + "\n"}
    for path, probes in reports().items():
        if path != MEASURED:
            texts[path] = render_probes(probes)
        plan = plan_probes(probes, context=CONTEXT, concurrency=CONCURRENCY)
        texts[path.with_name(path.name.replace(SUFFIX, ".yaml"))] = render(plan)
    return texts


if __name__ == "__main__":
    for path, text in generated().items():
        yamlfile.write(path, text)
        print(path)
