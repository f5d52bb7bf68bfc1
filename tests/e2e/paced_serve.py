"""`kafila serve` with stages that take a given time: what a ring's rates are made of is known.

    python -m tests.e2e.paced_serve PACES PLAN --home DIR ...

PACES is JSON: the fields of `tests.serve.paced.Pace`, each a number or a list by member; with
`"wide": true` stages are as wide as a real model's.
"""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from kafila.cli.serve import serve
from kafila.planfile import PlanFile
from kafila.processes import end_with_parent
from kafila.serve import load
from kafila.serve.entry import rows
from tests.serve.paced import Pace, PacedStage, WideStage


def opener(wide: bool, paces: dict[str, Any]) -> Callable[..., Any]:
    """What stands in for `kafila.serve.load.open_stage`."""

    def open_paced(
        plan: PlanFile, me: int, folder: Path, on_progress: Callable[[str, int, int], None]
    ) -> PacedStage | WideStage:
        own = {what: v[me] if isinstance(v, list) else v for what, v in paces.items()}
        sizes = {"groups": plan.groups, "rows": rows(plan), "context": plan.session.context}
        if wide:
            return WideStage(Pace(**own), **sizes)
        return PacedStage(plan.ring[me].block_range, Pace(**own), **sizes)

    return open_paced


if __name__ == "__main__":
    end_with_parent()
    said = json.loads(sys.argv.pop(1))
    load.open_stage = opener(said.pop("wide", False), said)  # the one part that is not real here
    serve()
