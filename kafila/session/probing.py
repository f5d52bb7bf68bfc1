"""The three ways to probe: alone, as a session's host, as one that joins.

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
from typing import Any, TypeVar

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

T = TypeVar("T")


def run(probing: Coroutine[Any, Any, T]) -> T:
    """Run `host` or `join`; SIGTERM ends it as Ctrl-C does, with KeyboardInterrupt.

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
    report = await _on_thread(measure, manifest)
    rtt, spread = await measure_rtt(node, client.address)
    return report.model_copy(update={"rtt_us": rtt, "rtt_spread_us": spread})


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
