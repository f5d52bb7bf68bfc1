"""A rendezvous that lies to serving members, and a relay in the middle of their edge."""

import asyncio
import json
import random
from collections.abc import AsyncIterator, Callable, Iterable
from dataclasses import replace
from itertools import chain
from pathlib import Path

import pytest

from kafila import PROTOCOL
from kafila import defaults as d
from kafila.errors import IdentityProblem, KafilaError, NetworkProblem
from kafila.net.channels import Messages, frame
from kafila.net.edge import EDGE_ALPN, PEER, Edge, Peer
from kafila.net.handshake import LARGEST, ClientHandshake, ServerHandshake
from kafila.net.handshake import Terms as EdgeTerms
from kafila.net.identity import Identity
from kafila.net.quic import HANDSHAKE_STREAM, Engine, Opened, Quic, Received, destination
from kafila.net.relaying import FRAME_HEAD
from kafila.planfile import PlanFile
from kafila.rendezvous.messages import Notice, Present, Relays
from kafila.rendezvous.relay import End
from kafila.session.edges import form_edges, part
from kafila.session.record import Self, sign
from tests.session.hostile import HostileTown
from tests.session.ring import Pair, misplace

SECRET = b"a known hidden state" * 200


@pytest.fixture
async def town(tmp_path: Path) -> AsyncIterator[HostileTown]:
    town = HostileTown(tmp_path)
    async with town:
        yield town


# --- records -------------------------------------------------------------------------------------

Lie = Callable[[HostileTown, PlanFile, Present], Present]


def _swapped(town: HostileTown, plan: PlanFile, notice: Present) -> Present:
    """The name of one, the record of another, who is a member too."""
    other = next(member.key for member in plan.ring if member.key != notice.key)
    return notice.model_copy(update={"key": other})


def _altered(field: str, value: object) -> Lie:
    def lie(town: HostileTown, plan: PlanFile, notice: Present) -> Present:
        signed = json.loads(notice.record)
        record = json.loads(signed["record"])
        assert field in record
        signed["record"] = json.dumps({**record, field: value})
        return notice.model_copy(update={"record": json.dumps(signed)})

    return lie


def _of_mallory(*, as_member: bool) -> Lie:
    """A good record of one who is not in the plan, under its own key or a member's."""

    def lie(town: HostileTown, plan: PlanFile, notice: Present) -> Present:
        mallory = town.identity("mallory")
        session = bytes.fromhex(plan.session.id)
        record = sign(mallory, Self(session, plan.digest, (("127.0.0.1", 9),), bytes(32)))
        key = notice.key if as_member else mallory.key.hex()
        return Present(key=key, record=record)

    return lie


def _of_another_session(town: HostileTown, plan: PlanFile, notice: Present) -> Present:
    """What the member itself has signed, for another plan."""
    who = next(member.name for member in plan.ring if member.key == notice.key)
    record = sign(town.identity(who), Self(b"o" * 32, plan.digest, (), bytes(32)))
    return notice.model_copy(update={"record": record})


LIES: dict[str, Lie] = {
    "swapped": _swapped,
    "another nonce": _altered("nonce", "ab" * 32),
    "another address": _altered("candidates", [["127.0.0.1", 9]]),
    "another exchange key": _altered("exchange_key", "ab" * 32),
    "mallory's as a member's": _of_mallory(as_member=True),
    "mallory's as mallory's": _of_mallory(as_member=False),
    "another session's": _of_another_session,
}


@pytest.mark.parametrize("lie", LIES)
async def test_no_record_but_the_members_own_is_believed(town: HostileTown, lie: str) -> None:
    made = town.plan(3)

    def says(number: int, notice: Notice) -> Iterable[tuple[int, Notice]]:
        if isinstance(notice, Present):
            notice = LIES[lie](town, made, notice)
        return [(number, notice)]

    town.hostile.says = says
    presences = [await town.presence(made, me) for me in range(3)]
    outcomes = await asyncio.gather(
        *(presence.meet(2) for presence in presences), return_exceptions=True
    )
    assert all(isinstance(outcome, KafilaError) for outcome in outcomes)
    assert any(isinstance(outcome, IdentityProblem) for outcome in outcomes)


async def test_an_old_record_leads_to_the_right_peer_or_nowhere(town: HostileTown) -> None:
    """Of a process of the same member that is gone: its nonce is not the one of now."""
    made = town.plan(2)

    def says(number: int, notice: Notice) -> Iterable[tuple[int, Notice]]:
        if isinstance(notice, Present):
            record = json.loads(json.loads(notice.record)["record"])
            who = next(member.name for member in made.ring if member.key == notice.key)
            places = tuple((host, port) for host, port in record["candidates"])
            old = Self(bytes.fromhex(made.session.id), made.digest, places, b"o" * 32)
            notice = notice.model_copy(update={"record": sign(town.identity(who), old)})
        return [(number, notice)]

    town.hostile.says = says
    ends = await asyncio.gather(*(town.member(made, me) for me in (0, 1)))
    for me, (edge, _) in enumerate(ends):
        assert edge is not None
        assert edge.peer_key.hex() == made.ring[1 - me].key


@pytest.mark.parametrize("lie", ["one flow for all", "another side", "another neighbour"])
async def test_a_grant_for_another_flow_is_refused(town: HostileTown, lie: str) -> None:
    """What would join a member's two edges, or its edge to itself, at the relay."""

    def says(number: int, notice: Notice) -> Iterable[tuple[int, Notice]]:
        if isinstance(notice, Relays):
            first, second = notice.grants
            second = {
                "one flow for all": second.model_copy(update={"flow": first.flow}),
                "another side": second.model_copy(update={"side": 1 - second.side}),
                "another neighbour": first,
            }[lie]
            notice = Relays(grants=(first, second))
        return [(number, notice)]

    town.hostile.says = says
    presence = await town.presence(town.plan(3), 0)
    with pytest.raises(NetworkProblem, match="other edges than were asked for"):
        await presence.meet(5)
    assert not presence.relays


# --- the relay in the middle ---------------------------------------------------------------------


class Middle:
    """Changes, repeats, holds back and invents frames, as chance has it; keeps all of them."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._old: list[bytes] = []
        self._held: dict[int, bytes] = {}

    def __call__(self, datagram: bytes, end: End) -> Iterable[bytes]:
        """Bursts of trouble: between them the edge gets on."""
        chance = self._random.random()
        self._old.append(datagram)
        if chance < 0.05:  # changed
            place = self._random.randrange(FRAME_HEAD, len(datagram))
            flipped = bytes([datagram[place] ^ 1 << self._random.randrange(8)])
            yield datagram[:place] + flipped + datagram[place + 1 :]
        elif chance < 0.1:  # held back until another overtakes it
            held, self._held[id(end)] = self._held.get(id(end)), datagram
            if held is not None:
                yield held
        elif chance < 0.15:  # lost
            return
        else:
            yield datagram
        if chance > 0.9:  # repeated, of either direction
            head = datagram[:FRAME_HEAD]
            yield head + self._random.choice(self._old)[FRAME_HEAD:]
        if chance > 0.97:
            yield datagram[:FRAME_HEAD] + self._random.randbytes(200)
            yield datagram[:FRAME_HEAD] + b"\x08" + self._random.randbytes(46)


@pytest.mark.parametrize("seed", range(3))
async def test_what_crosses_a_meddling_relay_is_what_was_sent(
    town: HostileTown, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    town.hostile.meddle(Middle(seed))
    pair = Pair(town)
    await pair.open(lambda node: misplace(node, monkeypatch))
    for number in range(10):
        await pair.exchange(bytes([number]) + SECRET)
    assert {edge.path.kind for edge in pair.edges} == {"relayed"}
    for me, edge in enumerate(pair.edges):
        assert edge.peer_key.hex() == pair.plan.ring[1 - me].key
    everything = b"".join(town.hostile.seen)
    assert len(everything) > 10 * len(SECRET)
    assert SECRET[:20] not in everything


class Impostor:
    """One end of an edge, whose frames the relay gives to it instead of to a member.

    It has the plan, every record, and keys of its own.
    """

    def __init__(self, mallory: Identity, member: Peer, victim: Peer, terms: EdgeTerms) -> None:
        self._engine = Engine(mallory, 15.0)
        self._mallory = mallory
        self._member = member
        self._victim = victim
        self._terms = terms
        self._quic: Quic | None = None
        self._handshake: ClientHandshake | ServerHandshake | None = None
        self._said = Messages(LARGEST)
        self.accepted = False

    def speak(self, now: float) -> list[bytes]:
        """As the edge's client: what to send, at first and when nothing has come."""
        if self._quic is None:
            self._quic = self._engine.connect(
                PEER,
                alpn=EDGE_ALPN,
                certificate=self._victim.certificate,
                size=1200,
                window=1 << 20,
                now=now,
            )
            feigned = replace(self._mallory, key=self._member.key)
            self._handshake = ClientHandshake(
                feigned, self._victim.key, self._terms, self._victim.nonce
            )
        elif now >= (self._quic.timer() or now):
            self._quic.handle_timer(now)
        return self._datagrams(now)

    def hear(self, datagram: bytes, now: float) -> list[bytes]:
        """The victim sent this."""
        if datagram[0] < 64:
            return []
        if self._quic is None:
            to = destination(datagram)
            if not to.opens:
                return []
            self._quic = self._engine.accept(
                to.cid, first=to.cid, alpns=[EDGE_ALPN], size=1200, window=1 << 20
            )
            self._handshake = ServerHandshake(self._member.key, self._terms, None)
        self._quic.receive(datagram, PEER, now)
        for event in self._quic.events():
            match event:
                case Opened() if isinstance(self._handshake, ClientHandshake):
                    for message in self._handshake.opening():
                        self._quic.send(HANDSHAKE_STREAM, frame(message))
                case Received(data=data) if isinstance(self._handshake, ClientHandshake):
                    for message in self._said.feed(data):
                        reply = self._handshake.receive(message)
                        if reply is not None:
                            self._quic.send(HANDSHAKE_STREAM, frame(reply))
                    self.accepted = self._handshake.accepted
                case Received():  # the victim's proof: it has taken us for the member
                    self.accepted = True
        return self._datagrams(now)

    def _datagrams(self, now: float) -> list[bytes]:
        assert self._quic is not None
        return [datagram for datagram, _ in chain.from_iterable(self._quic.datagrams(now))]


@pytest.mark.parametrize("feigned", [0, 1], ids=["as its client", "as its server"])
async def test_the_relay_itself_is_nobodys_peer(
    town: HostileTown, feigned: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It answers in the place of a member, whose frames it keeps from the other."""
    monkeypatch.setattr(d, "RELAY_BIND_SECONDS", 5.0)
    victim = 1 - feigned
    made = town.plan(2)
    nodes = [await town.node(member.name) for member in made.ring]
    for node in nodes:
        misplace(node, monkeypatch)
    presences = [await town.presence(made, me, node=node) for me, node in enumerate(nodes)]
    peers = await asyncio.gather(*(presence.meet(20) for presence in presences))
    terms = EdgeTerms(PROTOCOL, bytes.fromhex(made.session.id), made.digest)
    impostor = Impostor(
        town.identity("mallory"), peers[victim][feigned], peers[feigned][victim], terms
    )
    loop = asyncio.get_running_loop()

    def forwards(datagram: bytes, end: End) -> Iterable[bytes]:
        """Neither hears of the other."""
        head, now = datagram[:FRAME_HEAD], loop.time()
        answers: list[bytes] = []
        if end.source[1] != nodes[victim].address[1]:  # from the victim
            answers = impostor.hear(datagram[FRAME_HEAD:], now)
        elif feigned == 0:
            answers = impostor.speak(now)
        for answer in answers:
            town.rendezvous.node.udp.send(head + answer, nodes[victim].address)
        return []

    town.hostile.meddle(forwards)
    outcomes = await asyncio.gather(
        *(
            form_edges(nodes[me], made, me, peers[me], relays=presences[me].relays, timeout=2)
            for me in (0, 1)
        )
    )
    for me, outcome in enumerate(outcomes):
        edge = outcome[1 - me]
        assert not isinstance(edge, Edge)
    await asyncio.gather(*(part(outcome.values()) for outcome in outcomes))
    assert not impostor.accepted
    assert isinstance(outcomes[victim][feigned], IdentityProblem)


@pytest.mark.parametrize("goes_on", [False, True], ids=["one Initial", "a whole handshake"])
async def test_who_comes_first_need_not_be_the_peer(
    town: HostileTown, goes_on: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The relay has spoken to the edge's server, as its client, before the client does."""
    made = town.plan(2)
    nodes = [await town.node(member.name) for member in made.ring]
    for node in nodes:
        misplace(node, monkeypatch)
    presences = [await town.presence(made, me, node=node) for me, node in enumerate(nodes)]
    peers = await asyncio.gather(*(presence.meet(20) for presence in presences))
    terms = EdgeTerms(PROTOCOL, bytes.fromhex(made.session.id), made.digest)
    impostor = Impostor(town.identity("mallory"), peers[1][0], peers[0][1], terms)
    loop = asyncio.get_running_loop()
    spoken: list[bytes] = []

    def forwards(datagram: bytes, end: End) -> Iterable[bytes]:
        head, inside = datagram[:FRAME_HEAD], datagram[FRAME_HEAD:]
        if end.source[1] == nodes[1].address[1]:
            if inside[0] >= 64 and not spoken:
                spoken.extend(impostor.speak(loop.time()))
                yield from (head + each for each in spoken)
        elif goes_on and spoken:
            for answer in impostor.hear(inside, loop.time()):
                town.rendezvous.node.udp.send(head + answer, nodes[1].address)
        yield datagram

    town.hostile.meddle(forwards)
    outcomes = await asyncio.gather(
        *(
            form_edges(nodes[me], made, me, peers[me], relays=presences[me].relays, timeout=20)
            for me in (0, 1)
        )
    )
    there, back = outcomes[0][1], outcomes[1][0]
    assert isinstance(there, Edge)
    assert isinstance(back, Edge)
    assert spoken
    assert not impostor.accepted
    assert back.peer_key.hex() == made.ring[0].key
    home = asyncio.Event()
    back.on_message = back.send
    there.on_message = lambda _, echo: home.set() if echo == SECRET else None
    there.send(1, SECRET)
    async with asyncio.timeout(20):
        await home.wait()
    assert not back.approach.trials
    await asyncio.gather(*(part(outcome.values()) for outcome in outcomes))
