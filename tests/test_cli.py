"""Start-up is part of the product: help and version are instant and import nothing heavy."""

import subprocess
import sys

import pytest

from kafila.cli import VERBS

HEAVY = ("jax", "flax", "numpy", "aioquic", "starlette", "pydantic", "yaml", "asyncio")


@pytest.mark.parametrize("words", [["--help"], ["--version"], *([v, "--help"] for v in VERBS)])
def test_help_imports_nothing_heavy(words: list[str]) -> None:
    program = (
        "import sys\n"
        "from kafila.cli import main\n"
        f"sys.argv = ['kafila', *{words!r}]\n"
        "try:\n    main()\nexcept SystemExit as end:\n    assert end.code == 0\n"
        f"print([name for name in {HEAVY!r} if name in sys.modules], file=sys.stderr)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True
    )
    assert "kafila" in done.stdout
    assert done.stderr.strip() == "[]"


def test_a_closed_stdout_is_no_fault_of_ours() -> None:
    done = subprocess.run(
        ["sh", "-c", f"{sys.executable} -m kafila --version >&-"],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("verb", VERBS)
def test_every_help_has_an_example(verb: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "kafila", verb, "--help"], capture_output=True, text=True, timeout=60
    )
    assert "Example" in done.stdout
    assert f"kafila {verb}" in done.stdout.split("Example")[1]
