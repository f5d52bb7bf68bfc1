"""Whole members over real sockets: they meet, load, serve, and say why when one is gone."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from kafila.errors import CheckpointProblem, KafilaError, NetworkProblem
from kafila.net.identity import Identity
from kafila.planfile import PlanFile
from kafila.serve.generation import Params
from kafila.serve.head import Head
from kafila.serve.runtime import serve
from kafila.serve.view import Lines
from tests.rendezvous.lan import LOOPBACK, Lan
from tests.serve.rings import ask, until
from tests.serve.toy import ToyStage
from tests.session.samples import plan as planned

NAMES = ("anna", "bert", "cleo")


class Quiet(Lines):
    """Keeps what a member says."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def say(self, line: str) -> None:
        self.lines.append(line)


@dataclass
class Fleet:
    """Members as tasks of this loop."""

    plan: PlanFile
    tasks: list[asyncio.Task[Any]]
    views: list[Quiet]
    heads: list[Head] = field(default_factory=list)
    health: Callable[[], dict[str, Any]] = dict

    async def head(self) -> Head:
        """The head, once it serves."""
        await until(lambda: bool(self.heads) or any(task.done() for task in self.tasks))
        return self.heads[0]

    async def errors(self) -> list[BaseException]:
        """How each member ended."""
        async with asyncio.timeout(20):
            ended = await asyncio.gather(*self.tasks, return_exceptions=True)
        return [error for error in ended if isinstance(error, BaseException)]


Opener = Callable[[int, ToyStage], ToyStage]


def unchanged(_member: int, stage: ToyStage) -> ToyStage:
    return stage


@asynccontextmanager
async def members(folder: Path, count: int, opener: Opener = unchanged) -> AsyncIterator[Fleet]:
    """`count` members of a plan, started at once, their stages passed through `opener`."""
    async with Lan(folder) as lan:
        identities = [(name, lan.identity(name)) for name in NAMES[:count]]
        plan = _with_rendezvous(planned(identities), lan)
        fleet = Fleet(plan, [], [Quiet() for _ in range(count)])
        for me in range(count):
            who = dict(identities)[plan.ring[me].name]
            fleet.tasks.append(asyncio.ensure_future(_member(fleet, me, who, opener)))
        try:
            yield fleet
        finally:
            for task in fleet.tasks:
                task.cancel()
            await asyncio.gather(*fleet.tasks, return_exceptions=True)


def _with_rendezvous(plan: PlanFile, lan: Lan) -> PlanFile:
    host, port = lan.rendezvous.address
    where = {"rendezvous": f"{host}:{port}", "rendezvous_key": lan.rendezvous.key.hex()}
    return plan.model_copy(update={"session": plan.session.model_copy(update=where)})


async def _member(fleet: Fleet, me: int, identity: Identity, opener: Opener) -> None:
    plan = fleet.plan

    def open_stage(on_progress: Callable[[str, int, int], None]) -> ToyStage:
        on_progress("loading", 10, 10)
        rows = -(-plan.session.concurrency // plan.groups)
        sizes = {"groups": plan.groups, "rows": rows, "context": plan.session.context}
        return opener(me, ToyStage(plan.ring[me].block_range, **sizes))

    async def api(head: Head, health: Callable[[], dict[str, Any]]) -> None:
        fleet.heads.append(head)
        fleet.health = health
        await asyncio.Event().wait()

    view = fleet.views[me]
    await serve(
        plan,
        me,
        identity,
        open_stage=open_stage,
        api=api,
        view=view,
        listen=(LOOPBACK, 0),
    )


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
            assert any(line.startswith("ring ready") for line in fleet.views[-1].lines)
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
    def opener(member: int, stage: ToyStage) -> ToyStage:
        if member == 1:
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


async def test_the_head_says_whom_it_waits_for(tmp_path: Path) -> None:
    go = asyncio.Event()
    loop = asyncio.get_running_loop()

    def opener(member: int, stage: ToyStage) -> ToyStage:
        if member == 2:
            asyncio.run_coroutine_threadsafe(go.wait(), loop).result(10)
        return stage

    async with members(tmp_path, 3, opener) as fleet:
        last = fleet.plan.ring[2].name
        await until(lambda: f"waiting for {last} to load" in fleet.views[0].lines)
        assert not fleet.heads
        go.set()
        assert len(await ask(await fleet.head(), [1], 3)) == 3


async def test_a_ring_of_several_needs_a_rendezvous(tmp_path: Path) -> None:
    names = [(name, Identity.load_or_create(tmp_path / name)) for name in NAMES]
    plan = planned(names)
    fleet = Fleet(plan, [], [Quiet()])
    with (
        contextlib.suppress(asyncio.CancelledError),
        pytest.raises(NetworkProblem, match="names no rendezvous"),
    ):
        await _member(fleet, 0, names[0][1], unchanged)
