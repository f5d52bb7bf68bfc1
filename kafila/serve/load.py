"""From a plan and a checkpoint to this member's stage."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
from jax.errors import JaxRuntimeError

from kafila import manifest
from kafila.defaults import MAX_MESSAGE
from kafila.errors import BadFile, CheckpointProblem, NotAdmitted
from kafila.planfile import PlanFile
from kafila.serve.entry import rows
from kafila.serve.frames import Shape, largest
from stages import kept
from stages.checkpoint import Checkpoint, CheckpointError
from stages.stage import Stage


def check(plan: PlanFile, source: str) -> None:
    """Compare plan and model before anything is loaded; of the model only its config is read.

    Raises CheckpointProblem unless `source` is the model that was planned for, BadFile if the plan
    was edited into one that cannot be served.
    """
    config = replace(manifest.config(source, _revision(plan, source)), kept=plan.model.kept)
    if config.digest != plan.model.manifest:
        raise CheckpointProblem(
            f"{source} is not the model of the plan ({plan.model.name}): its config has the digest "
            f"{config.digest[:19]}..., the plan's is {plan.model.manifest[:19]}...; "
            "name the right one with --model, or plan anew"
        )
    stored = config.stored and config.stored.name
    for key, found in (
        ("blocks", config.blocks),
        ("hidden", config.hidden),
        ("vocab", config.vocab),
        ("dtype", config.dtype),
        ("stored", stored),
    ):
        said = getattr(plan.model, key)
        if said != found:
            raise BadFile(f"the plan's model has {key} {said}, {source} has {found}; plan anew")
    context, count = plan.session.context, rows(plan)
    shape = Shape(config.hidden, np.dtype(config.dtype), plan.groups, count, context, Stage.chunk)
    if largest(shape) > MAX_MESSAGE:
        raise BadFile(
            f"a step of {count} rows makes a frame of {largest(shape) / 2**20:.0f} MiB, at most "
            f"{MAX_MESSAGE / 2**20:.0f} are sent; plan with a smaller --concurrency"
        )


def fetch(plan: PlanFile, me: int, source: str) -> Path:
    """The folder with this member's part of the checkpoint, downloaded where it must be."""
    blocks = plan.ring[me].block_range
    return manifest.locate(source, _revision(plan, source), blocks=blocks, head=me == 0)


def open_stage(
    plan: PlanFile, me: int, folder: Path, on_progress: Callable[[str, int, int], None]
) -> Stage:
    """Load and compile the stage of member `me`.

    Raises CheckpointProblem, and NotAdmitted if there is less room than the plan was made for.
    """
    blocks, head = plan.ring[me].block_range, me == 0
    try:
        checkpoint = Checkpoint.open(folder, blocks, head=head)
        files = checkpoint.files()
        stage = Stage.open(
            checkpoint,
            blocks,
            head=head,
            context=plan.session.context,
            groups=plan.groups,
            rows=rows(plan),
            kept=plan.model.kept,
            on_progress=on_progress,
        )
        for file, now in checkpoint.files().items():
            if now != files[file]:
                raise CheckpointError(f"{file} was changed while it was loaded; start again")
    except CheckpointError as error:
        raise CheckpointProblem(str(error)) from None
    except JaxRuntimeError as error:
        if "RESOURCE_EXHAUSTED" not in str(error):
            raise
        raise NotAdmitted(
            f"{plan.ring[me].name} has less memory now than the plan was made for: is another "
            "program using it, or does this one see fewer devices than the probe did? Free it, or "
            f"probe and plan anew ({str(error).splitlines()[0]})"
        ) from None
    kept.tidy()  # now that what this start uses is known
    return stage


def _revision(plan: PlanFile, source: str) -> str | None:
    return plan.model.revision if source == plan.model.name else None
