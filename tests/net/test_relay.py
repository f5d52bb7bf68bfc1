"""Members that talk through a real rendezvous: two nodes, its sockets, its relay."""

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from kafila import defaults as d
from kafila.address import Address
from kafila.errors import NetworkProblem
from kafila.net import dialling
from kafila.net.carrier import Carrier
from kafila.net.datagram import Family
from kafila.net.relay import Relayed
from kafila.net.relaying import FRAME_HEAD, Grant, State, relay_flow
from kafila.probe.report import session_id
from kafila.rendezvous.client import RendezvousClient
from kafila.rendezvous.relay import End
from kafila.rendezvous.server import Rendezvous, Rules
from tests.net.conftest import Inbox, peer
from tests.rendezvous.lan import LOOPBACK, Lan

HIDDEN = b"\x08" + b"a known hidden state" * 100
"""What an edge would send, with the first byte of a check."""


class Member:
    """A node at the rendezvous, its end of the flow to the other member, and what came over it."""

    def __init__(self, lan: Lan, name: str, other: str) -> None:
        self.lan = lan
        self.name = name
        self.keys = [lan.identity(each).key for each in (name, other)]
        self.session = bytes.fromhex(session_id([key.hex() for key in self.keys]))
        self.came: asyncio.Queue[bytes] = asyncio.Queue()

    async def open(self, *, tunnelled: bool = False, edge: bool = False) -> "Member":
        """`edge`: what comes is for an edge to read."""
        self.node = await self.lan.node(self.name)
        if not edge:
            self.node.on_family(Family.CHECK, self._take)
        if tunnelled:  # no UDP gets to it, as through a firewall
            asyncio.get_running_loop().remove_reader(self.node.udp.socket)
        self.client = await self.dial()
        (grant,) = await self.client.relays(self.session, self.keys, self.keys[1:])
        at = self.client.address
        self.relayed = await Relayed.bind(self.node, self.node.carrier(at), at, grant)
        return self

    async def dial(self) -> RendezvousClient:
        return await self.lan.dial(self.node)

    def send(self, datagram: bytes) -> None:
        self.relayed.send(datagram, self.relayed.address)

    async def hear(self) -> bytes:
        async with asyncio.timeout(20):
            return await self.came.get()

    def _take(self, datagram: bytes, carrier: Carrier, source: Address) -> None:
        assert carrier is self.relayed
        assert source == self.relayed.address
        self.came.put_nowait(datagram)


@pytest.fixture
async def lan(tmp_path: Path) -> AsyncIterator[Lan]:
    async with Lan(tmp_path) as opened:
        yield opened


async def until(true: Callable[[], object]) -> None:
    async with asyncio.timeout(20):
        while not true():  # noqa: ASYNC110 (the other side runs in this loop)
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("tunnelled", [(False, False), (True, False), (True, True)])
async def test_datagrams_pass_both_ways(
    lan: Lan, tunnelled: tuple[bool, bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dialling, "TUNNEL_AFTER", 0.1)
    anna = await Member(lan, "anna", "bert").open(tunnelled=tunnelled[0])
    bert = await Member(lan, "bert", "anna").open(tunnelled=tunnelled[1])
    assert bert.relayed.state is State.BOTH
    assert anna.relayed.bound
    assert bert.relayed.rtt_us is not None
    assert bert.relayed.observed == (None if tunnelled[1] else bert.node.address)
    for size in (1, 1200, d.PATH_SIZES[-1]):
        datagram = HIDDEN[:1].ljust(size, b"x")
        anna.send(datagram)
        assert await bert.hear() == datagram
        bert.send(datagram)
        assert await anna.hear() == datagram
    relay = lan.rendezvous.relay
    assert (relay.flows, relay.datagrams) == (1, 6)
    assert set(relay.dropped.values()) == {0}


async def test_datagrams_pass_over_ipv6(tmp_path: Path) -> None:
    async with Lan(tmp_path, host="::1") as lan:
        anna = await Member(lan, "anna", "bert").open()
        bert = await Member(lan, "bert", "anna").open()
        assert anna.relayed.observed == anna.node.address
        anna.send(HIDDEN)
        assert await bert.hear() == HIDDEN


async def test_what_is_no_edges_is_not_taken_out_of_a_frame(lan: Lan) -> None:
    """A frame in a frame, or a rendezvous' own kinds, would be read in another's name."""
    anna = await Member(lan, "anna", "bert").open()
    bert = await Member(lan, "bert", "anna").open()
    flow = relay_flow(anna.session, *anna.keys)
    for strange in (b"\x0b" + flow + HIDDEN, b"\x0c" + flow + bytes(119), b"\x00" * 20, b"\x09"):
        anna.send(strange)
    anna.send(HIDDEN)
    assert await bert.hear() == HIDDEN
    assert bert.came.empty()


async def test_nobody_else_gets_a_frame_in(lan: Lan) -> None:
    anna = await Member(lan, "anna", "bert").open()
    bert = await Member(lan, "bert", "anna").open()
    stranger = await lan.node("stranger")
    frame = b"\x0b" + relay_flow(anna.session, *anna.keys) + HIDDEN
    stranger.udp.send(frame, lan.rendezvous.address)
    stranger.udp.send(frame, bert.node.address)  # past the relay
    await until(lambda: lan.rendezvous.relay.dropped["unbound"])
    anna.send(HIDDEN)
    assert await bert.hear() == HIDDEN
    assert bert.came.empty()


async def test_a_binding_recovers_from_a_restart_of_the_rendezvous(lan: Lan) -> None:
    """Its identity is the same, so the grants still hold; its state is lost."""
    anna = await Member(lan, "anna", "bert").open()
    bert = await Member(lan, "bert", "anna").open()
    restarted: list[Relayed] = []
    for member in (anna, bert):
        member.relayed.on_restart = restarted.append
    await lan.restart()
    for member in (anna, bert):
        member.relayed.refresh()
    await until(lambda: len(restarted) == 2)
    assert lan.rendezvous.relay.flows == 1
    anna.send(HIDDEN)
    assert await bert.hear() == HIDDEN
    client = await anna.dial()
    (grant,) = await client.relays(anna.session, anna.keys, anna.keys[1:])
    anna.relayed.renew(grant)
    assert anna.relayed.grant == grant


async def test_an_end_goes_on_from_another_socket(lan: Lan) -> None:
    anna = await Member(lan, "anna", "bert").open()
    bert = await Member(lan, "bert", "anna").open()
    moved: list[Relayed] = []
    anna.relayed.on_moved = moved.append
    fresh = anna.node.open_socket()
    anna.relayed.move(fresh, anna.relayed.address)
    await until(lambda: moved)
    assert anna.relayed.observed == fresh.address
    bert.send(HIDDEN)
    assert await anna.hear() == HIDDEN


async def test_a_relay_that_is_silent(lan: Lan) -> None:
    node = await lan.node("anna")
    silent = await lan.node("silent")
    grant = Grant(b"b" * 32, b"s" * 32, b"f" * 8, 0, 2**31, b"t" * 16)
    with pytest.raises(NetworkProblem, match="does not answer after 0"):
        await Relayed.bind(node, node.udp, silent.address, grant, timeout=0.3)
    with pytest.raises(NetworkProblem, match="does not honour"):
        await Relayed.bind(node, node.udp, lan.rendezvous.address, grant)
    assert not node.relays


async def test_an_end_that_is_closed_is_silent(lan: Lan) -> None:
    anna = await Member(lan, "anna", "bert").open()
    bert = await Member(lan, "bert", "anna").open()
    bert.relayed.close()
    bert.relayed.close()
    bert.relayed.refresh()
    anna.send(HIDDEN)
    await until(lambda: lan.rendezvous.relay.datagrams)
    assert bert.came.empty()
    with pytest.raises(ValueError, match="bound already"):
        await Relayed.bind(anna.node, anna.node.udp, anna.relayed.address, anna.relayed.grant)


async def test_a_session_that_has_used_up_its_budget_is_told(tmp_path: Path) -> None:
    async with Lan(tmp_path, Rules(relay_budget=3000 / 2**30)) as lan:
        anna = await Member(lan, "anna", "bert").open()
        bert = await Member(lan, "bert", "anna").open()
        for _ in range(3):
            anna.send(HIDDEN[: 1500 - FRAME_HEAD])
        for _ in range(2):
            await bert.hear()
        anna.relayed.refresh()
        await until(lambda: anna.relayed.state is State.SPENT)
        assert bert.came.empty()
        assert anna.relayed.bound


async def test_the_rendezvous_listens_on_tcp_and_a_second_udp_port_too(lan: Lan) -> None:
    rendezvous: Rendezvous = lan.rendezvous
    _, writer = await asyncio.open_connection(LOOPBACK, rendezvous.address[1])
    writer.close()
    (second,) = rendezvous.second.values()
    assert second.address[0] == LOOPBACK
    assert second.address[1] != rendezvous.address[1]


async def test_a_relay_that_records_everything_holds_no_plaintext(lan: Lan) -> None:
    """A hidden state goes over a real edge that has no other path, and is in no frame."""
    anna = await Member(lan, "anna", "bert").open(edge=True)
    bert = await Member(lan, "bert", "anna").open(edge=True)
    recorded: list[bytes] = []
    forward = lan.rendezvous.relay.forward

    def recording(frame: bytes, source: Address, now: float) -> End | None:
        recorded.append(frame)
        return forward(frame, source, now)

    lan.rendezvous.relay.forward = recording  # type: ignore[method-assign, assignment]
    random = Random(4)
    hidden = random.randbytes(8192)
    edges = await asyncio.gather(
        *(
            one.node.edge(
                replace(peer(other.name, other.node), candidates=[]),
                client=one is anna,
                session=one.session,
                digest=b"d" * 32,
                relay=one.relayed,
            )
            for one, other in ((anna, bert), (bert, anna))
        )
    )
    inbox = Inbox(edges[1])
    edges[0].send(3, hidden)
    assert await inbox.wait_for(1) == [(3, hidden)]
    assert edges[1].path.kind == "relayed"
    everything = b"\n".join(recorded)
    assert len(everything) > len(hidden)
    assert not any(hidden[at : at + 8] in everything for at in range(0, len(hidden), 8))
