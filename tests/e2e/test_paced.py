"""Paced stages serve as real ones do: the benches that stand on them need no machine to be idle."""

import json
from pathlib import Path
from typing import Any

import pytest

from tools.loopback import Ring
from tools.make_goldens import CASES


@pytest.mark.parametrize("wide", [False, True])
def test_paced_stages_serve(tmp_path: Path, wide: bool) -> None:
    paces: dict[str, Any] = {"first": 0.001, "further": 0.001, "chunk": [0.001, 0.002]}
    serve = ("-m", "tests.e2e.paced_serve", json.dumps(paces | {"wide": wide}))
    model = CASES["tied"].write(tmp_path / "model")
    with Ring(tmp_path / "ring", model, (4, 2), concurrency=2, serve=serve) as ring:
        answers = ring.at_once([[3, 1, 4, 1]] * 2, 6)
        assert answers[0] == answers[1]
        assert len(answers[0]) == 6
