"""Whole members over real sockets: they meet, load, serve, and say why when one is gone."""

import asyncio
import contextlib
from pathlib import Path

import pytest

from kafila.defaults import PACE_STEPS
from kafila.errors import CheckpointProblem, KafilaError, NetworkProblem
from kafila.net.identity import Identity
from kafila.serve.generation import Params
from kafila.session.presence import Presence
from tests.serve.members import NAMES, Fleet, Quiet, member, members
from tests.serve.paced import Pace, PacedStage
from tests.serve.rings import ask, until
from tests.serve.toy import ToyStage
from tests.session.samples import plan as planned


async def test_rings_of_one_two_and_three_agree(tmp_path: Path) -> None:
    answers = []
    for count in (1, 2, 3):
        async with members(tmp_path / str(count), count) as fleet:
            head = await fleet.head()
            together = (ask(head, [n] * (1 + 5 * n), 12) for n in range(4))
            answers.append(await asyncio.gather(*together))
            health = fleet.health()
            assert health["status"] == "ok"
            assert [one["name"] for one in health["ring"]] == [m.name for m in fleet.plan.ring]
            assert health["slots"]["used"] <= health["slots"]["total"]
            assert len(health["edges"]) == min(count - 1, 2)
            for edge in health["edges"]:
                assert edge["direct_bytes"] + edge["relayed_bytes"] > 0
                assert 0 <= edge["relayed_share"] <= 1
            await until(lambda: all(each["path"] == "direct" for each in fleet.health()["edges"]))
            assert any(line.startswith("ring ready") for line in fleet.views[-1].lines)
        tables = [line for line in fleet.views[0].lines if line.startswith("edge  ")]
        assert len(tables) == (count > 1)
        told = [line for line in fleet.views[0].lines if "; in the end " in line]
        assert len(told) == min(count - 1, 2)
    assert answers[0] == answers[1] == answers[2]


@pytest.mark.parametrize("leaver", [0, 1, 2])
async def test_one_that_is_stopped_tells_the_others(tmp_path: Path, leaver: int) -> None:
    async with members(tmp_path, 3) as fleet:
        head = await fleet.head()
        running = head.submit([1], Params(), 500, frozenset())
        await until(lambda: running.produced > 3)
        fleet.tasks[leaver].cancel()
        name = fleet.plan.ring[leaver].name
        with pytest.raises(NetworkProblem) as caught:
            _ = [token async for token in running]
        assert str(caught.value) == f"{name}: this member was stopped"
        errors = await fleet.errors()
        assert isinstance(errors.pop(leaver), asyncio.CancelledError)
        for error in errors:
            assert str(error) == f"{name}: this member was stopped"
            assert isinstance(error, NetworkProblem)


async def test_a_member_that_cannot_load_tells_why(tmp_path: Path) -> None:
    def opener(number: int, stage: ToyStage) -> ToyStage:
        if number == 1:
            raise CheckpointProblem("model.safetensors ends early")
        return stage

    async with members(tmp_path, 3, opener) as fleet:
        errors = await fleet.errors()
        name = fleet.plan.ring[1].name
        assert [str(error) for error in errors] == [
            f"{name}: model.safetensors ends early",
            "model.safetensors ends early",
            f"{name}: model.safetensors ends early",
        ]
        codes = [error.exit_code for error in errors if isinstance(error, KafilaError)]
        assert codes == [6, 5, 6]


async def test_a_fault_beside_the_ring_ends_it_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of what keeps a member registered, while nothing else has to do with it."""
    ready = asyncio.Event()

    async def keep(_: Presence) -> None:
        await ready.wait()
        ready.clear()  # for one of them
        raise RuntimeError("no such notice")

    monkeypatch.setattr(Presence, "keep", keep)
    async with members(tmp_path, 2) as fleet:
        await fleet.head()
        told: list[object] = []
        asyncio.get_running_loop().set_exception_handler(
            lambda _, context: told.append(context["exception"])
        )
        ready.set()
        errors = [str(error) for error in await fleet.errors()]
    assert len(errors) == 2
    assert all("it failed: RuntimeError: no such notice" in error for error in errors)
    assert isinstance(told[0], RuntimeError)


async def test_the_head_says_whom_it_waits_for(tmp_path: Path) -> None:
    go = asyncio.Event()
    loop = asyncio.get_running_loop()

    def opener(number: int, stage: ToyStage) -> ToyStage:
        if number == 2:
            asyncio.run_coroutine_threadsafe(go.wait(), loop).result(10)
        return stage

    async with members(tmp_path, 3, opener) as fleet:
        last = fleet.plan.ring[2].name
        await until(lambda: f"waiting for {last} to load" in fleet.views[0].lines)
        assert not fleet.heads
        go.set()
        assert len(await ask(await fleet.head(), [1], 3)) == 3


async def test_a_member_slower_than_planned_says_so(tmp_path: Path) -> None:
    """The plan takes a tenth of a millisecond for one's blocks, and the stage takes five."""

    def opener(number: int, stage: ToyStage) -> ToyStage:
        pace = Pace(first=0.005)
        sizes = {"groups": stage.groups, "rows": stage.rows, "context": stage.context}
        return PacedStage(stage.blocks, pace, **sizes) if number == 1 else stage

    async with members(tmp_path, 2, opener) as fleet:
        head = await fleet.head()
        assert fleet.health()["pace"] == {"verdict": None, "measured_over_planned": None}
        await ask(head, [1], PACE_STEPS + 1)
        slow = [line for line in fleet.views[1].lines if "decode steps take" in line]
        assert len(slow) == 1
        assert slow[0].startswith("warning: decode steps take ")
        assert fleet.health()["pace"]["measured_over_planned"] > 0


async def test_a_ring_of_several_needs_a_rendezvous(tmp_path: Path) -> None:
    names = [(name, Identity.load_or_create(tmp_path / name)) for name in NAMES]
    plan = planned(names)
    fleet = Fleet(plan, [], [Quiet()])
    with (
        contextlib.suppress(asyncio.CancelledError),
        pytest.raises(NetworkProblem, match="names no rendezvous"),
    ):
        await member(fleet, 0, names[0][1])
