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
from kafila.probe.netcheck import Netcheck
from kafila.probe.report import Report
from kafila.rendezvous.client import RendezvousClient
from kafila.rendezvous.messages import Arrived, Ended, Left, Mail, Notice
from kafila.session import messages as say
from kafila.session.code import Code
from kafila.session.collect import (
    Action,
    Compute,
    Drop,
    Helped,
    Host,
    HostState,
    Post,
    Tell,
    Welcomed,
)
from kafila.session.events import CodeReady, OnEvent
from kafila.session.helping import Helping
from kafila.session.pake import Channel, Pake, PakeFailure


async def host_session(
    client: RendezvousClient,
    identity: Identity,
    report: Report,
    manifest: Manifest | None,
    members: int,
    on_event: OnEvent,
    net: Netcheck | None = None,
) -> list[Report]:
    """Open a session for `members` members and wait until all have reported.

    The host's own report comes first, the others in the order they arrived. With `net` the host
    helps joiners to classify their NATs, and has one help itself where it is needed. The code to
    tell the others comes as the event `CodeReady`. Raises IdentityProblem when the code was guessed
    at too often, NetworkProblem when the time ran out or the rendezvous went away.
    """
    if not 2 <= members <= d.MAX_MEMBERS:
        raise UsageProblem(f"a session has 2 to {d.MAX_MEMBERS} members, not {members}")
    opened = await client.open_session(members)
    code = Code.new(opened.number)
    host = Host(code, identity.key, report, manifest, members, time.monotonic())
    on_event(CodeReady(str(code), members, opened.expires_s))
    driver = _Driver(client, code, host, on_event, net)
    try:
        await driver.collect()
        problem = _problem(host)
        # Every report is here or none will come: a rendezvous gone now changes neither.
        with contextlib.suppress(NetworkProblem):
            await client.end(str(problem) if problem else f"all its {members} members reported")
    except asyncio.CancelledError:
        client.stop("its host was stopped")
        raise
    finally:
        await driver.close()
    if problem:
        raise problem
    return list(host.reports.values())


class _Driver:
    """Drives a `Host`: its mail, its computing, its neighbourly help."""

    def __init__(
        self,
        client: RendezvousClient,
        code: Code,
        host: Host,
        on_event: OnEvent,
        net: Netcheck | None,
    ) -> None:
        self._client = client
        self._code = code
        self._host = host
        self._on_event = on_event
        self._net = net
        self._tasks: set[asyncio.Task[Any]] = set()
        self._helping: dict[int, Helping] = {}
        self._unasked: list[Helping] = []
        self._visits: asyncio.Task[None] | None = None

    async def collect(self) -> None:
        """Until the host's part is over."""
        # No time-out: until the code expires there may be nothing to hear; `host` keeps the time.
        receiving = self._start(self._client.receive(None))
        while self._host.state is HostState.COLLECTING:
            done, _ = await asyncio.wait(
                self._tasks, timeout=1, return_when=asyncio.FIRST_COMPLETED
            )
            self._tasks -= done
            now = time.monotonic()
            for task in done - {receiving}:
                if (answered := task.result()) is not None:
                    attempt, answer = answered
                    self._perform(self._host.computed(attempt, answer, now))
            if receiving in done:
                self._perform(_notice(self._host, receiving.result(), now))
                receiving = self._start(self._client.receive(None))
            self._perform(self._host.tick(now))
            for gone in self._helping.keys() - self._host.helpers:
                self._start(self._helping.pop(gone).close())
        receiving.cancel()

    async def close(self) -> None:
        """End what still runs."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await asyncio.gather(*(each.close() for each in self._helping.values()))

    def _start(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        return task

    def _perform(self, actions: list[Action]) -> None:
        for action in actions:
            match action:
                case Post():
                    self._client.post(action.attempt, action.body)
                case Drop():
                    self._client.drop(action.attempt)
                case Compute():
                    self._start(_answer(self._code, action))
                case Welcomed():
                    self._welcomed(action.attempt)
                case Helped():
                    self._helping[action.attempt].hear(action.message)
                case Tell():
                    self._on_event(action.event)

    def _welcomed(self, attempt: int) -> None:
        def post(message: say.Helping) -> None:
            self._perform(self._host.help(attempt, message))

        net = self._net
        helping = Helping(post, net.doors if net else None)
        self._helping[attempt] = helping
        self._unasked.append(helping)
        if net is not None and (self._visits is None or self._visits.done()):
            self._visits = self._start(self._ask(net))

    async def _ask(self, net: Netcheck) -> None:
        """Have joiners tell about the host's NAT what servers could not, one after another."""
        while self._unasked and net.wants_stranger:
            await net.meet(self._unasked.pop(0))
            self._host.revise(net.nat())


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
