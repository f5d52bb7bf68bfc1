"""The classifier over real sockets: members on loopback addresses of their own."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from kafila.address import Address
from kafila.net.node import Node
from kafila.net.reflecting import Answer, decode
from kafila.net.udp import Udp
from kafila.probe.netcheck import Netcheck
from kafila.rendezvous.client import RendezvousClient
from kafila.rendezvous.messages import Reflector
from kafila.session import messages as say
from kafila.session.helping import Helping
from tests.rendezvous.lan import Lan

EI, AD = "endpoint-independent", "address-dependent"


class Members:
    """Members at 127.0.0.2, 127.0.0.3, ..., each seen as another address by the rendezvous."""

    def __init__(self, lan: Lan) -> None:
        self.lan = lan
        self.nets: list[Netcheck] = []

    async def join(self, stun: tuple[Address, ...] = ()) -> Netcheck:
        host = f"127.0.0.{len(self.nets) + 2}"
        node = await Node.open(self.lan.identity(host), host, 0)
        self.lan.nodes.append(node)
        client = await self.lan.dial(node)
        net = Netcheck(node, client, self.lan.rendezvous.address, stun)
        self.nets.append(net)
        return net


@pytest.fixture
async def members(tmp_path: Path) -> AsyncIterator[Members]:
    async with Lan(tmp_path) as lan:
        made = Members(lan)
        yield made
        for net in made.nets:
            net.close()


async def test_without_a_nat(members: Members, monkeypatch: pytest.MonkeyPatch) -> None:
    """Were loopback addresses public; in its own network a machine cannot tell."""
    net = await members.join()
    await net.classify()
    nat, verdict = net.nat(), net.verdict()
    assert (nat.mapping, nat.filtering) == (EI, AD)
    assert (nat.public, nat.blocked, verdict.translated) == ("127.0.0.2", False, False)
    assert (nat.translated, nat.kind) == (None, "ordinary")
    monkeypatch.setattr("kafila.probe.netcheck.private", lambda host: False)
    nat = net.nat()
    assert (nat.translated, nat.kind) == (False, "none")
    assert not net.carrier_grade
    assert await net.largest_datagram() == 8900


@pytest.mark.parametrize(
    ("seen", "carriers"),
    [
        ("100.64.0.0", True),
        ("100.127.255.255", True),
        ("100.63.255.255", False),
        ("100.128.0.0", False),
    ],
)
async def test_seen_in_a_carriers_network(
    members: Members, monkeypatch: pytest.MonkeyPatch, seen: str, carriers: bool
) -> None:
    """By a rendezvous that stands in it, as a neighbour's may."""
    reflection = members.lan.rendezvous.registry.reflection
    asked = reflection.asked

    def inside(datagram: bytes, source: Address, now: float) -> list[tuple[int, bytes]]:
        answers = []
        for port, data in asked(datagram, source, now):
            answer = decode(data)
            assert isinstance(answer, Answer)
            answers.append((port, replace(answer, observed=(seen, source[1])).encode()))
        return answers

    monkeypatch.setattr(reflection, "asked", inside)
    net = await members.join()
    await net.classify()
    assert net.nat().public == seen
    assert net.carrier_grade is carriers


def acquainted(one: Netcheck, other: Netcheck) -> tuple[Helping, Helping]:
    """Both sides of a help, without the mail between them."""
    sides: list[Helping] = []
    loop = asyncio.get_running_loop()

    def post(message: say.Helping, to: int) -> None:
        assert say.decode_plain(message.encode()) == message
        loop.call_soon(lambda: sides[to].hear(message))

    sides += [Helping(partial(post, to=1), one.doors), Helping(partial(post, to=0), other.doors)]
    return sides[0], sides[1]


async def test_a_stranger_shows_that_nothing_is_filtered(members: Members) -> None:
    net, other = await members.join(), await members.join()
    mine, theirs = acquainted(net, other)
    await net.classify()
    wanted = net.wants_stranger
    await net.meet(mine)
    assert (net.nat().mapping, net.nat().filtering) == (EI, EI)
    assert (wanted, net.wants_stranger) == (True, False)
    await theirs.settled()
    for each in (mine, theirs):
        await each.close()


async def test_a_member_at_the_same_address_is_no_stranger(members: Members) -> None:
    net = await members.join()
    mine, theirs = acquainted(net, net)
    await net.classify()
    await net.meet(mine)
    assert net.nat().filtering == AD
    for each in (mine, theirs):
        await each.close()


async def test_who_does_not_help_or_answer_costs_nothing(members: Members) -> None:
    net = await members.join()
    await net.classify()
    sides: list[Helping] = []
    loop = asyncio.get_running_loop()

    def post(message: say.Helping, to: int) -> None:
        loop.call_soon(lambda: sides[to].hear(message))

    sides += [Helping(partial(post, to=to), None) for to in (1, 0)]
    await net.meet(sides[0])
    assert net.nat().filtering == AD
    mute = Helping(lambda message: None, None)
    meeting = asyncio.create_task(net.meet(mute))
    await asyncio.sleep(0)
    await mute.close()
    await meeting
    assert net.nat().filtering == AD


async def test_silence(members: Members, monkeypatch: pytest.MonkeyPatch) -> None:
    """A rendezvous whose cookies are none, and a STUN server that nobody runs."""
    net = await members.join(stun=(("127.0.0.9", 9), ("no.such.host.invalid", 9)))

    async def offer(self: RendezvousClient) -> Reflector:
        return Reflector(cookie="00" * 16, port=self.address[1], stun=())

    monkeypatch.setattr(RendezvousClient, "reflector", offer)
    await net.classify()
    nat = net.nat()
    assert (nat.mapping, nat.filtering, nat.public) == ("unknown", "unknown", None)
    assert (nat.translated, nat.kind) == (None, "unknown")
    assert not nat.blocked  # the connection to the rendezvous is UDP
    assert await net.largest_datagram() is None


async def test_knocks_go_to_other_members_only(members: Members) -> None:
    net = await members.join()
    standing = await net.doors.stand()
    assert standing is not None
    udp, where = standing
    listener = Udp("127.0.0.2", 0)
    try:
        doors = [
            ("224.0.0.1", 5),
            ("0.0.0.0", 5),
            ("255.255.255.255", 5),
            ("192.0.2.1", 5),
            listener.address,
        ]
        assert await net.doors.knock(udp, where, doors, b"12345678") == []
        assert list(listener.drain()) == []
    finally:
        listener.close()
        net.doors.leave(udp)
