"""Rewrite what `kafila explain` and `kafila diff` print in the docs, and the picture beside it.

Run `python -m tools.examples` after a change to the planner, the committed plans or their wording.
"""

import re
import shlex
from pathlib import Path

from click.testing import CliRunner

from kafila import yamlfile
from kafila.cli import cli
from kafila.derive import recheck
from kafila.explain.picture import picture
from kafila.explain.svg import draw
from kafila.planfile import read

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "planfile.md"
PICTURE = ROOT / "docs" / "ring.svg"
DRAWN = ROOT / "planfiles" / "world-qwen3-32b.yaml"

EXAMPLE = re.compile(
    r"^    \$ kafila (?P<words>(?:explain|diff) .*)\n(?:    .*\n|\n(?=    ))*", re.MULTILINE
)
"""A command in the docs with its output, indented by four."""


def generated() -> dict[Path, str]:
    """Both files, with the text they should have."""
    return {
        PAGE: EXAMPLE.sub(_printed, PAGE.read_text("utf-8")),
        PICTURE: draw(picture(recheck(read(DRAWN)).plan)),
    }


def _printed(example: re.Match[str]) -> str:
    words = [
        str(ROOT / word) if word.startswith("planfiles/") else word
        for word in shlex.split(example["words"])
    ]
    output = CliRunner().invoke(cli, words, env={"COLUMNS": "80"}).stdout
    indented = "".join(f"    {line}\n" if line else "\n" for line in output.splitlines())
    return f"    $ kafila {example['words']}\n{indented}"


if __name__ == "__main__":
    for path, text in generated().items():
        yamlfile.write(path, text)
        print(path)
