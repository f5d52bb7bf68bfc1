"""From plan and checkpoint to a stage: what a member must have, and what is refused before."""

import contextlib
import dataclasses
import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kafila import manifest
from kafila.derive import plan_probes
from kafila.errors import BadFile, CheckpointProblem, NotAdmitted
from kafila.manifest import Manifest
from kafila.planfile import PlanFile, parse
from kafila.plantext import render, summary
from kafila.probe.report import Probes
from kafila.serve import load
from stages.checkpoint import INDEX, Checkpoint, expected, indexed_shards
from stages.config import Kept
from tests.session.samples import report
from tools.make_checkpoint import SIZES, write_checkpoint
from tools.quantise import FORMATS, quantise

CONFIG = dataclasses.replace(SIZES["tiny"], blocks=4)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("load") / "wisp"
    return write_checkpoint(path, CONFIG, shard_bytes=200_000)


@pytest.fixture(scope="module")
def plan(folder: Path) -> PlanFile:
    """Two members of two blocks each."""
    reports = tuple(report(name, name.encode() * 8) for name in ("anna", "bert"))
    probes = Probes(manifest=Manifest.of(str(folder)), host="anna", reports=reports)
    made = plan_probes(probes, context=32, concurrency=2)
    ring = [
        member.model_copy(update={"blocks": blocks})
        for member, blocks in zip(made.ring, ("0-1", "2-3"), strict=True)
    ]
    return made.model_copy(update={"ring": ring})


def own_share(whole: Path, part: Path, blocks: range, head: bool) -> None:
    """Copy the config and the shards of these blocks."""
    part.mkdir()
    names = indexed_shards(whole / INDEX, expected(CONFIG, blocks, head=head))
    for name in ("config.json", INDEX, *names):
        shutil.copy(whole / name, part / name)
    assert len(list(part.iterdir())) < len(list(whole.iterdir()))


@pytest.mark.parametrize("me", [0, 1])
def test_a_member_needs_its_own_shards_only(
    plan: PlanFile, folder: Path, tmp_path: Path, me: int
) -> None:
    part = tmp_path / "part"
    own_share(folder, part, plan.ring[me].block_range, head=me == 0)
    load.check(plan, str(part))
    stage = load.open_stage(plan, me, load.fetch(plan, me, str(part)), lambda *_: None)
    assert stage.blocks == 2
    x = np.zeros((1, CONFIG.hidden), stage.wire_dtype)
    assert stage.decode(0, np.zeros(1, np.int32), x).shape == x.shape
    with pytest.raises(CheckpointProblem, match="shard is missing"):
        load.open_stage(plan, 1 - me, part, lambda *_: None)


@pytest.mark.parametrize("kept", [None, "int8"])
def test_a_quantised_model_as_the_plan_keeps_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kept: Kept | None
) -> None:
    monkeypatch.setattr("stages.kept.FOLDER", tmp_path / "kept")
    folder = quantise(
        write_checkpoint(tmp_path / "plain", CONFIG), tmp_path / "mist", FORMATS["fp8"]
    )
    made = Manifest.of(str(folder)).kept_as(kept)
    probes = Probes(manifest=made, host="anna", reports=(report("anna", b"anna" * 8),))
    plan = plan_probes(probes, context=32, concurrency=2)
    assert parse(render(plan)) == plan
    assert (plan.model.stored, plan.model.kept) == ("fp8", kept)
    words = "fp8 on disk, dequantised to bfloat16 at load"
    if kept:
        words = "fp8 on disk, converted at load to int8 with a scale a row; all else is bfloat16"
    assert f"# block matrices are {words}" in render(plan)
    assert f"block matrices are {words}\n" in summary(plan)
    load.check(plan, str(folder))
    told: list[tuple[str, int, int]] = []
    stage = load.open_stage(plan, 0, folder, lambda *progress: told.append(progress))
    x = stage.prefill(0, 0, 0, np.arange(9, dtype=np.int32))
    assert np.isfinite(stage.logits(x)).all()
    on_disk = [total for what, done, total in told if what == "loading" and done == total]
    assert on_disk == [sum(t.nbytes for t in Checkpoint.open(folder).tensors.values())]
    other = plan.model.model_copy(update={"kept": None if kept else "int8"})
    with pytest.raises(CheckpointProblem, match="is not the model of the plan"):
        load.check(plan.model_copy(update={"model": other}), str(folder))


def test_another_model(plan: PlanFile, tmp_path: Path) -> None:
    other = write_checkpoint(tmp_path / "other", dataclasses.replace(CONFIG, blocks=5))
    with pytest.raises(CheckpointProblem, match=r"other is not the model of the plan \(wisp\)"):
        load.check(plan, str(other))


def test_a_name_that_is_no_place_says_how_to_name_one(
    plan: PlanFile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(CheckpointProblem, match="wisp: no such folder; name it with --model"):
        load.check(plan, plan.model.name)


@pytest.mark.parametrize(
    ("model", "session", "words"),
    [
        ({"blocks": 3}, {}, "the plan's model has blocks 3, .* has 4"),
        ({"dtype": "float32"}, {}, "dtype float32"),
        ({"hidden": 32}, {}, "hidden 32"),
        ({}, {"concurrency": 10**6}, "frame of .* MiB, at most 32 are sent"),
    ],
)
def test_a_plan_that_cannot_be_served(
    plan: PlanFile, folder: Path, model: dict[str, Any], session: dict[str, Any], words: str
) -> None:
    edited = plan.model_copy(
        update={
            "model": plan.model.model_copy(update=model),
            "session": plan.session.model_copy(update=session),
        }
    )
    with pytest.raises(BadFile, match=words):
        load.check(edited, str(folder))


def test_weights_that_go_while_they_are_loaded(
    plan: PlanFile, folder: Path, tmp_path: Path
) -> None:
    part = tmp_path / "part"
    shutil.copytree(folder, part)

    def cut(what: str, done: int, total: int) -> None:
        for file in part.glob("*.safetensors"):
            file.unlink(missing_ok=True)

    with pytest.raises(CheckpointProblem, match="cannot be read"):
        load.open_stage(plan, 0, part, cut)


def test_weights_that_are_overwritten_while_they_are_loaded(
    plan: PlanFile, folder: Path, tmp_path: Path
) -> None:
    part = tmp_path / "part"
    shutil.copytree(folder, part)

    def overwrite(what: str, done: int, total: int) -> None:
        for file in part.glob("*.safetensors"):
            with file.open("r+b") as f:
                f.seek(-1, os.SEEK_END)
                f.write(b"?")

    with pytest.raises(CheckpointProblem, match="was changed while it was loaded; start again"):
        load.open_stage(plan, 0, part, overwrite)


def test_weights_that_others_link_to_while_they_are_loaded(
    plan: PlanFile, folder: Path, tmp_path: Path
) -> None:
    """Nor do permissions change what is loaded."""
    part = tmp_path / "part"
    shutil.copytree(folder, part)

    def touch(what: str, done: int, total: int) -> None:
        for file in part.glob("*.safetensors"):
            file.chmod(0o600)
            with contextlib.suppress(FileExistsError):
                (tmp_path / file.name).hardlink_to(file)

    load.open_stage(plan, 0, part, touch)


def test_less_memory_than_was_planned_with(plan: PlanFile, folder: Path) -> None:
    session = plan.session.model_copy(update={"context": 2 * 10**9})
    with pytest.raises(NotAdmitted, match=r"bert has less memory now .* Out of memory allocating"):
        load.open_stage(plan.model_copy(update={"session": session}), 1, folder, lambda *_: None)


def test_a_folder_without_a_config(tmp_path: Path) -> None:
    with pytest.raises(CheckpointProblem, match=r"config\.json: no such file"):
        manifest.config(str(tmp_path))
