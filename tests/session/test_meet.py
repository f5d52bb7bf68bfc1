"""Members of a plan meet through a real rendezvous and form their ring on loopback."""

import asyncio
import math
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from kafila import defaults as d
from kafila.errors import IdentityProblem, NetworkProblem
from kafila.net.edge import Edge
from kafila.net.identity import Identity
from kafila.planfile import PlanFile
from kafila.rendezvous.messages import Gone, Present
from kafila.session.edges import form_edges, part
from kafila.session.events import Event, Met, OtherPlan, Waiting
from kafila.session.meet import Meeting, ring_index
from kafila.session.record import Self, sign
from tests.session.ring import NAMES, Ends, Town
from tests.session.samples import plan

NOW = 1000.0


@pytest.fixture
async def town(tmp_path: Path) -> AsyncIterator[Town]:
    async with Town(tmp_path) as opened:
        yield opened


async def ring(town: Town, size: int) -> list[Ends]:
    made = town.plan(size)
    return await asyncio.gather(*(town.member(made, me) for me in range(size)))


async def around(ends: list[Ends], frame: bytes) -> list[int]:
    """Pass a frame from the head all round; the members it came to, in order."""
    visited: list[int] = []
    home = asyncio.Event()

    def at(me: int) -> None:
        visited.append(me)
        following = ends[me][1]
        if me == 0:
            home.set()
        else:
            assert following is not None
            following.send(3, frame)

    for me, (previous, _) in enumerate(ends):
        assert previous is not None

        def heard(channel: int, message: bytes, me: int = me) -> None:
            assert (channel, message) == (3, frame)
            at(me)

        previous.on_message = heard
    first = ends[0][1]
    assert first is not None
    first.send(3, frame)
    async with asyncio.timeout(20):
        await home.wait()
    return visited


@pytest.mark.parametrize("size", [2, 3, 4, 5])
async def test_a_ring_forms_and_a_frame_goes_round(town: Town, size: int) -> None:
    ends = await ring(town, size)
    assert await around(ends, b"hidden state" * 1000) == [*range(1, size), 0]
    for previous, following in ends:
        assert (previous is following) == (size == 2)


async def test_an_edge_that_does_not_come_up_is_named(town: Town) -> None:
    made = town.plan(3)
    nodes = [await town.node(entry.name) for entry in made.ring]
    presences = [await town.presence(made, me, node=node) for me, node in enumerate(nodes)]
    peers = await asyncio.gather(*(presence.meet(20) for presence in presences))
    await presences[2].close()
    await town.unplug(nodes[2])
    outcomes = await asyncio.gather(
        *(
            form_edges(nodes[me], made, me, peers[me], relays=presences[me].relays, timeout=1)
            for me in (0, 1)
        )
    )
    for outcome, other in zip(outcomes, (1, 0), strict=True):
        assert isinstance(outcome[other], Edge)
        assert isinstance(outcome[2], NetworkProblem)
        assert made.ring[2].name in str(outcome[2])
        await part(outcome.values())
    # both can be tried again at once, so nothing of the first try is left
    again = await asyncio.gather(
        *(
            form_edges(nodes[me], made, me, peers[me], relays=presences[me].relays, timeout=1)
            for me in (0, 1)
        )
    )
    for outcome, other in zip(again, (1, 0), strict=True):
        edge = outcome[other]
        assert isinstance(edge, Edge)
        assert not edge.closed


async def test_members_say_for_whom_they_wait(town: Town) -> None:
    made = town.plan(3)
    events: list[Event] = []
    told = asyncio.Event()

    def on_event(event: Event) -> None:
        events.append(event)
        told.set()

    first = asyncio.create_task(town.member(made, 0, on_event=on_event))
    await told.wait()
    names = tuple(entry.name for entry in made.ring)
    assert events == [Waiting(names[1:])]
    assert str(events[0]) == f"waiting for {names[1]} and {names[2]}"
    await asyncio.gather(first, town.member(made, 1), town.member(made, 2))
    assert [event for event in events if isinstance(event, Met)] in (
        [Met(names[1]), Met(names[2])],
        [Met(names[2]), Met(names[1])],
    )


async def test_who_does_not_come_is_named(town: Town) -> None:
    made = town.plan(3)
    waiting = (town.member(made, me, timeout=0.5) for me in (0, 1))
    problems = await asyncio.gather(*waiting, return_exceptions=True)
    for problem in problems:
        assert isinstance(problem, NetworkProblem)
        assert made.ring[2].name in str(problem)
        assert made.ring[1].name not in str(problem)


async def test_another_plan_is_told_by_name(town: Town, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(d, "OTHER_PLAN_SECONDS", 0.3)
    one, other = town.plan(2), town.plan(2, context=1024)
    assert one.digest != other.digest
    outcomes = await asyncio.gather(
        town.member(one, 0), town.member(other, 1), return_exceptions=True
    )
    for outcome, name in zip(outcomes, (one.ring[1].name, one.ring[0].name), strict=True):
        assert isinstance(outcome, IdentityProblem)
        assert f"{name} has another plan" in str(outcome)
        assert "same plan file" in str(outcome)


async def test_the_plan_of_a_dead_process_does_not_stop_the_next(
    town: Town, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed, it is still there for the rendezvous; started anew, it must first prove that."""
    monkeypatch.setattr(d, "PROOF_OF_LIFE", 0.2)
    old, new = town.plan(3), town.plan(3, context=1024)
    bert = next(i for i, entry in enumerate(old.ring) if entry.name == "bert")
    node = await town.node("bert")
    waiting = asyncio.Event()
    presence = await town.presence(old, bert, lambda event: waiting.set(), node)
    meeting = asyncio.create_task(presence.meet(20))
    await waiting.wait()
    asyncio.get_running_loop().remove_reader(node.udp.socket)  # it hears nothing any more
    meeting.cancel()
    told = asyncio.Event()
    events: list[Event] = []

    def on_event(event: Event) -> None:
        events.append(event)
        if isinstance(event, OtherPlan):
            told.set()

    others = [
        asyncio.create_task(town.member(new, i, on_event=on_event)) for i in range(3) if i != bert
    ]
    await told.wait()
    ends = await asyncio.gather(town.member(new, bert), *others)
    assert all(edge is not None and not edge.closed for pair in ends for edge in pair)
    (line,) = {str(event) for event in events if isinstance(event, OtherPlan)}
    assert line.startswith("bert has another plan (")
    assert "waiting 20 s for it to start with this one" in line


async def test_everybody_learns_that_plans_differ(
    town: Town, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also who came late and would wait on, since both the others are gone then."""
    monkeypatch.setattr(d, "OTHER_PLAN_SECONDS", 0.5)
    one, other = town.plan(3), town.plan(3, context=1024)
    odd = next(i for i, entry in enumerate(one.ring) if entry.name == "bert")
    first, last = (i for i in range(3) if i != odd)
    seen = asyncio.Event()

    def on_event(event: Event) -> None:
        if isinstance(event, OtherPlan):
            seen.set()

    early = [
        asyncio.create_task(town.member(one, first, on_event=on_event)),
        asyncio.create_task(town.member(other, odd)),
    ]
    await seen.wait()
    monkeypatch.setattr(d, "OTHER_PLAN_SECONDS", 600)
    late = asyncio.create_task(town.member(one, last, timeout=600))
    async with asyncio.timeout(20):
        outcomes = await asyncio.gather(*early, late, return_exceptions=True)
    for outcome in outcomes:
        assert isinstance(outcome, IdentityProblem)
        assert "same plan file" in str(outcome)
    assert "bert has another plan" in str(outcomes[0])
    assert "bert has another plan" in str(outcomes[2])


async def test_a_machine_that_is_not_in_the_plan(town: Town) -> None:
    made = town.plan(2)
    stranger = town.identity("stranger")
    with pytest.raises(IdentityProblem, match="not in the plan; its members are") as problem:
        ring_index(made, stranger.key)
    assert all(name in str(problem.value) for name in NAMES[:2])
    assert ring_index(made, town.identity("bert").key) == [e.name for e in made.ring].index("bert")


# --- a meeting alone, with a rendezvous that lies ----------------------------------------------


def identities(folder: Path) -> dict[str, Identity]:
    return {name: Identity.load_or_create(folder / name) for name in NAMES[:3]}


def present(who: Identity, made: PlanFile, signer: Identity | None = None) -> Present:
    places = (("127.0.0.1", 4711),)
    mine = Self(bytes.fromhex(made.session.id), made.digest, places, b"n" * 32)
    return Present(key=who.key.hex(), record=sign(signer or who, mine))


def test_members_come_go_and_move(tmp_path: Path) -> None:
    people = identities(tmp_path)
    made = plan(list(people.items()))
    meeting = Meeting(made, 0)
    other = made.ring[1].name
    assert meeting.hear(present(people[other], made), NOW) == Met(other)
    assert meeting.missing == (made.ring[2].name,)
    peer = meeting.peers[1]
    assert (peer.name, peer.key) == (other, people[other].key)
    assert peer.certificate == people[other].certificate
    assert list(peer.candidates) == [("127.0.0.1", 4711)]
    assert peer.nonce == b"n" * 32
    assert meeting.hear(Gone(key=people[other].key.hex()), NOW) is None
    assert len(meeting.missing) == 2


def test_who_was_there_for_another_rendezvous_counts_no_more(tmp_path: Path) -> None:
    people = identities(tmp_path)
    made = plan(list(people.items()))
    meeting = Meeting(made, 0)
    one, other = made.ring[1].name, made.ring[2].name
    meeting.hear(present(people[one], made), NOW)
    meeting.hear(present(people[other], plan(list(people.items()), context=1024)), NOW)
    meeting.forget()
    assert meeting.missing == (one, other)
    assert (meeting.patience, meeting.conflict()) == (math.inf, None)


def test_another_plan_is_waited_on_until_it_is_replaced_or_gone(tmp_path: Path) -> None:
    people = identities(tmp_path)
    made = plan(list(people.items()))
    edited = plan(list(people.items()), context=1024)
    meeting = Meeting(made, 0)
    name = made.ring[1].name
    assert meeting.patience == math.inf
    told = meeting.hear(present(people[name], edited), NOW)
    assert isinstance(told, OtherPlan)
    assert (told.name, told.theirs) == (name, edited.digest.hex())
    assert meeting.patience == NOW + d.OTHER_PLAN_SECONDS
    assert len(meeting.missing) == 2
    assert meeting.hear(present(people[name], made), NOW + 1) == Met(name)
    assert (meeting.patience, meeting.conflict()) == (math.inf, None)
    meeting.hear(present(people[name], edited), NOW + 2)
    assert len(meeting.missing) == 2
    assert name in str(meeting.conflict())
    meeting.hear(Gone(key=people[name].key.hex()), NOW + 3)
    assert (meeting.patience, meeting.conflict()) == (math.inf, None)


def test_a_member_that_gave_up_is_believed(tmp_path: Path) -> None:
    people = identities(tmp_path)
    made = plan(list(people.items()))
    edited = plan(list(people.items()), context=1024)
    name, odd = (entry.name for entry in made.ring[1:])
    meeting = Meeting(made, 0)
    meeting.hear(present(people[name], made), NOW)
    with pytest.raises(IdentityProblem, match=f"{name} ended .* same plan file"):
        meeting.hear(Gone(key=people[name].key.hex(), misfit=True), NOW)
    meeting.hear(present(people[odd], edited), NOW)
    with pytest.raises(IdentityProblem, match=f"^{odd} has another plan"):
        meeting.hear(Gone(key=people[name].key.hex(), misfit=True), NOW)


def test_a_record_signed_by_somebody_else(tmp_path: Path) -> None:
    people = identities(tmp_path)
    made = plan(list(people.items()))
    meeting = Meeting(made, 0)
    with pytest.raises(IdentityProblem, match="signature"):
        meeting.hear(present(people["bert"], made, signer=people["cleo"]), NOW)


def test_a_member_that_nobody_planned(tmp_path: Path) -> None:
    people = identities(tmp_path)
    made = plan(list(people.items()))
    stranger = Identity.load_or_create(tmp_path / "stranger")
    with pytest.raises(IdentityProblem, match="not in the plan"):
        Meeting(made, 0).hear(present(stranger, made), NOW)


def test_a_member_whose_exchange_key_is_not_the_planned_one(tmp_path: Path) -> None:
    people = identities(tmp_path)
    made = plan(list(people.items()))
    bert = people["bert"]
    entry = made.ring[ring_index(made, bert.key)]
    altered = tuple(
        e.model_copy(update={"exchange_key": "0" * 64}) if e is entry else e for e in made.ring
    )
    planned = made.model_copy(update={"ring": altered})
    with pytest.raises(IdentityProblem, match="does not fit the plan"):
        Meeting(planned, 0).hear(present(bert, planned), NOW)
