"""`kafila serve --check` by three members behind three kinds of NAT, as they probed."""

import json
from pathlib import Path

import pytest

from tools.natlab.crew import KAFILA, PLAN
from tools.natlab.survival import scene

pytestmark = pytest.mark.netns


def test_every_edge_is_as_planned_and_direct(tmp_path: Path) -> None:
    place = scene(tmp_path)
    with place.lab as lab:
        for name, host in place.hosts.items():
            lab.start(host, name, *KAFILA, "serve", PLAN, "--check", "--home", name)
        for name in place.hosts:
            lab.processes.finish(name, 60.0)
            found = json.loads((tmp_path / f"plan.{name}.edges.json").read_text())
            assert [edge["planned"] for edge in found["edges"]] == ["direct", "direct"]
            assert [edge["path"] for edge in found["edges"]] == ["direct", "direct"]
            assert found["as_planned"]
