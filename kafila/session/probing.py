"""The ways to probe: alone, at a rendezvous, as a session's host, as one that joins.

What is measured is `kafila.probe.device`'s business, how members prove themselves `host`'s and
`member`'s; here both are put in order. Measuring runs on a thread: connections must stay alive,
and an interrupt must not wait for a device.
"""

import asyncio
import concurrent.futures
import signal
import threading
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

from kafila.address import Address, format_address
from kafila.manifest import Manifest
from kafila.net.identity import Identity
from kafila.net.node import Node
from kafila.probe.netcheck import Knocker, Netcheck, over_ipv4
from kafila.probe.report import Probes, Report, Session
from kafila.rendezvous.client import RendezvousClient
from kafila.session.code import Code
from kafila.session.events import OnEvent
from kafila.session.host import host_session
from kafila.session.member import join_session
from kafila.session.timing import measure_rtt

Measure = Callable[[Manifest | None], Report]
"""Measures this machine for a model's shapes (None: the standard ones); blocks for seconds."""

T = TypeVar("T")


@dataclass(frozen=True)
class Meeting:
    """Where members meet, where this one listens, and who else may be asked about its NAT."""

    rendezvous: Address
    listen: Address
    stun: tuple[Address, ...] = ()


def run(probing: Coroutine[Any, Any, T]) -> T:
    """Run `at`, `host` or `join`; SIGTERM ends it as Ctrl-C does, with KeyboardInterrupt.

    It ends at once, which may leave a daemon thread measuring: a compilation cannot be broken off.
    """

    async def terminable() -> T:
        task = asyncio.current_task()
        assert task is not None
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
        return await probing

    try:
        return asyncio.run(terminable())
    except asyncio.CancelledError:
        raise KeyboardInterrupt from None


def alone(measure: Measure, manifest: Manifest | None) -> Probes:
    """This machine's report, with nobody else. Ends as `run` does."""
    return Probes(manifest=manifest, reports=(run(_on_thread(measure, manifest)),))


async def at(
    measure: Measure, manifest: Manifest | None, *, identity: Identity, where: Meeting
) -> Probes:
    """This machine's report, with nobody else but a rendezvous that it is timed and classified at.

    Raises NetworkProblem where the rendezvous is not there.
    """
    async with meeting(identity, where) as (node, client, net):
        report = await _measured(measure, manifest, node, client, net)
        return Probes(manifest=manifest, session=_session(where, client), reports=(report,))


async def host(
    measure: Measure,
    manifest: Manifest | None,
    *,
    identity: Identity,
    where: Meeting,
    members: int,
    on_event: OnEvent,
) -> Probes:
    """Open a session and collect `members` reports, this machine's first.

    Raises what `host_session` raises, and NetworkProblem where the rendezvous is not there.
    """
    async with meeting(identity, where) as (node, client, net):
        report = await _measured(measure, manifest, node, client, net)
        reports = await host_session(client, identity, report, manifest, members, on_event, net)
        return Probes(
            manifest=manifest,
            session=_session(where, client),
            host=report.name,
            reports=tuple(reports),
        )


async def join(
    measure: Measure,
    *,
    identity: Identity,
    where: Meeting,
    code: Code,
    name: str,
    on_event: OnEvent,
) -> None:
    """Join the session of `code`: measure what its host asks for and hand in the report.

    Raises what `join_session` raises, and NetworkProblem where the rendezvous is not there.
    """
    async with meeting(identity, where) as (node, client, net):

        async def make(manifest: Manifest | None, host: Knocker) -> Report:
            return await _measured(measure, manifest, node, client, net, host)

        await join_session(client, identity, code, name, make, on_event, net.doors)


def _session(where: Meeting, client: RendezvousClient) -> Session:
    return Session(rendezvous=format_address(where.rendezvous), rendezvous_key=client.key.hex())


@asynccontextmanager
async def meeting(
    identity: Identity, where: Meeting
) -> AsyncIterator[tuple[Node, RendezvousClient, Netcheck]]:
    """A socket, a connection to the rendezvous, and what stands between.

    Raises NetworkProblem where the rendezvous is not there.
    """
    node = await Node.open(identity, *where.listen)
    try:
        client = await RendezvousClient.connect(node, await over_ipv4(where.rendezvous))
        net = Netcheck(node, client, where.rendezvous, where.stun)
        try:
            yield node, client, net
        finally:
            net.close()
        await client.close()
    finally:
        await node.close()


async def _measured(
    measure: Measure,
    manifest: Manifest | None,
    node: Node,
    client: RendezvousClient,
    net: Netcheck,
    stranger: Knocker | None = None,
) -> Report:
    """Device, round trips and NAT, one after the other: a busy machine answers late."""
    report = await _on_thread(measure, manifest)
    rtt, spread = await measure_rtt(node, client.address)
    await net.classify()
    if stranger is not None and net.wants_stranger:
        await net.meet(stranger)
    return report.model_copy(update={"rtt_us": rtt, "rtt_spread_us": spread, "nat": net.nat()})


async def _on_thread(measure: Measure, manifest: Manifest | None) -> Report:
    """On a daemon thread, since asyncio waits at its end for the threads of its own."""
    outcome: concurrent.futures.Future[Report] = concurrent.futures.Future()
    outcome.set_running_or_notify_cancel()  # who gives up waiting does not cancel it

    def work() -> None:
        try:
            outcome.set_result(measure(manifest))
        except BaseException as error:  # whatever measuring raises is the caller's to handle
            outcome.set_exception(error)

    threading.Thread(target=work, daemon=True).start()
    return await asyncio.wrap_future(outcome)
