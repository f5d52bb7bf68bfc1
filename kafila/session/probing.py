"""The three ways to probe: alone, as a session's host, as one that joins.

What is measured is `kafila.probe.device`'s business, how members prove themselves `host`'s and
`member`'s; here both are put in order. Measuring runs on a thread: connections must stay alive.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from kafila.address import Address, format_address
from kafila.manifest import Manifest
from kafila.net.identity import Identity
from kafila.net.node import Node
from kafila.probe.report import Probes, Report, Session
from kafila.rendezvous.client import RendezvousClient
from kafila.session.code import Code
from kafila.session.events import OnEvent
from kafila.session.host import host_session
from kafila.session.member import join_session
from kafila.session.timing import measure_rtt

Measure = Callable[[Manifest | None], Report]
"""Measures this machine for a model's shapes (None: the standard ones); blocks for seconds."""


def alone(measure: Measure, manifest: Manifest | None) -> Probes:
    """This machine's report, with nobody else."""
    return Probes(manifest=manifest, reports=(measure(manifest),))


async def host(
    measure: Measure,
    manifest: Manifest | None,
    *,
    identity: Identity,
    rendezvous: Address,
    listen: Address,
    members: int,
    on_event: OnEvent,
) -> Probes:
    """Open a session and collect `members` reports, this machine's first.

    Raises what `host_session` raises, and NetworkProblem where the rendezvous is not there.
    """
    async with _meeting(identity, listen, rendezvous) as (node, client):
        report = await _measured(measure, manifest, node, client)
        reports = await host_session(client, identity, report, manifest, members, on_event)
        where = Session(rendezvous=format_address(rendezvous), rendezvous_key=client.key.hex())
        return Probes(manifest=manifest, session=where, host=report.name, reports=tuple(reports))


async def join(
    measure: Measure,
    *,
    identity: Identity,
    rendezvous: Address,
    listen: Address,
    code: Code,
    name: str,
    on_event: OnEvent,
) -> None:
    """Join the session of `code`: measure what its host asks for and hand in the report.

    Raises what `join_session` raises, and NetworkProblem where the rendezvous is not there.
    """
    async with _meeting(identity, listen, rendezvous) as (node, client):

        async def make(manifest: Manifest | None) -> Report:
            return await _measured(measure, manifest, node, client)

        await join_session(client, identity, code, name, make, on_event)


@asynccontextmanager
async def _meeting(
    identity: Identity, listen: Address, rendezvous: Address
) -> AsyncIterator[tuple[Node, RendezvousClient]]:
    node = await Node.open(identity, *listen)
    try:
        client = await RendezvousClient.connect(node, rendezvous)
        yield node, client
        await client.close()
    finally:
        await node.close()


async def _measured(
    measure: Measure, manifest: Manifest | None, node: Node, client: RendezvousClient
) -> Report:
    """Device and round trips, one after the other: a busy machine answers late."""
    report = await asyncio.to_thread(measure, manifest)
    rtt, spread = await measure_rtt(node, client.address)
    return report.model_copy(update={"rtt_us": rtt, "rtt_spread_us": spread})
