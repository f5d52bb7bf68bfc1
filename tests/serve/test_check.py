"""`kafila serve --check` among members that check too, serve instead, or do not come up."""

import asyncio
import json
from pathlib import Path

import pytest

from kafila.cli import main
from kafila.errors import NetworkProblem
from kafila.net.identity import Identity
from kafila.plantext import render
from kafila.processes import Processes
from kafila.serve.connect import connected
from kafila.serve.verify import Verified
from tests.serve.members import members
from tests.serve.test_verify import AS_FEARED, BETTER, DIRECT, NONE, WORSE
from tests.session.samples import plan as planned

SECONDS = 30.0


@pytest.mark.parametrize("count", [1, 2, 3])
async def test_members_that_all_check_end_in_peace(tmp_path: Path, count: int) -> None:
    async with members(tmp_path, count, checking=range(count)) as fleet:
        async with asyncio.timeout(20):
            await asyncio.gather(*fleet.tasks)
        for me in range(count):
            found = fleet.found[me]
            assert len(found) == min(count - 1, 2)
            assert all(each.path == "direct" and each.rtt_us for each in found)
            name = fleet.plan.ring[me].name
            assert all(name in (each.source, each.to) for each in found)
            assert not any("did not only check" in line for line in fleet.views[me].lines)


@pytest.mark.parametrize("checker", [0, 1, 2])
async def test_one_that_only_checked_is_named_to_those_who_serve(
    tmp_path: Path, checker: int
) -> None:
    async with members(tmp_path, 3, checking=[checker]) as fleet:
        async with asyncio.timeout(20):
            await fleet.tasks[checker]
        assert len(fleet.found[checker]) == 2
        who = fleet.plan.ring[checker].name
        (told,) = (line for line in fleet.views[checker].lines if "did not only check" in line)
        assert sorted(told.split(" did not ")[0].split(" and ")) == sorted(
            member.name for member in fleet.plan.ring if member.name != who
        )
        errors = await fleet.errors()
        assert len(errors) == 2
        for error in errors:
            assert isinstance(error, NetworkProblem)
            assert f"{who} only checked its edges (--check)" in str(error)


async def test_a_member_that_is_gone_before_it_looked_has_no_edge(tmp_path: Path) -> None:
    async with members(tmp_path, 2, checking=[0]) as fleet:
        fleet.tasks.pop(1).cancel()
        bert = Identity.load_or_create(tmp_path / "bert")
        async with connected(fleet.plan, 1, bert, fleet.views[1], ("127.0.0.1", 0)):
            pass
        async with asyncio.timeout(20):
            await fleet.tasks[0]
        (edge,) = fleet.found[0]
        assert edge.path is None
        assert "it came up and was lost: bert" in edge.why


@pytest.mark.parametrize(("edge", "status"), [(WORSE, 0), (BETTER, 0), (AS_FEARED, 0), (NONE, 6)])
def test_exit_status(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    edge: Verified,
    status: int,
) -> None:
    """The edges are given: to wait until one does not come up takes half a minute."""

    async def given(*_: object, **__: object) -> list[Verified]:
        return [DIRECT, edge]

    plan = planned([(n, Identity.load_or_create(tmp_path / n)) for n in ("anna", "bert")])
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("kafila.serve.check.check", given)
    Path("plan.yaml").write_text(render(plan))
    words = ["kafila", "serve", "plan.yaml", "--home", "anna", "--check", "--json"]
    monkeypatch.setattr("sys.argv", words)
    with pytest.raises(SystemExit) as ended:
        main()
    assert (ended.value.code or 0) == status
    out, err = capsys.readouterr()
    found = json.loads(out)
    assert (found["usable"], found["as_planned"]) == (status == 0, edge.as_planned)
    assert json.loads(Path("plan.anna.edges.json").read_text()) == found
    assert ("warning: 1 edge relayed" in err) is (edge is WORSE)
    assert ("as planned or better" in err) is (edge not in (WORSE, NONE))
    assert ("kafila: no edge cleo -> anna" in err) is (edge is NONE)


def test_an_object_is_only_printed_by_a_check(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["kafila", "serve", "plan.yaml", "--json"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    assert "--json goes with --check" in capsys.readouterr().err


def test_the_command(tmp_path: Path) -> None:
    """Two members as processes: words on one, an object on the other, both kept beside the plan."""
    with Processes(tmp_path) as processes:
        words = ("-m", "kafila", "rendezvous", "--listen", "127.0.0.1:0", "--home", "rendezvous")
        processes.start("rendezvous", *words)
        _, address, _, key = processes.line("rendezvous", SECONDS).split()[:4]
        plan = planned([(n, Identity.load_or_create(tmp_path / n)) for n in ("anna", "bert")])
        where = {"rendezvous": address, "rendezvous_key": key}
        plan = plan.model_copy(update={"session": plan.session.model_copy(update=where)})
        (tmp_path / "plan.yaml").write_text(render(plan))
        serve = ("-m", "kafila", "serve", "plan.yaml", "--check", "--listen", "127.0.0.1:0")
        processes.start("anna", *serve, "--home", "anna")
        processes.start("bert", *serve, "--home", "bert", "--json")
        table = processes.finish("anna", SECONDS)
        found = json.loads(processes.finish("bert", SECONDS))
    assert table.splitlines()[0].startswith("edge ")
    assert table.count("\n") == 2
    assert (found["member"], found["usable"], found["as_planned"]) == ("bert", True, True)
    assert found["plan"] == plan.digest.hex()
    (edge,) = found["edges"]
    assert edge["path"] == "direct"
    assert json.loads((tmp_path / "plan.bert.edges.json").read_text()) == found
    assert (tmp_path / "plan.anna.edges.json").exists()
