"""`kafila serve --check`: the edges come up, are looked at by both ends, and end in peace.

Every member runs it. Each holds its edges until its neighbours are through as well; one that
serves instead is told, and fails with the name of the one that only checked.
"""

import asyncio
from collections.abc import Mapping

from kafila import defaults
from kafila.address import Address
from kafila.errors import NetworkProblem
from kafila.net.edge import Edge
from kafila.net.identity import Identity
from kafila.planfile import PlanFile
from kafila.serve import frames
from kafila.serve.connect import connected
from kafila.serve.frames import Checked, FrameError
from kafila.serve.verify import Verified, verify
from kafila.serve.view import View
from kafila.session.edges import part
from kafila.words import listed


async def check(
    plan: PlanFile,
    me: int,
    identity: Identity,
    *,
    view: View,
    listen: Address = ("0.0.0.0", 0),
) -> list[Verified]:
    """The edges of member `me` as they came up, once its neighbours have looked at them too."""
    async with connected(plan, me, identity, view, listen, thorough=True) as (outcomes, _):
        found = verify(plan, me, outcomes)
        edges = {other: each for other, each in outcomes.items() if isinstance(each, Edge)}
        serving, lost = await _hold(plan, me, edges)
        if lost:
            found = verify(plan, me, {**outcomes, **lost})
        if serving:
            view.say(
                f"{listed(serving)} did not only check: run `kafila serve --check` on every member"
            )
        await part(edges.values(), "it only checked its edges")
    return found


async def _hold(
    plan: PlanFile, me: int, edges: Mapping[int, Edge]
) -> tuple[list[str], dict[int, NetworkProblem]]:
    """Keep the edges until their peers are through; who of them serves instead, and which edges
    were lost before."""
    pending = set(edges)
    serving: list[str] = []
    lost: dict[int, NetworkProblem] = {}
    through = asyncio.Event()

    def done(other: int) -> None:
        pending.discard(other)
        if not pending:
            through.set()

    def hear(other: int, message: bytes) -> None:
        try:
            frame = frames.decode(message, members=len(plan.ring), shape=None, to_head=me == 0)
        except FrameError:
            frame = None
        if not isinstance(frame, Checked) and other in pending:
            serving.append(plan.ring[other].name)
        done(other)

    def closed(other: int, why: str) -> None:
        if other in pending:
            lost[other] = NetworkProblem(f"it came up and was lost: {why}")
        done(other)

    for other, edge in edges.items():
        edge.on_message = lambda _channel, message, other=other: hear(other, message)
        edge.on_closed = lambda why, other=other: closed(other, why)
        if not edge.closed:
            edge.send(0, frames.encode(Checked(me)))
    try:
        async with asyncio.timeout(defaults.EDGE_TIMEOUT + defaults.EDGE_SETTLE):
            if pending:
                await through.wait()
    except TimeoutError:
        pass  # a neighbour whose own other edge takes longer than it may
    return serving, lost
