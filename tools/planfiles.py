"""Rewrite `planfiles/`: the plan file's JSON Schema, and a plan for every committed report file.

Run `python -m tools.planfiles` after a change to the planner or the file's model.
"""

import json
from pathlib import Path

from kafila import yamlfile
from kafila.defaults import CONCURRENCY, CONTEXT
from kafila.derive import plan_probes
from kafila.planfile import PlanFile
from kafila.plantext import render
from kafila.probe.report import read_probes

FOLDER = Path(__file__).parents[1] / "planfiles"
SUFFIX = ".probes.yaml"


def generated() -> dict[Path, str]:
    """Each file that follows from others, with the text it should have."""
    texts = {FOLDER / "plan.schema.json": json.dumps(PlanFile.model_json_schema(), indent=2) + "\n"}
    for reports in sorted(FOLDER.glob(f"*{SUFFIX}")):
        plan = plan_probes(read_probes(reports), context=CONTEXT, concurrency=CONCURRENCY)
        texts[reports.with_name(reports.name.replace(SUFFIX, ".yaml"))] = render(plan)
    return texts


if __name__ == "__main__":
    for path, text in generated().items():
        yamlfile.write(path, text)
        print(path)
