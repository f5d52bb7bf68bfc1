"""The edges of a ring: one QUIC connection per pair of neighbours, over whichever path carries it.

Must not know the rendezvous, nor what the edges carry.
"""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from kafila import defaults as d
from kafila import planfile
from kafila.address import Address
from kafila.errors import KafilaError
from kafila.net.edge import Edge, Peer
from kafila.net.node import Node
from kafila.net.punching import Punch
from kafila.net.relay import Relayed
from kafila.planfile import PlanFile
from kafila.probe.report import Nat

_BY_PORT: Final = "address-and-port-dependent"
_DEPENDENT: Final = ("address-dependent", _BY_PORT)
_UNKNOWN: Final = Nat(mapping="unknown", filtering="unknown")

Outcome = Edge | KafilaError
"""An edge that is up, or why there is none."""


def neighbours(size: int, me: int) -> tuple[int, int] | None:
    """Ring indices before and after `me`; None in a ring of one."""
    return None if size == 1 else ((me - 1) % size, (me + 1) % size)


async def form_edges(
    node: Node,
    plan: PlanFile,
    me: int,
    peers: Mapping[int, Peer],
    *,
    relays: Mapping[int, Relayed],
    servers: Sequence[Address] = (),
    timeout: float = d.EDGE_TIMEOUT,
) -> dict[int, Outcome]:
    """What became of the edge to each neighbour, by ring index; two members share one edge.

    `relays` are the bound ways through the relay, by ring index; `servers` tell a socket how it is
    seen from outside. The lower ring index is the QUIC client. Cancelled, it leaves no edge.
    """
    session = bytes.fromhex(plan.session.id)
    others = sorted(set(neighbours(len(plan.ring), me) or ()))
    tasks = [
        asyncio.create_task(
            node.edge(
                peers[other],
                client=me < other,
                session=session,
                digest=plan.digest,
                timeout=timeout,
                relay=relays.get(other),
                servers=servers,
                punch=punch(plan, me, other),
            )
        )
        for other in others
    ]
    try:
        outcomes = await asyncio.gather(*tasks, return_exceptions=True)
    except asyncio.CancelledError:
        for task in tasks:
            task.cancel()
        outcomes = await asyncio.gather(*tasks, return_exceptions=True)
        await part(outcomes)
        raise
    became: dict[int, Outcome] = {}
    for other, outcome in zip(others, outcomes, strict=True):
        if not isinstance(outcome, Outcome):  # a fault of the program
            await part(outcomes)
            raise outcome
        became[other] = outcome
    return became


async def part(outcomes: Iterable[object], reason: str = "the ring did not form") -> None:
    """Close those of them that are edges, once what was sent on them has left."""
    edges = [each for each in outcomes if isinstance(each, Edge)]
    await asyncio.gather(*(edge.close(reason) for edge in edges))


def planned(plan: PlanFile, me: int, other: int) -> planfile.Edge:
    """What the plan says of the edge with that neighbour: of the way to it where there is one."""
    mine, theirs = plan.ring[me].edge, plan.ring[other].edge
    edge = mine if mine is not None and mine.to == plan.ring[other].name else theirs
    assert edge is not None, "members of a ring of several have edges"
    return edge


def punch(plan: PlanFile, me: int, other: int) -> Punch:
    """What the plan asks for and knows of the two NATs; one that is unknown is no obstacle."""
    own, theirs = (plan.ring[index].measured.nat or _UNKNOWN for index in (me, other))
    return Punch(
        birthday=plan.edges is not None,
        dependent=own.mapping in _DEPENDENT,
        filtered=own.filtering == _BY_PORT,
        peer_dependent=theirs.mapping in _DEPENDENT,
        peer_filtered=theirs.filtering == _BY_PORT,
    )


async def settle(
    plan: PlanFile,
    me: int,
    edges: Mapping[int, Edge],
    *,
    thorough: bool = False,
    patience: float = d.EDGE_SETTLE,
) -> None:
    """Wait until every edge is as planned or better, at most `patience` seconds.

    `thorough`: until every edge is direct, whatever was planned.
    """
    moved = asyncio.Event()

    def settled(other: int, edge: Edge) -> bool:
        enough = not thorough and edge.path.kind == planned(plan, me, other).path
        return edge.closed or edge.path.kind == "direct" or enough

    for edge in edges.values():
        edge.on_path = lambda _: moved.set()
    try:
        async with asyncio.timeout(patience):
            while not all(settled(*each) for each in edges.items()):
                await moved.wait()
                moved.clear()
    except TimeoutError:
        pass  # they go on searching
    finally:
        for edge in edges.values():
            edge.on_path = None
