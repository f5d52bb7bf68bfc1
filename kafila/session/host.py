"""The host of a session: opens it at the rendezvous, tells the code, waits for every report."""

import asyncio
import contextlib
import math
import time
from collections.abc import Coroutine
from typing import Any

from kafila import defaults as d
from kafila.errors import IdentityProblem, KafilaError, NetworkProblem, UsageProblem
from kafila.manifest import Manifest
from kafila.net.identity import Identity
from kafila.probe.report import Report
from kafila.rendezvous.client import RendezvousClient
from kafila.rendezvous.messages import Arrived, Ended, Left, Mail, Notice
from kafila.session.code import Code
from kafila.session.collect import Action, Compute, Drop, Host, HostState, Post, Tell
from kafila.session.events import CodeReady, OnEvent
from kafila.session.pake import Channel, Pake, PakeFailure


async def host_session(
    client: RendezvousClient,
    identity: Identity,
    report: Report,
    manifest: Manifest | None,
    members: int,
    on_event: OnEvent,
) -> list[Report]:
    """Open a session for `members` members and wait until all have reported.

    The host's own report comes first, the others in the order they arrived. The code to tell the
    others comes as the event `CodeReady`. Raises IdentityProblem when the code was guessed at too
    often, NetworkProblem when the time ran out or the rendezvous went away.
    """
    if not 2 <= members <= d.MAX_MEMBERS:
        raise UsageProblem(f"a session has 2 to {d.MAX_MEMBERS} members, not {members}")
    opened = await client.open_session(members)
    code = Code.new(opened.number)
    host = Host(code, identity.key, report, manifest, members, time.monotonic())
    on_event(CodeReady(str(code), members, opened.expires_s))
    tasks: set[asyncio.Task[Any]] = set()

    def start(work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        task = asyncio.create_task(work)
        tasks.add(task)
        return task

    def perform(actions: list[Action]) -> None:
        for action in actions:
            match action:
                case Post():
                    client.post(action.attempt, action.body)
                case Drop():
                    client.drop(action.attempt)
                case Compute():
                    start(_answer(code, action))
                case Tell():
                    on_event(action.event)

    # No time-out: until the code expires there may be nothing to hear; `host` keeps the time.
    receiving = start(client.receive(None))
    try:
        while host.state is HostState.COLLECTING:
            done, _ = await asyncio.wait(tasks, timeout=1, return_when=asyncio.FIRST_COMPLETED)
            tasks -= done
            now = time.monotonic()
            for task in done - {receiving}:
                attempt, answer = task.result()
                perform(host.computed(attempt, answer, now))
            if receiving in done:
                perform(_notice(host, receiving.result(), now))
                receiving = start(client.receive(None))
            perform(host.tick(now))
        receiving.cancel()
        problem = _problem(host)
        # Every report is here or none will come: a rendezvous gone now changes neither.
        with contextlib.suppress(NetworkProblem):
            await client.end(str(problem) if problem else f"all its {members} members reported")
    except asyncio.CancelledError:
        client.stop("its host was stopped")
        raise
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    if problem:
        raise problem
    return list(host.reports.values())


def _notice(host: Host, notice: Notice, now: float) -> list[Action]:
    match notice:
        case Arrived():
            return host.arrived(notice.attempt, bytes.fromhex(notice.key), now)
        case Left():
            return host.left(notice.attempt, now)
        case Mail():
            return host.mail(notice.attempt, notice.body, now)
        case Ended():
            raise NetworkProblem(f"the rendezvous ended the session: {notice.text}")
    raise NetworkProblem(f"the rendezvous sent an unexpected {notice.kind}")


def _problem(host: Host) -> KafilaError | None:
    if host.state is HostState.VOID:
        return IdentityProblem(
            f"the code is void after {host.failures} wrong guesses; host again for a new code"
        )
    if host.state is HostState.EXPIRED:
        return NetworkProblem(
            f"the session's time ran out with {host.missing} reports missing; host again"
        )
    return None


async def _answer(code: Code, work: Compute) -> tuple[int, tuple[bytes, Channel] | None]:
    """Compute off the loop and answer on a time grid, see PAKE_GRID."""
    began = time.monotonic()
    answer = await asyncio.to_thread(answer_exchange, code, work)
    took = time.monotonic() - began
    await asyncio.sleep(math.ceil(took / d.PAKE_GRID) * d.PAKE_GRID - took)
    return work.attempt, answer


def answer_exchange(code: Code, work: Compute) -> tuple[bytes, Channel] | None:
    """The host's exchange message and the channel, or None if theirs is no point. Slow."""
    pake = Pake("host", code.password, work.terms)
    try:
        return pake.message, pake.finish(work.theirs)
    except PakeFailure:
        return None
