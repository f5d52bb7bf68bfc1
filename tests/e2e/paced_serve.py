"""`kafila serve` with a stage that takes 20 ms a row: what a ring's rates are made of is known.

python -m tests.e2e.paced_serve PLAN --home DIR ...
"""

from collections.abc import Callable
from pathlib import Path

from kafila.cli.serve import serve
from kafila.planfile import PlanFile
from kafila.serve import load
from tests.serve.paced import PacedStage


def open_paced(
    plan: PlanFile, me: int, folder: Path, on_progress: Callable[[str, int, int], None]
) -> PacedStage:
    """The paced stage of member `me`."""
    return PacedStage(
        plan.ring[me].block_range,
        groups=plan.groups,
        rows=-(-plan.session.concurrency // plan.groups),
        context=plan.session.context,
    )


if __name__ == "__main__":
    load.open_stage = open_paced  # type: ignore[assignment]  # the one part that is not real here
    serve()
