"""Whole members of a plan as tasks of one loop, over real sockets, with toy stages."""

import asyncio
from collections.abc import AsyncIterator, Callable, Collection
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kafila.net.identity import Identity
from kafila.planfile import PlanFile
from kafila.serve.check import check
from kafila.serve.head import Head
from kafila.serve.runtime import serve
from kafila.serve.verify import Verified
from kafila.serve.view import Lines
from tests.rendezvous.lan import LOOPBACK, Lan
from tests.serve.rings import until
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
    found: dict[int, list[Verified]] = field(default_factory=dict)
    """What members saw of their edges."""
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
async def members(
    folder: Path, count: int, opener: Opener = unchanged, checking: Collection[int] = ()
) -> AsyncIterator[Fleet]:
    """`count` members of a plan, started at once, their stages passed through `opener`.

    Those at the places `checking` only check.
    """
    async with Lan(folder) as lan:
        identities = [(name, lan.identity(name)) for name in NAMES[:count]]
        plan = _with_rendezvous(planned(identities), lan)
        fleet = Fleet(plan, [], [Quiet() for _ in range(count)])
        for me in range(count):
            who = dict(identities)[plan.ring[me].name]
            being = _check(fleet, me, who) if me in checking else member(fleet, me, who, opener)
            fleet.tasks.append(asyncio.ensure_future(being))
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


async def _check(fleet: Fleet, me: int, identity: Identity) -> None:
    fleet.found[me] = await check(
        fleet.plan, me, identity, view=fleet.views[me], listen=(LOOPBACK, 0)
    )


async def member(fleet: Fleet, me: int, identity: Identity, opener: Opener = unchanged) -> None:
    """One that serves."""
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

    await serve(
        plan,
        me,
        identity,
        open_stage=open_stage,
        api=api,
        view=fleet.views[me],
        listen=(LOOPBACK, 0),
        verified=lambda found: fleet.found.update({me: found}),
    )
