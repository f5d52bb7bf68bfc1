"""Edges that begin at a real rendezvous' relay and move: to a direct path, back to the relay when
that dies, and to a direct path again. No message is lost by it, nor does the connection notice."""

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from kafila.address import Address
from kafila.errors import IdentityProblem, NetworkProblem
from kafila.net.edge import Edge, Peer
from kafila.net.node import Node
from kafila.net.paths import State
from kafila.net.relay import Relayed
from kafila.net.udp import Udp
from kafila.probe.report import session_id
from kafila.rendezvous.client import RendezvousClient
from tests.net.conftest import DIGEST, Inbox, peer
from tests.rendezvous.lan import Lan


class Ring:
    """Two members, introduced: nodes, connections to the rendezvous, ends of their relayed flow."""

    def __init__(self, lan: Lan) -> None:
        self.lan = lan
        self.names = ("anna", "bert")
        self.nodes: list[Node] = []
        self.clients: list[RendezvousClient] = []
        self.relays: list[Relayed] = []
        self.session = os.urandom(32)

    async def open(self) -> None:
        keys = [self.lan.identity(name).key for name in self.names]
        self.session = bytes.fromhex(session_id([key.hex() for key in keys]))
        for name, other in zip(self.names, reversed(keys), strict=True):
            node = await self.lan.node(name)
            client = await self.lan.dial(node)
            (grant,) = await client.relays(self.session, keys, [other])
            at = client.address
            self.nodes.append(node)
            self.clients.append(client)
            self.relays.append(await Relayed.bind(node, node.carrier(at), at, grant))

    def peer(self, me: int, *, candidates: Sequence[Address] | None = None) -> Peer:
        """The other member, as `me` knows it."""
        other = peer(self.names[1 - me], self.nodes[1 - me])
        return other if candidates is None else replace(other, candidates=candidates)

    async def end(
        self,
        me: int,
        *,
        digest: bytes = DIGEST,
        timeout: float = 10,
        candidates: Sequence[Address] | None = None,
    ) -> Edge:
        """Form one end of the edge; anna is the client."""
        return await self.nodes[me].edge(
            self.peer(me, candidates=candidates),
            client=me == 0,
            session=self.session,
            digest=digest,
            timeout=timeout,
            relay=self.relays[me],
            servers=[self.clients[me].address],
        )

    async def join(self) -> tuple[Edge, Edge]:
        first, second = await asyncio.gather(self.end(0), self.end(1))
        return first, second


class Wall:
    """Stands between the two when it is up: then only the rendezvous can be reached."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, rendezvous: Address) -> None:
        self.up = False
        send, send_all = Udp.send, Udp.send_all

        def may(udp: Udp, address: Address) -> bool:
            return not self.up or address == rendezvous or udp.address == rendezvous

        monkeypatch.setattr(
            Udp,
            "send",
            lambda udp, datagram, address, ttl=None: (
                send(udp, datagram, address, ttl) if may(udp, address) else None
            ),
        )
        monkeypatch.setattr(
            Udp,
            "send_all",
            lambda udp, burst, address: (
                send_all(udp, burst, address) if may(udp, address) else None
            ),
        )


@pytest.fixture
async def ring(tmp_path: Path) -> AsyncIterator[Ring]:
    async with Lan(tmp_path) as lan:
        opened = Ring(lan)
        await opened.open()
        yield opened


@pytest.fixture
def wall(ring: Ring, monkeypatch: pytest.MonkeyPatch) -> Wall:
    return Wall(monkeypatch, ring.lan.rendezvous.address)


async def until(true: Callable[[], object], seconds: float = 20) -> None:
    async with asyncio.timeout(seconds):
        while not true():  # noqa: ASYNC110 (the machines run in this loop)
            await asyncio.sleep(0.01)


def state(edge: Edge) -> State:
    return edge.approach.checks.state


async def test_an_edge_begins_at_the_relay_and_is_direct_soon(ring: Ring) -> None:
    first, second = await ring.join()
    moves: list[str] = []
    for edge in (first, second):
        edge.on_path = lambda edge: moves.append(edge.path.kind)
    await until(lambda: first.path.kind == second.path.kind == "direct")
    assert first.why == second.why == ""
    assert first.path.address[0] == "127.0.0.1"
    first.send(0, b"hello")
    assert await Inbox(second).wait_for(1) == [(0, b"hello")]
    assert first.sent["relayed"] >= 1200
    assert second.received["relayed"] >= 1200
    assert first.sent["direct"] > 0
    assert set(moves) <= {"direct"}
    await until(lambda: first.path.size == second.path.size == 8900)


async def test_no_message_is_lost_when_the_path_dies_and_comes_back(ring: Ring, wall: Wall) -> None:
    first, second = await ring.join()
    await until(lambda: state(first) is state(second) is State.DIRECT)
    inboxes = Inbox(first), Inbox(second)
    sent: list[bytes] = []
    moves: list[str] = []
    first.on_path = lambda edge: moves.append(edge.path.kind)

    async def speak() -> None:
        while True:
            sent.append(os.urandom(20_000))
            for edge in (first, second):
                edge.send(len(sent) % 3, sent[-1])
            await asyncio.sleep(0.05)

    speaking = asyncio.create_task(speak())
    wall.up = True
    await until(lambda: state(first) is State.SUSPECT)
    await until(lambda: state(first) is state(second) is State.RELAYED)
    assert first.why == "the direct path fell silent"
    await asyncio.sleep(0.2)
    wall.up = False
    await until(lambda: state(first) is state(second) is State.DIRECT)
    speaking.cancel()
    for inbox in inboxes:
        arrived = [message for _, message in await inbox.wait_for(len(sent))]
        assert sorted(arrived) == sorted(sent)
    assert moves[:1] == ["relayed"]
    assert moves[-1] == "direct"


async def test_a_relayed_edge_says_why_and_tries_on_fresh_sockets(
    ring: Ring, wall: Wall, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kafila.net.punching.PUNCH_SECONDS", 0.3)
    monkeypatch.setattr("kafila.net.search.ROUND_AGAIN", (0.2,))
    wall.up = True
    first, second = await ring.join()
    assert first.path.kind == "relayed"
    assert first.why == "looking for a direct path"
    await until(lambda: first.why == "nothing came through, 3 tries")
    wall.up = False
    await until(lambda: state(first) is state(second) is State.DIRECT)
    first.send(0, b"still the same connection")
    assert await Inbox(second).wait_for(1) == [(0, b"still the same connection")]
    await first.close()
    await until(lambda: second.closed and not ring.nodes[1]._sockets._fresh)
    assert not ring.nodes[0]._sockets._fresh


async def test_a_server_that_comes_later_is_found(ring: Ring, wall: Wall) -> None:
    """The client's first datagrams were for nobody."""
    wall.up = True
    client = asyncio.create_task(ring.end(0))
    await asyncio.sleep(0.7)
    second = await ring.end(1)
    first = await client
    second.send(1, b"here I am")
    assert await Inbox(first).wait_for(1) == [(1, b"here I am")]


async def test_a_client_calls_again_when_nobody_has_heard_it(ring: Ring, wall: Wall) -> None:
    wall.up = True
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("kafila.net.connection.HANDSHAKE_TIMEOUT", 0.3)
        client = asyncio.create_task(ring.end(0))
        await asyncio.sleep(0.8)
    second = await ring.end(1)
    first = await client
    first.send(0, b"at last")
    assert await Inbox(second).wait_for(1) == [(0, b"at last")]


async def test_another_plan_is_told_over_the_relay_at_once(ring: Ring, wall: Wall) -> None:
    wall.up = True
    problems = await asyncio.gather(
        ring.end(0, digest=b"x" * 32), ring.end(1), return_exceptions=True
    )
    for problem, name in zip(problems, ("bert", "anna"), strict=True):
        assert isinstance(problem, IdentityProblem)
        assert str(problem).startswith(f"{name} serves another plan (digest ")


async def test_nobody_at_the_other_end_of_the_relay(ring: Ring) -> None:
    with pytest.raises(NetworkProblem, match=r"nor through the relay after 0\.3 s"):
        await ring.end(0, timeout=0.3)


async def test_a_new_record_brings_a_direct_path(ring: Ring) -> None:
    first, second = await asyncio.gather(
        ring.end(0, candidates=[("127.0.0.1", 9)]), ring.end(1, candidates=[("127.0.0.1", 9)])
    )
    assert state(first) is state(second) is State.RELAYED
    first.update(ring.nodes[1].local_candidates())
    await until(lambda: state(first) is state(second) is State.DIRECT, 4)


async def test_direct_edges_go_on_without_the_rendezvous(ring: Ring) -> None:
    first, second = await ring.join()
    await until(lambda: state(first) is state(second) is State.DIRECT)
    await ring.lan.stop()
    inbox = Inbox(second)
    for number in range(20):
        first.send(0, bytes([number]))
        await asyncio.sleep(0.02)
    assert len(await inbox.wait_for(20)) == 20
    await ring.lan._start(0)
