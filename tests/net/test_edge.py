"""Edges over real UDP sockets and real QUIC: who gets one, and who is told why not."""

import asyncio
import gc
import os
import signal
import socket
import sys
from collections.abc import Awaitable, Callable
from dataclasses import replace
from itertools import chain
from pathlib import Path

import pytest

from kafila.defaults import MAX_MESSAGE
from kafila.errors import IdentityProblem, KafilaError, NetworkProblem
from kafila.net.connection import Connection
from kafila.net.edge import Edge, Peer
from kafila.net.identity import Identity
from kafila.net.node import Node
from tests.net.conftest import DIGEST, SESSION, Inbox, peer

Open = Callable[..., Awaitable[Node]]
Make = Callable[[str], Identity]


async def join(
    anna: Node,
    bert: Node,
    *,
    to_bert: Peer | None = None,
    to_anna: Peer | None = None,
    session: bytes = SESSION,
    digest: bytes = DIGEST,
    timeout: float = 10,
) -> tuple[Edge, Edge]:
    """Form an edge; anna is the client. What is given differs at anna's end."""
    to_bert, to_anna = to_bert or peer("bert", bert), to_anna or peer("anna", anna)
    first, second = await asyncio.gather(
        anna.edge(to_bert, client=True, session=session, digest=digest, timeout=timeout),
        bert.edge(to_anna, client=False, session=SESSION, digest=DIGEST, timeout=timeout),
        return_exceptions=True,
    )
    if isinstance(first, Edge) and isinstance(second, Edge):
        return first, second
    problems = [each for each in (first, second) if isinstance(each, BaseException)]
    raise ExceptionGroup("no edge", [each for each in problems if isinstance(each, Exception)])


async def refusals(forming: Awaitable[object]) -> list[KafilaError]:
    """Return what was raised at both ends."""
    with pytest.raises(ExceptionGroup) as caught:
        await forming
    problems = [each for each in caught.value.exceptions if isinstance(each, KafilaError)]
    assert len(problems) == 2
    return problems


async def test_an_edge_carries_messages_both_ways(node: Open) -> None:
    first, second = await join(await node("anna"), await node("bert"))
    assert first.peer.name == "bert"
    assert (first.peer_key, second.peer_key) == (first.peer.key, second.peer.key)
    assert first.path.kind == "direct"
    assert first.path.size == second.path.size == 8900  # loopback
    assert first.path in first.paths
    first.send(0, b"to bert")
    second.send(5, b"to anna")
    assert await Inbox(second).wait_for(1) == [(0, b"to bert")]
    assert await Inbox(first).wait_for(1) == [(5, b"to anna")]


async def test_the_later_member_finds_the_earlier_one(node: Open) -> None:
    anna, bert = await node("anna"), await node("bert")
    early = asyncio.create_task(
        anna.edge(peer("bert", bert), client=True, session=SESSION, digest=DIGEST)
    )
    await asyncio.sleep(0.2)
    await bert.edge(peer("anna", anna), client=False, session=SESSION, digest=DIGEST)
    assert (await early).peer.name == "bert"


async def test_big_messages_cross(node: Open) -> None:
    first, second = await join(await node("anna"), await node("bert"))
    inboxes = Inbox(first), Inbox(second)
    sent = [os.urandom(4_000_000) for _ in range(4)]
    for number in range(2):
        first.send(number, sent[number])
        second.send(number, sent[2 + number])
    to_first, to_second = [await inbox.wait_for(2) for inbox in inboxes]
    assert sorted(to_second) == [(0, sent[0]), (1, sent[1])]
    assert sorted(to_first) == [(0, sent[2]), (1, sent[3])]


async def test_many_small_messages_keep_their_order_on_each_channel(node: Open) -> None:
    first, second = await join(await node("anna"), await node("bert"))
    inbox = Inbox(second)
    for number in range(2000):
        first.send(number % 7, number.to_bytes(4))
        if number % 50 == 0:
            await asyncio.sleep(0)
    messages = await inbox.wait_for(2000)
    for channel in range(7):
        numbers = [int.from_bytes(message) for each, message in messages if each == channel]
        assert numbers == list(range(channel, 2000, 7))
    assert first.unsent == 0


async def test_the_largest_message_is_allowed_and_no_larger(node: Open) -> None:
    first, _ = await join(await node("anna"), await node("bert"))
    with pytest.raises(ValueError, match="at most"):
        first.send(0, bytes(MAX_MESSAGE + 1))


async def test_a_ring_of_three_shares_sockets(node: Open) -> None:
    members = [await node(name) for name in ("anna", "bert", "carl")]
    edges = await asyncio.gather(
        *(join(members[low], members[high]) for low, high in ((0, 1), (1, 2), (0, 2)))
    )
    inboxes = [(Inbox(first), Inbox(second)) for first, second in edges]
    for number, (first, second) in enumerate(edges):
        first.send(0, bytes([number]))
        second.send(0, bytes([number]))
    for number, (one, other) in enumerate(inboxes):
        assert await one.wait_for(1) == await other.wait_for(1) == [(0, bytes([number]))]


async def test_a_lossy_wire_loses_no_message(node: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every seventh datagram is lost, both ways, checks and handshake included."""
    anna, bert = await node("anna"), await node("bert")
    count = 0

    def lossy(send: Callable[..., None]) -> Callable[..., None]:
        def maybe(*arguments: object) -> None:
            nonlocal count
            count += 1
            if count % 7:
                send(*arguments)

        return maybe

    for each in (anna, bert):
        send = lossy(each.udp.send)
        monkeypatch.setattr(each.udp, "send", send)
        monkeypatch.setattr(
            each.udp, "send_all", lambda burst, to, send=send: [send(one, to) for one in burst]
        )
    first, second = await join(anna, bert, timeout=20)
    inbox = Inbox(second)
    sent = [os.urandom(20_000) for _ in range(10)]
    for message in sent:
        first.send(3, message)
    assert [message for _, message in await inbox.wait_for(10)] == sent


# --- refusals ------------------------------------------------------------------------------------


async def test_another_plan_is_refused_at_both_ends(node: Open) -> None:
    forming = join(await node("anna"), await node("bert"), digest=b"x" * 32)
    problems = await refusals(forming)
    for problem, name in zip(problems, ("bert", "anna"), strict=True):
        assert isinstance(problem, IdentityProblem)
        assert str(problem).startswith(f"{name} serves another plan (digest ")
    assert "78787878, here 64646464" in str(problems[1])


async def test_after_a_refusal_the_right_plan_connects_at_once(node: Open) -> None:
    anna, bert = await node("anna"), await node("bert")
    await refusals(join(anna, bert, digest=b"x" * 32))
    first, second = await join(anna, bert)
    first.send(0, b"now")
    assert await Inbox(second).wait_for(1) == [(0, b"now")]


async def test_a_plan_that_differs_late_in_its_digest_is_refused_too(node: Open) -> None:
    """The checks carry 8 bytes of it; the proof compares all."""
    digest = DIGEST[:31] + b"x"
    problems = await refusals(
        join(await node("anna"), await node("bert"), digest=digest, timeout=2)
    )
    assert all("serves another plan" in str(problem) for problem in problems)


async def test_another_session_is_refused_at_both_ends(node: Open) -> None:
    problems = await refusals(
        join(await node("anna"), await node("bert"), session=b"x" * 32, timeout=2)
    )
    assert all("different sets of members" in str(problem) for problem in problems)


async def test_another_protocol_version_is_refused_at_both_ends(node: Open) -> None:
    anna, bert = await node("anna"), await node("bert")
    anna.protocol = 3
    problems = await refusals(join(anna, bert))
    assert "bert speaks protocol 2 and this Kafila protocol 3" in str(problems[0])
    assert "anna speaks protocol 3 and this Kafila protocol 2" in str(problems[1])


async def test_an_unpinned_member_is_refused_at_both_ends(node: Open, identity: Make) -> None:
    """Mallory sits where bert should be. He knows anna's plan, she does not know him."""
    anna, mallory = await node("anna"), await node("mallory")
    at_bert = replace(peer("bert", mallory, identity("bert")))
    problems = await refusals(join(anna, mallory, to_bert=at_bert, timeout=0.5))
    assert isinstance(problems[0], IdentityProblem)
    assert "is not bert" in str(problems[0])
    assert isinstance(problems[1], IdentityProblem)
    assert "is not anna" in str(problems[1])


def forge(home: Path, *, key_of: str, exchange_of: str) -> Identity:
    """Make an identity from the key files of two."""
    forged = home / "forged"
    forged.mkdir()
    (home / key_of / "identity.pem").rename(forged / "identity.pem")
    (home / exchange_of / "exchange.pem").rename(forged / "exchange.pem")
    return Identity.load_or_create(forged)


async def test_a_server_without_the_signing_key_is_refused_at_both_ends(
    node: Open, identity: Make, tmp_path: Path
) -> None:
    """Mallory stole bert's exchange key, so that the checks pass; TLS stops him."""
    anna, bert = await node("anna"), identity("bert")
    identity("mallory")
    forged = forge(tmp_path, key_of="mallory", exchange_of="bert")
    server = await Node.open(replace(forged, key=bert.key), "127.0.0.1")
    problems = await refusals(join(anna, server, to_bert=peer("bert", server, bert), timeout=2))
    assert "bert could not prove the key" in str(problems[0])
    assert "anna does not believe this machine's key" in str(problems[1])
    await server.close()


async def test_a_client_without_the_signing_key_is_refused_at_both_ends(
    node: Open, identity: Make, tmp_path: Path
) -> None:
    bert, anna = await node("bert"), identity("anna")
    identity("mallory")
    forged = forge(tmp_path, key_of="mallory", exchange_of="anna")
    client = await Node.open(replace(forged, key=anna.key), "127.0.0.1")
    problems = await refusals(join(client, bert, to_anna=peer("anna", client, anna), timeout=2))
    assert "bert does not believe" in str(problems[0])
    assert "anna could not prove" in str(problems[1])
    await client.close()


async def test_keys_that_do_not_belong_together_are_refused(node: Open, identity: Make) -> None:
    anna, bert = await node("anna"), await node("bert")
    good = peer("bert", bert)
    for bad in (
        replace(good, certificate=identity("carl").certificate),
        replace(good, certificate=b"garbage"),
        replace(good, exchange_key=b"too short"),
        replace(good, exchange_key=bytes(32)),
    ):
        with pytest.raises(IdentityProblem, match="do not belong together"):
            await anna.edge(bad, client=True, session=SESSION, digest=DIGEST)


async def test_a_second_edge_to_the_same_peer_is_refused(node: Open) -> None:
    anna, bert = await node("anna"), await node("bert")
    await join(anna, bert)
    with pytest.raises(NetworkProblem, match="already is an edge to bert"):
        await anna.edge(peer("bert", bert), client=True, session=SESSION, digest=DIGEST)


async def test_nobody_there(node: Open) -> None:
    anna, bert = await node("anna"), await node("bert")
    with pytest.raises(NetworkProblem, match=rf"127\.0\.0\.1:{bert.address[1]} after 0\.3 s"):
        await anna.edge(
            peer("bert", bert), client=True, session=SESSION, digest=DIGEST, timeout=0.3
        )
    nowhere = replace(peer("bert", bert), candidates=[])
    with pytest.raises(NetworkProblem, match="at any address"):
        await anna.edge(nowhere, client=False, session=SESSION, digest=DIGEST, timeout=0.1)


async def test_an_edge_without_a_checked_path_carries_no_quic(node: Open) -> None:
    """An Initial from a stranger's address reaches no edge and makes no state."""
    anna, bert = await node("anna"), await node("bert")
    waiting = asyncio.create_task(
        bert.edge(peer("anna", anna), client=False, session=SESSION, digest=DIGEST)
    )
    await asyncio.sleep(0.05)
    quic = anna._engine.connect(
        "anywhere",
        alpn="kafila-edge",
        certificate=bert.identity.certificate,
        size=1200,
        window=1000,
        now=0.0,
    )
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as stranger:
        for datagram, _ in chain.from_iterable(quic.datagrams(0.0)):
            stranger.sendto(datagram, bert.address)
            anna.send(datagram, bert.address)  # her address, but no PONG has come from there
    await asyncio.sleep(0.05)
    assert not bert._connections
    waiting.cancel()


# --- endings -------------------------------------------------------------------------------------


async def test_an_edge_can_be_formed_again(node: Open) -> None:
    anna, bert = await node("anna"), await node("bert")
    first, second = await join(anna, bert)
    gone: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    second.on_closed = gone.set_result
    await first.close("for now")
    assert await gone == "anna closed the connection: for now"
    first, second = await join(anna, bert)
    first.send(0, b"again")
    assert await Inbox(second).wait_for(1) == [(0, b"again")]


async def test_a_closing_node_tells_its_peers_and_its_waiters(node: Open) -> None:
    anna, bert = await node("anna"), await node("bert")
    _, second = await join(anna, bert)
    gone: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    second.on_closed = gone.set_result
    carl = replace(peer("carl", await node("carl")), candidates=[("127.0.0.1", 9)])
    waiting = asyncio.create_task(anna.edge(carl, client=True, session=SESSION, digest=DIGEST))
    await asyncio.sleep(0.05)
    await anna.close()
    assert await gone == "anna closed the connection."
    with pytest.raises(NetworkProblem, match="edge to carl was given up"):
        await waiting


async def test_abandoned_edges_leave_nothing_behind(node: Open) -> None:
    """Whenever they are given up: no edge without an owner, no complaint of an unseen error."""
    problems: list[dict[str, object]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, what: problems.append(what))
    anna, bert = await node("anna"), await node("bert")

    def forming(digest: bytes) -> list[asyncio.Task[Edge]]:
        return [
            asyncio.create_task(
                one.edge(
                    peer(name, other), client=one is anna, session=SESSION, digest=digest, timeout=5
                )
            )
            for one, other, name, digest in (
                (anna, bert, "bert", digest),
                (bert, anna, "anna", DIGEST),
            )
        ]

    for digest in (DIGEST, b"x" * 32):
        for turns in (0, 1, 2, 3, 4, 6, 8, 10, 14, 20):
            tasks = forming(digest)
            for _ in range(turns):
                await asyncio.sleep(0.001)
            for task in tasks:
                task.cancel()
            outcomes = await asyncio.gather(*tasks, return_exceptions=True)
            for outcome in outcomes:
                if isinstance(outcome, Edge):
                    await outcome.close()
            for _ in range(500):
                if not anna._connections and not bert._connections:
                    break
                await asyncio.sleep(0.01)
            assert not anna._connections
            assert not bert._connections
            del tasks, outcomes
    tasks = forming(b"x" * 32)
    await asyncio.sleep(0.002)
    await anna.close()
    await bert.close()
    await asyncio.gather(*tasks, return_exceptions=True)
    del tasks
    gc.collect()
    await asyncio.sleep(0)
    assert problems == []


async def test_an_edge_that_comes_up_as_it_is_given_up_is_closed(
    node: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Cancelled in the very turn in which it opened, it has no owner."""
    anna, bert = await node("anna"), await node("bert")
    waiting = asyncio.create_task(
        anna.edge(peer("bert", bert), client=True, session=SESSION, digest=DIGEST)
    )
    opened = Edge._on_edge_opened

    def and_given_up(self: Edge, connection: Connection, problem: KafilaError | None) -> None:
        opened(self, connection, problem)
        if self.peer.name == "bert":
            waiting.cancel()

    monkeypatch.setattr(Edge, "_on_edge_opened", and_given_up)
    second = await bert.edge(peer("anna", anna), client=False, session=SESSION, digest=DIGEST)
    gone: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    second.on_closed = gone.set_result
    with pytest.raises(asyncio.CancelledError):
        await waiting
    async with asyncio.timeout(5):
        assert "closed the connection" in await gone
    assert not anna._connections


MEMBER = """
import asyncio, sys
from pathlib import Path
from kafila.net.edge import Peer
from kafila.net.identity import Identity
from kafila.net.node import Node

async def main(home, name, key, exchange_key, certificate, port, nonce):
    node = await Node.open(Identity.load_or_create(Path(home)), "127.0.0.1")
    print(node.address[1], flush=True)
    peer = Peer(name, *map(bytes.fromhex, (key, exchange_key, certificate)),
                [("127.0.0.1", int(port))], bytes.fromhex(nonce))
    edge = await node.edge(peer, client=True, session=b"s" * 32, digest=b"d" * 32)
    edge.on_message = edge.send
    await asyncio.sleep(60)

asyncio.run(main(*sys.argv[1:]))
"""


async def test_a_killed_peer_is_noticed(node: Open, identity: Make, tmp_path: Path) -> None:
    bert, anna = await node("bert", idle_timeout=1.0), identity("anna")
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        MEMBER,
        str(tmp_path / "anna"),
        "bert",
        bert.identity.key.hex(),
        bert.identity.exchange_key.hex(),
        bert.identity.certificate.hex(),
        str(bert.address[1]),
        bert.nonce.hex(),
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        assert process.stdout is not None
        port = int(await process.stdout.readline())
        to_anna = Peer(
            "anna",
            anna.key,
            anna.exchange_key,
            anna.certificate,
            [("127.0.0.1", port)],
            bytes(32),
        )
        edge = await bert.edge(to_anna, client=False, session=SESSION, digest=DIGEST)
        edge.send(0, b"echo")
        assert await Inbox(edge).wait_for(1) == [(0, b"echo")]
        gone: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        edge.on_closed = gone.set_result
        process.send_signal(signal.SIGKILL)
        async with asyncio.timeout(10):
            assert await gone == "nothing was heard of anna for 1 s."
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()
        process._transport.close()  # type: ignore[attr-defined]  # nothing else closes its pipe


async def test_an_edge_that_is_over_goes_nowhere(node: Open) -> None:
    """A record that comes later starts no search: nobody would end it."""
    anna, bert = await node("anna"), await node("bert")
    first, _ = await join(anna, bert)
    await first.close()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as elsewhere:
        elsewhere.bind(("127.0.0.1", 0))
        elsewhere.setblocking(False)
        first.update([elsewhere.getsockname()])
        await asyncio.sleep(0.05)
        with pytest.raises(BlockingIOError):
            elsewhere.recv(2000)
