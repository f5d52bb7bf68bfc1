"""The committed examples and schema are what the planner and the file's model make today."""

from pathlib import Path

import pytest

from kafila.derive import recheck
from kafila.planfile import read
from tools.planfiles import FOLDER, SUFFIX, generated


@pytest.mark.parametrize("path", generated(), ids=lambda path: path.name)
def test_generated_files_are_current(path: Path) -> None:
    assert path.read_text() == generated()[path], "stale: run python -m tools.planfiles"


def test_examples_are_admitted_and_need_no_change() -> None:
    plans = [path for path in FOLDER.glob("*.yaml") if not path.name.endswith(SUFFIX)]
    assert len(plans) >= 2
    for path in plans:
        found = recheck(read(path))
        assert not found.changes
        assert not found.refused


def test_lan_plan_gives_the_laptop_little() -> None:
    """What the paper's planner is for: speed, not memory, sizes a member's share."""
    plan = read(FOLDER / "lan-qwen3-8b.yaml")
    blocks = {member.name: len(member.block_range) for member in plan.ring}
    assert blocks["bert"] == min(blocks.values())
    assert blocks["lab"] == max(blocks.values())
