"""From a plan to edges that are up: meet, connect, give direct paths a moment.

What `kafila serve` does before it loads a weight, and all that `--check` does. Knows no ring.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import NamedTuple

from kafila.address import Address, parse_address
from kafila.errors import NetworkProblem
from kafila.net.edge import Edge
from kafila.net.identity import Identity
from kafila.net.node import Node
from kafila.planfile import PlanFile
from kafila.serve.view import View
from kafila.session.edges import Outcome, form_edges, part, settle
from kafila.session.presence import Presence


class Connected(NamedTuple):
    """What a member has of the others."""

    outcomes: dict[int, Outcome]
    """What became of its edges, by ring index."""
    keeping: asyncio.Future[None]
    """Its place at the rendezvous is kept; done only by a fault of this program."""


@asynccontextmanager
async def connected(
    plan: PlanFile,
    me: int,
    identity: Identity,
    view: View,
    listen: Address,
    *,
    thorough: bool = False,
) -> AsyncIterator[Connected]:
    """What became of the edges of member `me`; inside, they stay up.

    So does its place at the rendezvous, as far as there is one. A ring of one needs no network.
    `thorough` gives direct paths their moment even where none was planned.
    """
    if len(plan.ring) == 1:
        yield Connected({}, asyncio.get_running_loop().create_future())
        return
    session = plan.session
    if session.rendezvous is None:
        raise NetworkProblem(
            "the plan names no rendezvous, so its members cannot meet; run `kafila rendezvous` "
            "and write its address under session: rendezvous"
        )
    key = bytes.fromhex(session.rendezvous_key) if session.rendezvous_key else None
    async with AsyncExitStack() as stack:
        node = await Node.open(identity, *listen)
        stack.push_async_callback(node.close)
        presence = Presence(
            node,
            identity,
            plan,
            me,
            parse_address(session.rendezvous),
            key,
            on_event=lambda event: view.say(str(event)),
        )
        stack.push_async_callback(presence.close)
        peers = await presence.meet()
        keeping: asyncio.Future[None] = asyncio.create_task(presence.keep())
        keeping.add_done_callback(_report)
        stack.push_async_callback(_end, keeping)
        outcomes = await form_edges(
            node, plan, me, peers, relays=presence.relays, servers=presence.servers
        )
        stack.push_async_callback(part, outcomes.values())
        edges = {other: each for other, each in outcomes.items() if isinstance(each, Edge)}
        presence.attend(edges)
        await settle(plan, me, edges, thorough=thorough)
        yield Connected(outcomes, keeping)


def _report(keeping: asyncio.Future[None]) -> None:
    if not keeping.cancelled():
        keeping.get_loop().call_exception_handler(
            {"message": "the place at the rendezvous is not kept", "exception": keeping.exception()}
        )


async def _end(keeping: asyncio.Future[None]) -> None:
    keeping.cancel()
    await asyncio.wait([keeping])
