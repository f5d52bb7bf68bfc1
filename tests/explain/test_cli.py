"""`kafila explain` and `kafila diff` as a person and a script meet them."""

import json
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from kafila import cli
from kafila.planfile import read
from tests.explain.plans import PLANS
from tests.plan.fleets import PLANFILES

LAN = PLANFILES / "lan-qwen3-8b.yaml"
CONTEXT = "\n  context: 4096"


def kafila(capsys: pytest.CaptureFixture[str], *words: object) -> tuple[int, str, str]:
    """Run the command in this process as its entry point does: (exit code, stdout, stderr)."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("COLUMNS", "80")
        patch.setattr(sys, "argv", ["kafila", *map(str, words)])
        with pytest.raises(SystemExit) as stopped:
            cli.main()
    out, err = capsys.readouterr()
    return int(stopped.value.code or 0), out, err


@pytest.mark.parametrize("path", PLANS, ids=lambda path: path.stem)
def test_committed_plans_are_explained(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, path: Path
) -> None:
    file = tmp_path / "plan.svg"
    code, out, err = kafila(capsys, "explain", path, "--svg", file)
    assert (code, err) == (0, "")
    assert max(map(len, out.splitlines())) <= 80
    assert "\x1b" not in out
    root = ET.fromstring(file.read_text("utf-8"))
    for member in read(path).ring:
        assert member.name in out
        assert member.name in "".join(root.itertext())
    assert [each.name for each in tmp_path.iterdir()] == ["plan.svg"]


def test_stale_figures_are_derived_anew_and_said_so(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    edited = tmp_path / "plan.yaml"
    edited.write_text(LAN.read_text("utf-8").replace(CONTEXT, "\n  context: 8192"), "utf-8")
    code, out, err = kafila(capsys, "explain", edited)
    assert code == 0
    assert "8192 tokens" in out
    assert err == f"{edited} has figures that are not fresh: kafila check {edited}\n"


def test_a_plan_that_does_not_fit_is_shown_and_said_so(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    edited = tmp_path / "plan.yaml"
    text = LAN.read_text("utf-8").replace(CONTEXT, "\n  context: 40960")
    edited.write_text(text.replace("concurrency: 4", "concurrency: 64"), "utf-8")
    code, out, err = kafila(capsys, "explain", edited)
    assert code == 0
    assert "too much already" in out
    assert "does not fit its members" in err


@pytest.mark.parametrize("words", [("explain",), ("diff", LAN)], ids=["explain", "diff"])
def test_a_bad_file_is_one_line_and_status_4(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, words: tuple[object, ...]
) -> None:
    bad = tmp_path / "plan.yaml"
    bad.write_text("format: 2\n")
    for file, said in ((bad, f"kafila: {bad}:1: "), (tmp_path / "none", "no such file")):
        code, out, err = kafila(capsys, *words, file)
        assert (code, out) == (4, "")
        assert said in err
        assert err.count("\n") == 1


def test_the_svg_is_written_though_nobody_reads_the_words(tmp_path: Path) -> None:
    file = tmp_path / "plan.svg"
    words = [sys.executable, "-m", "kafila", "explain", str(LAN), "--svg", str(file)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        assert process.stdout
        process.stdout.close()
        process.wait(timeout=60)
    assert ET.fromstring(file.read_text("utf-8")).tag.endswith("svg")


def test_an_svg_that_cannot_be_written_is_one_line(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    code, _, err = kafila(capsys, "explain", LAN, "--svg", tmp_path / "no" / "plan.svg")
    assert code == 4
    assert "cannot be written" in err


def test_diff_for_people_and_for_programs(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    edited = tmp_path / "plan.yaml"
    edited.write_text(LAN.read_text("utf-8").replace(CONTEXT, "\n  context: 8192"), "utf-8")
    code, out, _ = kafila(capsys, "diff", LAN, edited)
    assert code == 0
    assert out.splitlines()[0] == "session.context  4096 -> 8192"
    assert "one user, context full" in out
    code, out, _ = kafila(capsys, "diff", LAN, edited, "--json")
    found = json.loads(out)
    assert code == 0
    assert found["changes"] == [
        {"member": None, "key": "session.context", "was": 4096, "now": 8192}
    ]
    assert {"what", "was", "now", "was_words", "now_words"} == set(found["effects"][0])
    code, out, _ = kafila(capsys, "diff", LAN, LAN)
    assert (code, out) == (0, "the plans decide the same\n")


def test_neither_help_nor_work_imports_jax() -> None:
    for words in (["explain", "--help"], ["diff", "--help"], ["explain", str(LAN)]):
        script = (
            f"import sys; sys.argv = ['kafila', *{words!r}]; from kafila import cli\n"
            "try: cli.main()\n"
            "except SystemExit as stopped: assert not stopped.code\n"
            "heavy = {'jax', 'flax', 'aioquic', 'starlette', 'asyncio'} & set(sys.modules)\n"
            "sys.exit(f'imported {heavy}' if heavy else 0)"
        )
        subprocess.run([sys.executable, "-c", script], check=True, capture_output=True)
