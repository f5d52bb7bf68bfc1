"""From a plan and a checkpoint to this member's stage."""

from collections.abc import Callable
from pathlib import Path

from kafila.errors import CheckpointProblem
from kafila.manifest import Manifest, locate
from kafila.planfile import PlanFile
from stages.checkpoint import Checkpoint, CheckpointError
from stages.stage import Stage


def check(plan: PlanFile, source: str) -> None:
    """CheckpointProblem unless `source` is the model that was planned for. Reads headers only."""
    found = Manifest.of(source, _revision(plan, source))
    if found.digest != plan.model.manifest:
        raise CheckpointProblem(
            f"{source} is not the model of the plan ({plan.model.name}): its config has the digest "
            f"{found.digest[:19]}..., the plan's is {plan.model.manifest[:19]}...; "
            "name the right one with --model, or plan anew"
        )


def fetch(plan: PlanFile, me: int, source: str) -> Path:
    """The folder with this member's part of the checkpoint, downloaded where it must be."""
    blocks = plan.ring[me].block_range
    return locate(source, _revision(plan, source), blocks=blocks, head=me == 0)


def open_stage(
    plan: PlanFile, me: int, folder: Path, on_progress: Callable[[str, int, int], None]
) -> Stage:
    """Load and compile the stage of member `me`. Raises CheckpointProblem."""
    blocks, head = plan.ring[me].block_range, me == 0
    try:
        return Stage.open(
            Checkpoint.open(folder, blocks, head=head),
            blocks,
            head=head,
            context=plan.session.context,
            groups=plan.groups,
            rows=-(-plan.session.concurrency // plan.groups),
            on_progress=on_progress,
        )
    except CheckpointError as error:
        raise CheckpointProblem(str(error)) from None


def _revision(plan: PlanFile, source: str) -> str | None:
    return plan.model.revision if source == plan.model.name else None
