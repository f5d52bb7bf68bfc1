"""One member's life: meet, form edges, load, be ready together, serve until the end.

The stage and the API are given: this module knows neither checkpoints nor HTTP.
"""

import asyncio
import time
from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack
from typing import Any, NoReturn

from kafila import defaults
from kafila.address import parse_address
from kafila.errors import KafilaError, NetworkProblem
from kafila.net.edge import Edge
from kafila.net.identity import Identity
from kafila.net.node import Node
from kafila.planfile import PlanFile
from kafila.rendezvous.client import RendezvousClient
from kafila.serve.compute import Compute
from kafila.serve.head import Head, HeadBlocks
from kafila.serve.member import Member, shape_of
from kafila.serve.ring import Ring, as_problem
from kafila.serve.view import View
from kafila.session.edges import form_edges
from kafila.session.meet import meet
from kafila.words import listed

OpenStage = Callable[[Callable[[str, int, int], None]], HeadBlocks]
Health = Callable[[], dict[str, Any]]
Api = Callable[[Head, Health], Coroutine[Any, Any, None]]
Edges = tuple[Edge | None, Edge | None]


async def serve(
    plan: PlanFile,
    me: int,
    identity: Identity,
    *,
    open_stage: OpenStage,
    api: Api,
    view: View,
    listen: tuple[str, int] = ("0.0.0.0", 0),
) -> NoReturn:
    """Serve as member `me` of the plan until cancelled.

    `open_stage(on_progress)` runs on the compute thread once the edges are up; `api(head, health)`
    runs on the head once all members are ready. Raises the ring's error when it fails: this
    member's own, which the others are told, or theirs, which names them.
    """
    async with AsyncExitStack() as stack:
        edges = await _meet(stack, plan, me, identity, view, listen)
        ring = Ring([member.name for member in plan.ring], me, *edges)
        compute = Compute(bound=plan.groups + len(plan.ring))
        stack.push_async_callback(compute.stop, defaults.COMPUTE_STOP_SECONDS)
        stack.push_async_callback(_part, edges)
        run = asyncio.ensure_future(_run(plan, ring, compute, open_stage, api, view))
        try:
            over: set[asyncio.Future[Any]] = {run, ring.failed}
            await asyncio.wait(over, return_when=asyncio.FIRST_COMPLETED)
            if not ring.failed.done():
                ring.fail(as_problem(run.exception() or KafilaError("it ended early")))
            raise ring.failed.result()
        except asyncio.CancelledError:
            ring.fail(NetworkProblem("this member was stopped"))
            raise
        finally:
            run.cancel()
            await asyncio.gather(run, return_exceptions=True)


async def _meet(
    stack: AsyncExitStack,
    plan: PlanFile,
    me: int,
    identity: Identity,
    view: View,
    listen: tuple[str, int],
) -> Edges:
    """The edges to both neighbours; they end with `stack`. A ring of one needs no network."""
    if len(plan.ring) == 1:
        return None, None
    session = plan.session
    if session.rendezvous is None:
        raise NetworkProblem(
            "the plan names no rendezvous, so its members cannot meet; run `kafila rendezvous` "
            "and write its address under session: rendezvous"
        )
    key = bytes.fromhex(session.rendezvous_key) if session.rendezvous_key else None
    node = await Node.open(identity, *listen)
    stack.push_async_callback(node.close)
    client = await RendezvousClient.connect(node, parse_address(session.rendezvous), key)
    try:
        peers = await meet(
            client, identity, node, plan, me, on_event=lambda event: view.say(str(event))
        )
        edges = await form_edges(node, plan, me, peers)
    finally:
        await client.close()
    planned = plan.ring[me].edge
    for edge in _distinct(edges):
        also = f", planned {planned.path}" if planned and planned.to == edge.peer.name else ""
        view.say(f"edge to {edge.peer.name} is up: {edge.path.kind}{also}")
    return edges


async def _part(edges: Edges) -> None:
    """Close the edges once what was sent on them has left: the ring's last words among it."""
    await asyncio.gather(*(edge.close() for edge in _distinct(edges)))


def _distinct(edges: Edges) -> list[Edge]:
    """In a ring of two both are the same one."""
    return list(dict.fromkeys(edge for edge in edges if edge))


async def _run(
    plan: PlanFile,
    ring: Ring,
    compute: Compute,
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

    stage = await compute.submit(lambda: open_stage(progress))
    ring.on_loaded = lambda _: _say_waiting(ring, view)
    if ring.me == 0:
        head = Head(ring, stage, compute)
        ring.loaded(shape_of(stage))
        await _ready(ring)
        health = _health(plan, ring, head)
        view.say(_ring_words(plan))
        await asyncio.gather(api(head, health), _show(view, lambda: _head_words(head)))
    else:
        member = Member(ring, stage, compute)
        ring.loaded(shape_of(stage))
        await _ready(ring)
        view.say(_ring_words(plan))
        await _show(view, lambda: _member_words(member))


async def _ready(ring: Ring) -> None:
    try:
        async with asyncio.timeout(defaults.LOAD_SECONDS):
            await ring.ready.wait()
    except TimeoutError:
        who = listed(tuple(ring.loading)) if ring.me == 0 else "the ring"
        raise NetworkProblem(
            f"{who} did not load within {defaults.LOAD_SECONDS / 60:.0f} minutes"
        ) from None


async def _show(view: View, words: Callable[[], tuple[str, bool]]) -> NoReturn:
    while True:
        view.state(*words())
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


def _health(plan: PlanFile, ring: Ring, head: Head) -> Health:
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
            "groups": plan.groups,
            "slots": {"used": schedule.used, "total": schedule.slots},
            "waiting": schedule.waiting,
            "rates": {
                "decode_tokens_per_second": round(head.decoded.per_second(now), 2),
                "prefill_tokens_per_second": round(head.prefilled.per_second(now), 2),
            },
        }

    return health
