"""What the docs show of `kafila explain` and `kafila diff` is what they print today."""

from pathlib import Path

import pytest

from tools.examples import EXAMPLE, PAGE, generated


@pytest.mark.parametrize("path", generated(), ids=lambda path: path.name)
def test_examples_are_current(path: Path) -> None:
    assert path.read_text("utf-8") == generated()[path], "stale: run python -m tools.examples"


def test_both_verbs_are_shown() -> None:
    shown = {example["words"].split()[0] for example in EXAMPLE.finditer(PAGE.read_text("utf-8"))}
    assert shown == {"explain", "diff"}
