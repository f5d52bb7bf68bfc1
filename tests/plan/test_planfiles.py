"""The committed examples and schema are what the planner and the file's model make today."""

from pathlib import Path

import pytest

from kafila.defaults import PREFILL_CHUNK
from kafila.derive import recheck
from kafila.planfile import parse, read
from kafila.plantext import render
from tools.fleets import manifest
from tools.planfiles import FOLDER, SUFFIX, generated

TEXTS = generated()


@pytest.mark.parametrize("path", TEXTS, ids=lambda path: path.name)
def test_generated_files_are_current(path: Path) -> None:
    assert path.read_text() == TEXTS[path], "stale: run python -m tools.planfiles"


def test_planning_again_gives_the_same_bytes() -> None:
    assert generated() == TEXTS


def test_examples_are_admitted_and_need_no_change() -> None:
    plans = [path for path in FOLDER.glob("*.yaml") if not path.name.endswith(SUFFIX)]
    assert len(plans) == 9
    assert len(TEXTS) == 1 + 9 + 8  # the schema, the plans, all reports but the measured ones
    for path in plans:
        plan = read(path)
        assert parse(render(plan)) == plan
        found = recheck(plan)
        assert not found.changes
        assert not found.refused


def test_lan_plan_gives_the_laptop_little() -> None:
    """What the paper's planner is for: speed, not memory, sizes a member's share."""
    plan = read(FOLDER / "lan-qwen3-8b.yaml")
    blocks = {member.name: len(member.block_range) for member in plan.ring}
    assert blocks["bert"] == min(blocks.values())
    assert blocks["lab"] == max(blocks.values())


def test_the_example_manifest_is_the_hubs() -> None:
    """The digest that Qwen/Qwen3-8B's own config.json gives."""
    digest = "sha256:6ab9d2d92272844a59fa6183e4d9efa43051c7a4a3ae26226052a335400aa84e"
    assert manifest("8b").digest == digest
    assert manifest("8b").block_bytes == 385_892_864
    assert manifest("8b").head_read_bytes == 1_244_667_904
    assert manifest("8b").head_resident_bytes == 2_489_327_616


def test_the_planner_cuts_prompts_as_the_stages_do() -> None:
    from stages.stage import PREFILL_CHUNK as COMPILED

    assert PREFILL_CHUNK == COMPILED
