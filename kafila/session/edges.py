"""The edges of a ring: one QUIC connection per pair of neighbours, on the node's one socket."""

import asyncio
from collections.abc import Mapping

from kafila import defaults as d
from kafila.net.edge import Edge, Peer
from kafila.net.node import Node
from kafila.planfile import PlanFile


def neighbours(size: int, me: int) -> tuple[int, int] | None:
    """Ring indices before and after `me`; None in a ring of one."""
    return None if size == 1 else ((me - 1) % size, (me + 1) % size)


async def form_edges(
    node: Node,
    plan: PlanFile,
    me: int,
    peers: Mapping[int, Peer],
    timeout: float = d.EDGE_TIMEOUT,
) -> tuple[Edge | None, Edge | None]:
    """The edges to the previous and to the next member of the ring.

    The lower ring index is the QUIC client. Two members share one edge (both values are it), one
    member has none. If an edge fails, what came up is closed and the failure raised.
    """
    pair = neighbours(len(plan.ring), me)
    if pair is None:
        return None, None
    session = bytes.fromhex(plan.session.id)
    others = sorted(set(pair))
    tasks = [
        asyncio.create_task(
            node.edge(
                peers[other],
                client=me < other,
                session=session,
                digest=plan.digest,
                timeout=timeout,
            )
        )
        for other in others
    ]
    try:
        edges = dict(zip(others, await asyncio.gather(*tasks), strict=True))
    except BaseException:  # cancelled as well: no half a ring stays up
        for task in tasks:
            task.cancel()
        for outcome in await asyncio.gather(*tasks, return_exceptions=True):
            if isinstance(outcome, Edge):
                await outcome.close("the ring did not form")
        raise
    return edges[pair[0]], edges[pair[1]]
