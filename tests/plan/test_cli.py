"""`kafila plan` and `kafila check` as a person meets them: output, exit codes, start-up."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from kafila import cli
from kafila.planfile import Edges, Strategies, parse, read
from kafila.plantext import render
from kafila.probe.report import write_probes
from tests.plan.fleets import LAN, PLANFILES, probes, report


def kafila(capsys: pytest.CaptureFixture[str], *words: object) -> tuple[int, str, str]:
    """Run the command in this process as its entry point does: (exit code, stdout, stderr)."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["kafila", *map(str, words)])
        with pytest.raises(SystemExit) as stopped:
            cli.main()
    out, err = capsys.readouterr()
    return int(stopped.value.code or 0), out, err


def test_plan_on_stdout_and_words_on_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = kafila(capsys, "plan", LAN)
    assert code == 0
    assert parse(out) == read(PLANFILES / "lan-qwen3-8b.yaml")
    assert "Qwen/Qwen3-8B on 4 members: 4096 tokens, 4 requests" in err
    assert "tok/s" in err


def test_punching_by_guessing_is_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = kafila(capsys, "plan", LAN, "--punch", "birthday")
    assert code == 0
    assert parse(out) == read(PLANFILES / "lan-qwen3-8b.yaml").model_copy(
        update={"edges": Edges(punch="birthday")}
    )
    code, out, err = kafila(capsys, "plan", LAN, "--punch", "hard")
    assert (code, out) == (2, "")
    assert "'hard' is not 'birthday'" in err


def test_int8_is_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = kafila(capsys, "plan", LAN, "--dtype", "int8")
    assert code == 0
    plain, made = read(PLANFILES / "lan-qwen3-8b.yaml"), parse(out)
    assert (made.model.dtype, made.model.kept, made.model.stored) == ("bfloat16", "int8", None)
    assert 0.5 < made.model.block_bytes / plain.model.block_bytes < 0.501
    assert made.model.head_read_bytes == plain.model.head_read_bytes
    assert made.model.manifest != plain.model.manifest
    assert made.predictions.approximate
    assert made.predictions.token_us is not None
    assert plain.predictions.token_us is not None
    assert made.predictions.token_us < plain.predictions.token_us
    words = "block matrices are bfloat16 on disk, converted at load to int8 with a scale a row"
    assert words in err
    assert words in out
    code, out, err = kafila(capsys, "plan", LAN, "--dtype", "int4")
    assert (code, out) == (2, "")
    assert "'int4' is not 'int8'" in err


def test_reads_probes_yaml_by_itself(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    code, out, err = kafila(capsys, "plan")
    assert (code, out) == (4, "")
    assert err.startswith("kafila: probes.yaml: no such file; run kafila probe first")
    write_probes(probes("anna"), "probes.yaml")
    code, out, _ = kafila(capsys, "plan", "--context", 100, "--concurrency", 2)
    assert code == 0
    assert parse(out).session.context == 100
    assert parse(out).session.concurrency == 2


def test_plain_report_files_together(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    files = [tmp_path / "anna.yaml", tmp_path / "bert.yaml"]
    for file in files:
        write_probes(probes(file.stem), file)
    code, out, _ = kafila(capsys, "plan", *files)
    assert code == 0
    assert [member.name for member in parse(out).ring] == ["anna", "bert"]


def test_not_admitted_is_a_table_and_no_plan(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = kafila(capsys, "plan", LAN, "--context", 40960, "--concurrency", 16)
    assert (code, out) == (3, "")
    lines = err.splitlines()
    assert "undersized: " in lines[0]
    assert lines[1].split() == ["member", "room", "need", "short", "by"]
    assert lines[-1].startswith("would fit: context ")


@pytest.mark.parametrize(
    ("members", "words"),
    [
        ((report("anna"), report("anna", key=report("b").key)), "anna and anna have the name anna"),
        ((report("anna"), report("bert", key=report("anna").key)), "anna and bert have one key"),
    ],
)
def test_members_that_are_not_distinct(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, members: object, words: str
) -> None:
    write_probes(probes(reports=members), tmp_path / "p.yaml")
    code, out, err = kafila(capsys, "plan", tmp_path / "p.yaml")
    assert (code, out) == (4, "")
    assert words in err
    assert len(err.splitlines()) == 1


def test_usage_errors(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert kafila(capsys, "plan", "--context", "many")[0] == 2
    assert kafila(capsys, "plan", "--concurrency", "0")[0] == 2
    assert kafila(capsys, "plan", LAN, "--context", 50_000)[0] == 2
    assert kafila(capsys, "plan", LAN, "--head-margin", "nan")[0] == 2
    write_probes(probes("anna", manifest=None), tmp_path / "p.yaml")
    code, _, err = kafila(capsys, "plan", tmp_path / "p.yaml")
    assert code == 2
    assert "--model" in err


@pytest.fixture
def plan_file(tmp_path: Path) -> Path:
    path = tmp_path / "plan.yaml"
    path.write_text((PLANFILES / "lan-qwen3-8b.yaml").read_text())
    return path


def edit(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))


def test_check_of_an_untouched_plan(capsys: pytest.CaptureFixture[str], plan_file: Path) -> None:
    code, out, err = kafila(capsys, "check", plan_file)
    assert (code, err) == (0, "")
    assert out.startswith(f"{plan_file}: admitted")


def test_check_says_what_an_edit_changed_and_writes_only_when_told(
    capsys: pytest.CaptureFixture[str], plan_file: Path
) -> None:
    edit(plan_file, "context: 4096 ", "context: 8192 ")
    before = plan_file.read_text()
    code, out, _ = kafila(capsys, "check", plan_file)
    assert code == 0
    assert "ring.anna.context_us: 73 in the file, now 145" in out
    assert plan_file.read_text() == before
    assert kafila(capsys, "check", "--write", plan_file)[0] == 0
    code, out, _ = kafila(capsys, "check", plan_file)
    assert code == 0
    assert "in the file, now" not in out


def test_check_refuses_what_no_longer_fits(
    capsys: pytest.CaptureFixture[str], plan_file: Path
) -> None:
    edit(plan_file, "concurrency: 4 ", "concurrency: 256 ")
    code, out, err = kafila(capsys, "check", plan_file)
    assert code == 3
    assert "admitted" not in out
    assert "undersized: " in err
    code, out, err = kafila(capsys, "check", "--json", plan_file)
    assert (code, err) == (3, "")
    found = json.loads(out)
    assert not found["admitted"]
    assert found["would_fit"]["concurrency"] > 4
    assert any(each["need_bytes"] > each["room_bytes"] for each in found["members"])
    assert {"where", "was", "now"} == set(found["changes"][0])


def test_check_of_a_forced_plan_warns_instead(
    capsys: pytest.CaptureFixture[str], plan_file: Path
) -> None:
    edit(plan_file, "concurrency: 4 ", "concurrency: 256 ")
    edit(plan_file, "forced: false", "forced: true")
    code, out, err = kafila(capsys, "check", "--write", plan_file)
    assert (code, err) == (0, "")
    assert f"{plan_file}: forced; it does not fit" in out
    assert "warning: forced: lab is " in out
    again = read(plan_file)
    assert any(warning.startswith("forced: lab is ") for warning in again.warnings)
    code, out, _ = kafila(capsys, "check", "--json", plan_file)
    assert code == 0
    found = json.loads(out)
    assert not found["admitted"]
    assert found["forced"]
    assert found["warnings"] == list(again.warnings)


def test_force_writes_a_plan_that_warns(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = kafila(capsys, "plan", LAN, "--concurrency", 256, "--force")
    assert code == 0
    assert parse(out).forced
    assert "warning: forced: lab is " in err


def test_compare_puts_all_strategies_side_by_side(capsys: pytest.CaptureFixture[str]) -> None:
    world = PLANFILES / "world-qwen3-32b.probes.yaml"
    code, out, err = kafila(capsys, "plan", world, "--compare")
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert lines[0] == "blocks of bert, emil, dora, anna, lab, shelf"
    assert lines[1].split() == [
        *("strategy", "head", "blocks", "slowest", "slow/fast", "utilised"),
        *("1", "user", "4", "users"),
    ]
    assert [line.split()[0] for line in lines[2:]] == [
        "load",
        "bottleneck",
        "bandwidth",
        "memory",
        "uniform",
    ]
    assert lines[-1].split()[:8] == ["uniform", "bert", "11", "11", "11", "11", "10", "10"]
    assert lines[-1].endswith("refused: bert short by 2.07 GiB")
    lone = kafila(capsys, "plan", world, "--compare", "--concurrency", 1)[1]
    assert "users" not in lone


def test_untimed_edges_are_named_under_the_comparison(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    write_probes(probes("anna", "bert"), tmp_path / "p.yaml")
    _, out, _ = kafila(capsys, "plan", tmp_path / "p.yaml", "--compare")
    lines = out.splitlines()
    assert lines[1].endswith("1 user, at best  4 users, at best")
    assert lines[-1].startswith("the edges from anna to bert and bert to anna were not timed")


def test_the_wrong_kind_of_file(capsys: pytest.CaptureFixture[str], plan_file: Path) -> None:
    code, out, err = kafila(capsys, "plan", plan_file)
    assert (code, out) == (4, "")
    assert "this is a plan, not a report file" in err
    for verb in ("check", "explain"):
        code, out, err = kafila(capsys, verb, LAN)
        assert (code, out) == (4, "")
        assert "this is a report file, not a plan; kafila plan makes one from it" in err


def test_the_same_file_twice(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = kafila(capsys, "plan", LAN, LAN)
    assert (code, out) == (4, "")
    assert "the report of anna was given twice" in err


def test_check_shows_values_as_the_file_has_them(
    capsys: pytest.CaptureFixture[str], plan_file: Path
) -> None:
    plan = read(plan_file)
    assert plan.predictions.strategies.load
    predictions = plan.predictions.model_copy(
        update={"strategies": Strategies(load=None, bottleneck=None)}
    )
    stale = plan.model_copy(update={"predictions": predictions, "warnings": ()})
    plan_file.write_text(render(stale))
    _, out, _ = kafila(capsys, "check", plan_file)
    assert "predictions.strategies.load: null in the file, now {head: anna, token_us: " in out
    assert 'warnings: none in the file, now ["this model fits lab alone: ' in out


def test_what_if_options(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = kafila(capsys, "plan", LAN, "--without", "bert", "--without", "anna")
    assert code == 0
    assert [member.name for member in parse(out).ring] == ["lab", "shelf"]
    assert parse(out).session.opener == "lab"
    plan = parse(kafila(capsys, "plan", LAN, "--head", "shelf", "--strategy", "uniform")[1])
    assert (plan.head, plan.strategy) == ("shelf", "uniform")
    assert {len(member.block_range) for member in plan.ring} == {9}
    assert plan.notes == ("head: shelf, as asked",)
    plan = parse(kafila(capsys, "plan", LAN, "--head-margin", 0)[1])
    assert any(note.startswith("head: lab; the time between tokens") for note in plan.notes)
    assert plan.head == "lab"
    plan = parse(kafila(capsys, "plan", LAN, "--order", "relays")[1])
    assert plan.order == "relays"
    assert "order: fewest relays, as asked" in plan.notes


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--without", "brt"], "--without brt: the members are anna, lab, bert and shelf"),
        (["--head", "brt"], "--head brt: the members are"),
        (
            [word for name in ("anna", "lab", "bert", "shelf") for word in ("--without", name)],
            "nobody is left",
        ),
        (["--strategy", "best"], "'best' is not one of"),
    ],
)
def test_wishes_that_cannot_be_granted(
    capsys: pytest.CaptureFixture[str], words: list[str], message: str
) -> None:
    code, out, err = kafila(capsys, "plan", LAN, *words)
    assert (code, out) == (2, "")
    assert message in err


def test_a_report_without_numbers_lowers_the_tier(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    reports = (report("anna"), report("bert", bandwidth=None, rows_ns=None))
    write_probes(probes(reports=reports), tmp_path / "p.yaml")
    code, out, err = kafila(capsys, "plan", tmp_path / "p.yaml")
    assert code == 0
    plan = parse(out)
    assert plan.tier == "arithmetic"
    assert plan.predictions.token_us is None
    assert "tier arithmetic: the probe of bert gave no bandwidth" in err
    assert "no times can be predicted" in err
    (tmp_path / "plan.yaml").write_text(out)
    code, checked, _ = kafila(capsys, "check", tmp_path / "plan.yaml")
    assert code == 0
    assert "in the file, now" not in checked


def test_check_of_a_plan_that_is_none(capsys: pytest.CaptureFixture[str], plan_file: Path) -> None:
    edit(plan_file, "head: anna", "head: bert")
    code, out, err = kafila(capsys, "check", plan_file)
    assert (code, out) == (4, "")
    assert "the head must be first in the ring" in err
    assert len(err.splitlines()) == 1


@pytest.mark.parametrize("verb", ["plan", "check"])
def test_help_shows_an_example(verb: str) -> None:
    result = CliRunner().invoke(cli.cli, [verb, "--help"])
    assert result.exit_code == 0
    assert f"Example: kafila {verb}" in result.output


@pytest.mark.parametrize("words", [["plan", "--help"], ["plan", LAN], ["check", "-h"]])
def test_planning_imports_no_jax_and_no_network(words: list[object]) -> None:
    code = (
        "import sys; from kafila.cli import cli; "
        f"cli.main({list(map(str, words))!r}, standalone_mode=False); "
        "heavy = {'jax', 'flax', 'aioquic', 'starlette', 'asyncio', 'torch', 'numpy'}; "
        "sys.exit(str(heavy & set(sys.modules)) if heavy & set(sys.modules) else 0)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
