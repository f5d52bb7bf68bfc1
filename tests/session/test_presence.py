"""A member's place at the rendezvous: kept, lost, found again; edges by way of the relay."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafila import defaults as d
from kafila.address import parse_address
from kafila.net.identity import Identity
from kafila.net.node import Node
from kafila.net.punching import Punch
from kafila.planfile import Edges
from kafila.probe.report import Nat
from kafila.processes import Processes
from kafila.session.edges import part, punch, settle
from kafila.session.events import RendezvousBack, RendezvousLost, Unrelayed
from kafila.session.presence import pause
from tests.session.ring import Pair, Town, misplace
from tests.session.samples import plan as planned


@pytest.fixture
async def town(tmp_path: Path) -> AsyncIterator[Town]:
    async with Town(tmp_path) as opened:
        yield opened


@given(st.integers(0, 10_000), st.floats(0, 1))
def test_pauses_grow_to_a_bound_and_differ(tries: int, share: float) -> None:
    longest = pause(tries, 0)
    assert longest / 2 <= pause(tries, share) <= longest <= d.REDIAL_MOST
    assert longest <= pause(tries + 1, 0)
    assert pause(0, 0) == d.REDIAL


async def test_a_direct_edge_does_not_need_the_rendezvous(town: Town) -> None:
    pair = Pair(town)
    await pair.open()
    await asyncio.gather(*(settle(pair.plan, me, {1 - me: pair.edges[me]}) for me in (0, 1)))
    await pair.until("direct")
    assert not pair.count(Unrelayed)
    await town.stop()
    await pair.told(RendezvousLost, 2)
    await pair.exchange(b"while it is gone")
    await asyncio.sleep(1)  # several tries in vain
    assert pair.count(RendezvousLost) == 2
    assert pair.count(RendezvousBack) == 0
    await town.start()
    await pair.told(RendezvousBack, 2)
    await pair.exchange(b"when it is back")
    assert pair.count(RendezvousLost) == 2


async def test_a_relayed_edge_lives_through_a_restart(
    town: Town, monkeypatch: pytest.MonkeyPatch
) -> None:
    pair = Pair(town)
    await pair.open(lambda node: misplace(node, monkeypatch))
    assert [edge.path.kind for edge in pair.edges] == ["relayed", "relayed"]
    assert all(edge.why for edge in pair.edges)
    await pair.exchange(b"through the relay")
    await town.stop()
    await asyncio.sleep(1)
    await town.start()
    await pair.exchange(b"through the next one")
    await pair.told(RendezvousBack, 2)
    assert not any(edge.closed for edge in pair.edges)
    assert pair.count(RendezvousLost) == 2


async def test_an_edge_learns_where_its_peer_is_now(
    town: Town, monkeypatch: pytest.MonkeyPatch
) -> None:
    pair = Pair(town)
    with monkeypatch.context() as patch:
        await pair.open(lambda node: misplace(node, patch))
        assert [edge.path.kind for edge in pair.edges] == ["relayed", "relayed"]
    await town.stop()
    await town.start()  # both enter anew, with records that are right
    await pair.until("direct")
    await pair.exchange(b"directly")


async def test_a_member_that_is_seen_elsewhere_says_so(
    town: Town, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its NAT maps it anew, say: what the relay then tells its carrier is told here by hand."""
    pair = Pair(town)
    with monkeypatch.context() as patch:
        await pair.open(lambda node: misplace(node, patch))
    assert [edge.path.kind for edge in pair.edges] == ["relayed", "relayed"]
    relayed = pair.presences[0].relays[1]
    assert relayed.on_moved is not None
    relayed.on_moved(relayed)
    await pair.until("direct")
    assert not pair.count(RendezvousLost)


async def test_news_of_both_flows_may_come_at_once(
    town: Town, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second while the first still wakes who waits."""
    pair = Pair(town)
    await pair.open(lambda node: misplace(node, monkeypatch))
    loop = asyncio.get_running_loop()
    failed: list[object] = []
    monkeypatch.setattr(loop, "call_exception_handler", failed.append)
    relayed = pair.presences[0].relays[1]
    assert relayed.on_moved is not None
    for _ in range(5):
        loop.call_soon(relayed.on_moved, relayed)
        await asyncio.sleep(0)
    await pair.exchange(b"all is well")
    assert not failed


async def test_grants_are_renewed_before_they_end(
    town: Town, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(d, "RELAY_GRANT_SECONDS", 2.0)
    pair = Pair(town)
    await pair.open(lambda node: misplace(node, monkeypatch))
    relayed = pair.presences[0].relays[1]
    first = relayed.grant
    async with asyncio.timeout(20):
        while relayed.grant.expires < first.expires + 2:  # noqa: ASYNC110
            await asyncio.sleep(0.05)
    assert (relayed.grant.flow, relayed.grant.side) == (first.flow, first.side)
    await pair.exchange(b"under another grant")
    assert not pair.count(RendezvousLost)


async def test_a_rendezvous_that_was_killed(
    town: Town, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It says no goodbye; that another process is there is noticed by the relay first."""
    with Processes(tmp_path) as processes:
        words = ("-m", "kafila", "rendezvous", "--home", "rendezvous", "--second-port", "0")
        processes.start("rendezvous", *words, "--listen", "127.0.0.1:0")
        line = await asyncio.to_thread(processes.line, "rendezvous", 30.0)
        town.address = parse_address(line.split()[1])
        pair = Pair(town)
        await pair.open(lambda node: misplace(node, monkeypatch))
        process = processes["rendezvous"]
        process.kill()
        await asyncio.to_thread(process.wait)
        processes.start("next", *words, "--listen", line.split()[1])
        await pair.exchange(b"through the next one")
        await pair.told(RendezvousBack, 2)
        assert {str(each) for each in pair.events if isinstance(each, RendezvousLost)} == {
            "the rendezvous was started anew; it is dialled again, and direct edges do not need it"
        }
        assert not any(edge.closed for edge in pair.edges)
        await part(pair.edges)


async def test_a_member_without_udp(town: Town, monkeypatch: pytest.MonkeyPatch) -> None:
    """Registration and edge go through the tunnel, also after a restart."""
    pair = Pair(town)

    def blocked(*_: object) -> None:
        """Nothing gets out."""

    def block(node: Node) -> None:
        if node is pair.nodes[0]:
            monkeypatch.setattr(node.udp, "send", blocked)
            misplace(node, monkeypatch)

    await pair.open(block)
    assert [bool(presence.servers) for presence in pair.presences] == [False, True]
    assert [edge.path.kind for edge in pair.edges] == ["relayed", "relayed"]
    await pair.exchange(b"through the tunnel")
    await town.stop()
    await town.start()
    await pair.told(RendezvousBack, 2)
    await pair.exchange(b"through the next one")
    assert not any(edge.closed for edge in pair.edges)


async def test_another_rendezvous_in_its_place(town: Town) -> None:
    """It is not believed; somebody has to be told, and it may yet be put right."""
    pair = Pair(town)
    await pair.open()
    await town.stop()
    await town.start("impostor")
    await pair.told(RendezvousLost, 4)
    words = [str(event) for event in pair.events if isinstance(event, RendezvousLost)]
    assert sum("has key" in line and "not the expected" in line for line in words) == 2
    await town.stop()
    await town.start()
    await pair.told(RendezvousBack, 2)
    assert pair.count(RendezvousLost) == 4


async def test_the_first_key_is_kept_where_the_plan_names_none(town: Town) -> None:
    town.key = None
    pair = Pair(town)
    await pair.open()
    await town.stop()
    await town.start("impostor")
    await pair.told(RendezvousLost, 4)
    assert pair.count(RendezvousBack) == 0


async def test_a_relay_that_is_full_is_no_obstacle(
    town: Town, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(d, "RELAY_FLOWS", 0)
    pair = Pair(town)
    await pair.open()
    lines = {str(each) for each in pair.events if isinstance(each, Unrelayed)}
    assert len(lines) == 2
    assert all("is full" in line for line in lines)
    await pair.exchange(b"directly")


def test_what_a_plan_says_of_punching(tmp_path: Path) -> None:
    people = [(name, Identity.load_or_create(tmp_path / name)) for name in ("anna", "bert")]
    made = planned(people)
    assert punch(made, 0, 1) == Punch()
    nats = (
        Nat(mapping="address-dependent", filtering="endpoint-independent"),
        Nat(mapping="endpoint-independent", filtering="address-and-port-dependent"),
    )
    ring = tuple(
        member.model_copy(update={"measured": member.measured.model_copy(update={"nat": nat})})
        for member, nat in zip(made.ring, nats, strict=True)
    )
    hard = made.model_copy(update={"ring": ring, "edges": Edges(punch="birthday")})
    assert punch(hard, 0, 1) == Punch(birthday=True, dependent=True, peer_filtered=True)
    assert punch(hard, 1, 0) == Punch(birthday=True, filtered=True, peer_dependent=True)
