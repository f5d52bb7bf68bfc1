"""One member's life: meet, form edges, load, be ready together, serve until the end.

The stage and the API are given: this module knows neither checkpoints nor HTTP.
"""

import asyncio
import time
from collections.abc import Callable, Coroutine, Mapping
from contextlib import AsyncExitStack
from typing import Any, NoReturn

from kafila import defaults
from kafila.address import Address
from kafila.errors import KafilaError, NetworkProblem
from kafila.net.edge import Edge
from kafila.net.identity import Identity
from kafila.planfile import PlanFile
from kafila.serve.compute import Compute
from kafila.serve.connect import connected
from kafila.serve.head import Head, HeadBlocks
from kafila.serve.member import Member, OnStep, shape_of
from kafila.serve.moves import Watch
from kafila.serve.pace import Pace, planned
from kafila.serve.ring import Ring, as_problem
from kafila.serve.scheduler import chunks_under_way
from kafila.serve.verify import Verified, shortcoming, table, verify
from kafila.serve.view import View
from kafila.session.edges import Outcome, neighbours, part
from kafila.words import listed

OpenStage = Callable[[Callable[[str, int, int], None]], HeadBlocks]
Health = Callable[[], dict[str, Any]]
Api = Callable[[Head, Health], Coroutine[Any, Any, None]]


async def serve(
    plan: PlanFile,
    me: int,
    identity: Identity,
    *,
    open_stage: OpenStage,
    api: Api,
    view: View,
    listen: Address = ("0.0.0.0", 0),
    verified: Callable[[list[Verified]], None] = lambda found: None,
) -> NoReturn:
    """Serve as member `me` of the plan until cancelled.

    `verified` is told how the edges came up, whether or not all did; `open_stage(on_progress)` then
    runs on the compute thread; `api(head, health)` runs on the head once all members are ready.
    Raises the ring's error when it fails: this member's own, which the others are told, or theirs,
    which names them.
    """
    async with AsyncExitStack() as stack:
        outcomes, keeping = await stack.enter_async_context(
            connected(plan, me, identity, view, listen)
        )
        found = verify(plan, me, outcomes)
        verified(found)
        edges = await _usable(outcomes, found, view)
        ring = _ring(plan, me, edges)
        compute = Compute(bound=plan.groups + chunks_under_way(len(plan.ring)))
        stack.push_async_callback(compute.stop, defaults.COMPUTE_STOP_SECONDS)
        stack.push_async_callback(part, edges.values(), "")  # its last words leave before that
        watch = Watch(plan, me, edges, view.say)
        stack.callback(_account, watch, view)
        run = asyncio.ensure_future(_run(plan, ring, compute, watch, open_stage, api, view))
        try:
            over: set[asyncio.Future[Any]] = {run, ring.failed, keeping}
            await asyncio.wait(over, return_when=asyncio.FIRST_COMPLETED)
            if not ring.failed.done():
                ended = run if run.done() else keeping
                ring.fail(as_problem(ended.exception() or KafilaError("it ended early")))
            raise ring.failed.result()
        except asyncio.CancelledError:
            ring.fail(NetworkProblem("this member was stopped"))
            raise
        finally:
            run.cancel()
            await asyncio.gather(run, return_exceptions=True)


async def _usable(
    outcomes: Mapping[int, Outcome], found: list[Verified], view: View
) -> dict[int, Edge]:
    """The edges by ring index, shown as predicted and as they are; raises why one is missing."""
    if found:
        view.say(table(found))
    if worse := shortcoming(found):
        view.say(f"warning: {worse}")
    problems = [each for each in outcomes.values() if isinstance(each, KafilaError)]
    if problems:
        await part(outcomes.values())
        raise problems[0]
    return {other: each for other, each in outcomes.items() if isinstance(each, Edge)}


def _ring(plan: PlanFile, me: int, edges: Mapping[int, Edge]) -> Ring:
    """In a ring of two both neighbours are the same one; a ring of one has none."""
    names = [member.name for member in plan.ring]
    pair = neighbours(len(names), me)
    if pair is None:
        return Ring(names, me, None, None)
    return Ring(names, me, edges[pair[0]], edges[pair[1]])


def _account(watch: Watch, view: View) -> None:
    watch.close()
    for line in watch.account():
        view.say(line)


async def _run(
    plan: PlanFile,
    ring: Ring,
    compute: Compute,
    watch: Watch,
    open_stage: OpenStage,
    api: Api,
    view: View,
) -> None:
    """Load, wait for the others, serve. Ends only by an exception."""
    loop = asyncio.get_running_loop()

    def progress(what: str, done: int, total: int) -> None:
        if ring.failed.done():  # on the compute thread, where loading is best broken off
            raise ring.failed.result()
        loop.call_soon_threadsafe(view.progress, what, done, total)

    stage = await compute.run(lambda: open_stage(progress))
    ring.on_loaded = lambda _: _say_waiting(ring, view)
    pace = Pace(planned(plan, ring.me))
    if ring.me == 0:
        head = Head(ring, stage, compute)
        head.on_step = _pacing(pace, view)
        ring.loaded(shape_of(stage))
        await _ready(ring)
        health = _health(plan, ring, head, watch, pace)
        view.say(_ring_words(plan))
        await asyncio.gather(api(head, health), _show(view, watch, lambda: _head_words(head)))
    else:
        member = Member(ring, stage, compute)
        member.on_step = _pacing(pace, view)
        ring.loaded(shape_of(stage))
        await _ready(ring)
        view.say(_ring_words(plan))
        await _show(view, watch, lambda: _member_words(member))


def _pacing(pace: Pace, view: View) -> OnStep:
    def step(rows: int, tokens: int, took_us: float) -> None:
        if words := pace.step(rows, tokens, took_us):
            view.say(words)

    return step


async def _ready(ring: Ring) -> None:
    try:
        async with asyncio.timeout(defaults.LOAD_SECONDS):
            await ring.ready.wait()
    except TimeoutError:
        who = listed(tuple(ring.loading)) if ring.me == 0 else "the ring"
        raise NetworkProblem(
            f"{who} did not load within {defaults.LOAD_SECONDS / 60:.0f} minutes"
        ) from None


async def _show(view: View, watch: Watch, words: Callable[[], tuple[str, bool]]) -> NoReturn:
    while True:
        line, active = words()
        view.state(line + watch.status(), active)
        await asyncio.sleep(defaults.STATUS_SECONDS)


def _say_waiting(ring: Ring, view: View) -> None:
    if ring.loading:
        view.say(f"waiting for {listed(tuple(ring.loading))} to load")


def _ring_words(plan: PlanFile) -> str:
    stages = (f"{member.name} {member.blocks}" for member in plan.ring)
    return f"ring ready: {' -> '.join(stages)}"


def _head_words(head: Head) -> tuple[str, bool]:
    now, schedule = time.monotonic(), head.schedule
    line = (
        f"{head.decoded.per_second(now):.1f} tok/s, prompts {head.prefilled.per_second(now):.0f} "
        f"tok/s; {schedule.used} of {schedule.slots} slots in use, {schedule.waiting} waiting"
    )
    return line, schedule.used > 0


def _member_words(member: Member) -> tuple[str, bool]:
    rate = member.rate.per_second(time.monotonic())
    return f"{rate:.1f} tok/s; {len(member.slots)} slots in use", len(member.slots) > 0


def _health(plan: PlanFile, ring: Ring, head: Head, watch: Watch, pace: Pace) -> Health:
    """The state of the ring for GET /health."""
    began = time.monotonic()

    def health() -> dict[str, Any]:
        now, schedule = time.monotonic(), head.schedule
        return {
            "status": "failed" if ring.failed.done() else "ok",
            "model": plan.model.name,
            "context": head.context,
            "uptime_seconds": round(now - began, 1),
            "ring": [
                {"name": member.name, "blocks": member.blocks, "platform": member.platform}
                for member in plan.ring
            ],
            "edges": watch.health(),
            "pace": pace.health(),
            "groups": plan.groups,
            "slots": {"used": schedule.used, "total": schedule.slots},
            "waiting": schedule.waiting,
            "rates": {
                "decode_tokens_per_second": round(head.decoded.per_second(now), 2),
                "prefill_tokens_per_second": round(head.prefilled.per_second(now), 2),
            },
        }

    return health
