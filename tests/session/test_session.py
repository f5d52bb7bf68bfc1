"""Whole sessions over a real rendezvous and real QUIC on loopback."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from kafila import defaults as d
from kafila.errors import IdentityProblem, NetworkProblem, UsageProblem
from kafila.manifest import Manifest
from kafila.net.connection import Connection
from kafila.probe.netcheck import Knocker
from kafila.probe.report import Report
from kafila.rendezvous.client import RendezvousClient
from kafila.session.code import Code, parse_code, vocabulary
from kafila.session.events import CodeReady, Event, HostConfirmed, MemberLeft, ReportSent
from kafila.session.host import host_session
from kafila.session.member import join_session
from kafila.session.timing import measure_rtt
from tests.rendezvous.lan import Lan
from tests.session.samples import MANIFEST, report

MakeReport = Callable[[Manifest | None, Knocker], Awaitable[Report]]


class Party:
    """A host and whoever joins it."""

    def __init__(self, lan: Lan) -> None:
        self.lan = lan
        self.events: list[Event] = []
        self._happened = asyncio.Event()

    def on_event(self, event: Event) -> None:
        self.events.append(event)
        self._happened.set()

    async def host(self, members: int, name: str = "hanna") -> asyncio.Task[list[Report]]:
        """A host that has its code."""
        client = await self.lan.client(name)
        who = self.lan.identity(name)
        own = report(name, who.key, who.exchange_key)
        task = asyncio.create_task(host_session(client, who, own, MANIFEST, members, self.on_event))
        await self.until(CodeReady)
        return task

    async def until(self, kind: type[Event]) -> None:
        async with asyncio.timeout(10):
            while not any(isinstance(event, kind) for event in self.events):
                self._happened.clear()
                await self._happened.wait()

    @property
    def code(self) -> Code:
        (ready,) = (event for event in self.events if isinstance(event, CodeReady))
        return parse_code(ready.code)

    @property
    def wrong_code(self) -> Code:
        last = next(word for word in vocabulary() if word != self.code.words[-1])
        return Code(self.code.number, (*self.code.words[:-1], last))

    async def join(
        self,
        name: str,
        code: Code | None = None,
        make_report: MakeReport | None = None,
        home: str | None = None,
    ) -> None:
        client = await self.lan.client(home or name)
        who = self.lan.identity(home or name)

        async def measured(manifest: Manifest | None, _: Knocker) -> Report:
            assert manifest == MANIFEST
            return report(name, who.key, who.exchange_key)

        await join_session(
            client, who, code or self.code, name, make_report or measured, self.on_event
        )
        await client.close()


@pytest.fixture
async def party(tmp_path: Path) -> AsyncIterator[Party]:
    async with Lan(tmp_path) as lan:
        yield Party(lan)


async def measure_for_ever(manifest: Manifest | None, _: Knocker) -> Report:
    await asyncio.Event().wait()
    raise AssertionError


async def test_three_members_and_a_rendezvous_that_learns_nothing(
    party: Party, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[bytes] = []
    real = Connection.send

    def recorded(self: Connection, channel: int, message: bytes) -> None:
        seen.append(message)
        real(self, channel, message)

    monkeypatch.setattr(Connection, "send", recorded)
    host = await party.host(3)
    await asyncio.gather(party.join("anna"), party.join("bert"))
    reports = await host
    assert [r.name for r in reports] in (["hanna", "anna", "bert"], ["hanna", "bert", "anna"])
    for made in reports:
        who = party.lan.identity(made.name)
        assert made == report(made.name, who.key, who.exchange_key)
    assert any(isinstance(event, HostConfirmed) and event.host == "hanna" for event in party.events)
    assert sum(isinstance(event, ReportSent) for event in party.events) == 2
    everything = b"".join(seen)
    assert b"sealed" in everything
    for secret in (b"processor of anna", b"bandwidth", MANIFEST.name.encode(), party.code.password):
        assert secret not in everything


async def test_a_wrong_code_fails_alone(party: Party) -> None:
    host = await party.host(2)
    with pytest.raises(IdentityProblem, match="words of the code are wrong"):
        await party.join("guesser", party.wrong_code)
    await party.join("anna")
    assert [r.name for r in await host] == ["hanna", "anna"]


async def test_a_surplus_member_is_told(party: Party) -> None:
    host = await party.host(3)
    gate = asyncio.Event()

    async def slowly(manifest: Manifest | None, _: Knocker) -> Report:
        await gate.wait()
        return report("anna", party.lan.identity("anna").key)

    anna = asyncio.create_task(party.join("anna", make_report=slowly))
    await party.until(HostConfirmed)
    await party.join("bert")
    with pytest.raises(IdentityProblem, match="for 3 members and they have all joined"):
        await party.join("cleo")
    gate.set()
    await anna
    await host
    with pytest.raises(IdentityProblem, match="is over: all its 3 members reported"):
        await party.join("dora")


async def test_a_duplicate_name_is_told_before_measuring(party: Party) -> None:
    host = await party.host(2)
    with pytest.raises(UsageProblem, match="--name"):
        await party.join("hanna", make_report=measure_for_ever, home="another hanna")
    await party.join("hanna2", home="another hanna")
    assert [r.name for r in await host] == ["hanna", "hanna2"]


async def test_a_host_that_leaves(party: Party) -> None:
    host = await party.host(2)
    joiner = asyncio.create_task(party.join("anna", make_report=measure_for_ever))
    await party.until(HostConfirmed)
    await party.lan.unplug(party.lan.nodes[0])
    with pytest.raises(NetworkProblem, match="its host has left"):
        await joiner
    host.cancel()
    await asyncio.gather(host, return_exceptions=True)


async def test_a_host_that_is_stopped_says_so(party: Party) -> None:
    host = await party.host(2)
    joiner = asyncio.create_task(party.join("anna", make_report=measure_for_ever))
    await party.until(HostConfirmed)
    host.cancel()
    with pytest.raises(NetworkProblem, match="the session is over: its host was stopped"):
        await joiner


async def test_a_member_that_dropped_joins_again(party: Party) -> None:
    host = await party.host(2)
    first = asyncio.create_task(party.join("anna", make_report=measure_for_ever))
    await party.until(HostConfirmed)
    first.cancel()
    await party.lan.unplug(party.lan.nodes[-1])
    await party.until(MemberLeft)
    await party.join("anna")
    assert [r.name for r in await host] == ["hanna", "anna"]


async def test_guesses_void_the_code(party: Party, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(d, "PAKE_GRID", 0.001)
    monkeypatch.setattr(d, "GUESSES", 5)
    host = await party.host(2)
    guesses = [party.join(f"guesser-{i}", party.wrong_code) for i in range(5)]
    outcomes = await asyncio.gather(*guesses, return_exceptions=True)
    assert all(isinstance(outcome, IdentityProblem) for outcome in outcomes)
    with pytest.raises(IdentityProblem, match="void after 5 wrong guesses"):
        await host
    with pytest.raises(IdentityProblem, match="void"):
        await party.join("anna")


async def test_a_session_whose_time_ran_out(party: Party, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(d, "CODE_SECONDS", 0.5)
    host = await party.host(3)
    with pytest.raises(NetworkProblem, match="2 reports missing"):
        await host


async def test_a_host_waits_for_its_first_joiner(
    party: Party, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A code is good for minutes; nothing need be heard until it is used."""
    with monkeypatch.context() as soon:
        soon.setattr(d, "STEP_SECONDS", 0.2)
        host = await party.host(2)
        await asyncio.sleep(0.6)
        assert not host.done()
    await party.join("anna")
    assert [r.name for r in await host] == ["hanna", "anna"]


async def test_a_member_may_measure_for_longer_than_a_step(
    party: Party, monkeypatch: pytest.MonkeyPatch
) -> None:
    host = await party.host(3)

    async def slowly(manifest: Manifest | None, _: Knocker) -> Report:
        monkeypatch.setattr(d, "STEP_SECONDS", 0.2)
        await asyncio.sleep(0.6)
        monkeypatch.undo()
        return report("anna", party.lan.identity("anna").key)

    await party.join("anna", make_report=slowly)
    await party.join("bert")
    assert len(await host) == 3


async def test_a_host_keeps_its_reports_when_the_rendezvous_goes_at_the_end(
    party: Party, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def gone(self: RendezvousClient, text: str) -> None:
        raise NetworkProblem("the connection to the rendezvous is gone")

    monkeypatch.setattr(RendezvousClient, "end", gone)
    host = await party.host(2)
    await party.join("anna")
    assert [r.name for r in await host] == ["hanna", "anna"]


async def test_a_session_has_at_least_two_members(party: Party) -> None:
    with pytest.raises(UsageProblem, match="2 to"):
        await host_session(
            await party.lan.client("anna"),
            party.lan.identity("anna"),
            report("anna", party.lan.identity("anna").key),
            None,
            1,
            party.on_event,
        )


async def test_an_unknown_session(party: Party) -> None:
    with pytest.raises(IdentityProblem, match="no session 999 here"):
        await party.join("anna", parse_code("999-amber-falcon-canyon"))


async def test_a_measurement_that_fails_is_the_members_own_error(party: Party) -> None:
    host = await party.host(2)

    async def broken(manifest: Manifest | None, _: Knocker) -> Report:
        raise NetworkProblem("the rendezvous did not answer")

    with pytest.raises(NetworkProblem, match="did not answer"):
        await party.join("anna", make_report=broken)
    host.cancel()
    await asyncio.gather(host, return_exceptions=True)


async def test_round_trips(party: Party) -> None:
    node = await party.lan.node("anna")
    median, spread = await measure_rtt(node, party.lan.rendezvous.address)
    assert 0 < median < 5_000_000
    assert spread >= 0
