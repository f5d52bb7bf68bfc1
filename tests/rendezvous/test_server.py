"""The rendezvous over real QUIC on loopback."""

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator
from pathlib import Path
from random import Random

import psutil
import pytest

from kafila import defaults as d
from kafila.errors import IdentityProblem, NetworkProblem
from kafila.net.datagram import CertificateQuery, binding_request
from kafila.net.relaying import Bind
from kafila.probe.report import session_id
from kafila.rendezvous.client import RendezvousClient
from kafila.rendezvous.messages import CONTROL, Arrived, Ended, Mail, Present, decode_notice
from kafila.rendezvous.server import Rendezvous
from tests.rendezvous.lan import LOOPBACK, Lan


@pytest.fixture
async def lan(tmp_path: Path) -> AsyncIterator[Lan]:
    async with Lan(tmp_path) as opened:
        yield opened


async def test_mail_passes_and_the_end_is_told(lan: Lan) -> None:
    host, anna = await lan.client("host"), await lan.client("anna")
    opened = await host.open_session(2)
    joined = await anna.join(opened.number)
    assert joined.host == lan.identity("host").key.hex()
    assert await host.receive(10) == Arrived(
        attempt=joined.attempt, key=lan.identity("anna").key.hex()
    )
    big = "x" * d.MAIL_LIMIT
    anna.post(joined.attempt, big)
    assert await host.receive(10) == Mail(attempt=joined.attempt, body=big)
    host.post(joined.attempt, "last words")
    await host.end("enough")
    assert await anna.receive(10) == Mail(attempt=joined.attempt, body="last words")
    assert await anna.receive(10) == Ended(text="enough")
    with pytest.raises(NetworkProblem, match="connection to the rendezvous is gone"):
        await anna.receive(10)
    assert lan.log[0].startswith(f"session {opened.number} opened by")
    assert lan.log[-1].startswith(f"session {opened.number} is over after 0 s: enough")


async def test_a_copied_identity_is_refused_while_the_first_lives(lan: Lan) -> None:
    first = await lan.client("anna")
    opened = await first.open_session(2)
    copy = await lan.client("anna")
    with pytest.raises(IdentityProblem, match="copied"):
        await copy.open_session(2)
    anna = await lan.client("bert")
    await anna.join(opened.number)
    assert isinstance(await first.receive(10), Arrived)


async def test_a_restarted_process_takes_over_from_a_silent_connection(
    lan: Lan, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(d, "PROOF_OF_LIFE", 0.2)
    dead = await lan.client("anna")
    await dead.open_session(2)
    dead.connection.on_message = lambda channel, message: None  # hears pings no more
    again = await lan.client("anna")
    assert (await again.open_session(2)).number == 2
    with pytest.raises(NetworkProblem, match="replaced by a newer connection"):
        await dead.receive(10)


async def test_nobody_at_the_address(lan: Lan) -> None:
    node = await lan.node("anna")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as silent:
        silent.bind((LOOPBACK, 0))
        address = silent.getsockname()
        with pytest.raises(NetworkProblem) as problem:
            await RendezvousClient.connect(node, address, timeout=0.5)
    assert f"{address[0]}:{address[1]}" in str(problem.value)
    assert "`kafila rendezvous`" in str(problem.value)


async def test_an_unknown_host_name(lan: Lan) -> None:
    node = await lan.node("anna")
    with pytest.raises(NetworkProblem, match=r"nowhere\.invalid"):
        await RendezvousClient.connect(node, ("nowhere.invalid", 4710))


async def test_another_key_than_the_known_one(lan: Lan) -> None:
    node = await lan.node("anna")
    with pytest.raises(IdentityProblem):
        await RendezvousClient.connect(
            node, lan.rendezvous.address, lan.identity("somebody else").key
        )


async def test_a_port_in_use(lan: Lan) -> None:
    with pytest.raises(NetworkProblem, match="in use"):
        await Rendezvous.open(lan.identity("second"), *lan.rendezvous.address)


async def test_a_tcp_port_in_use(lan: Lan) -> None:
    with (
        socket.create_server((LOOPBACK, 0)) as taken,
        pytest.raises(NetworkProblem, match="TCP port"),
    ):
        await Rendezvous.open(lan.identity("second"), LOOPBACK, taken.getsockname()[1])


async def test_it_serves_on_whatever_comes(lan: Lan) -> None:
    """Garbage of every kind that it reads, from a stranger: nothing is kept, members are served."""
    random = Random(5)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as stranger:
        for first in (*range(16), 0x40, 0xC0, 0xFF) * 20:
            for size in (0, 1, 8, 19, 127, 128, 511, 1199, 1200, 9000):
                datagram = bytes([first]) + random.randbytes(size)
                stranger.sendto(datagram, lan.rendezvous.address)
            await asyncio.sleep(0)
    host = await lan.client("host")
    assert (await host.open_session(2)).number == 1
    assert lan.rendezvous.relay.flows == 0
    assert lan.rendezvous.handshakes == 1


async def test_it_serves_on_whatever_comes_from_a_link_local_address(tmp_path: Path) -> None:
    """Such an address has its interface's name in it, which no parser of addresses likes."""
    local = [
        address.address
        for addresses in psutil.net_if_addrs().values()
        for address in addresses
        if address.family is socket.AF_INET6 and address.address.startswith("fe80")
    ]
    if not local:
        pytest.skip("no link-local address on this machine")
    async with Lan(tmp_path, host="::") as lan:
        port = lan.rendezvous.address[1]
        (place,) = (
            place for *_, place in socket.getaddrinfo(local[0], port, type=socket.SOCK_DGRAM)
        )
        with socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as stranger:
            stranger.setblocking(False)
            for question in (
                binding_request(bytes(12)),
                CertificateQuery(bytes(8)).encode(),
                Bind(bytes(8), 0, bytes(8)).encode(),
            ):
                stranger.sendto(question, place)
                async with asyncio.timeout(10):
                    assert await asyncio.get_running_loop().sock_recv(stranger, 9216)
        before = lan.rendezvous.node.tunnels
        _, writer = await asyncio.open_connection(local[0], port, ssl=_unverified())
        while lan.rendezvous.node.tunnels == before:  # noqa: ASYNC110 (it runs in this loop)
            await asyncio.sleep(0.01)
        writer.transport.abort()


def _unverified() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


async def test_a_rendezvous_that_goes_away(lan: Lan) -> None:
    host = await lan.client("host")
    await host.open_session(2)
    await lan.stop()
    with pytest.raises(NetworkProblem, match="is gone"):
        await host.receive(10)


async def test_answers_are_told_from_notices_that_come_between(lan: Lan) -> None:
    """While serving there is one reader of notices, and requests besides."""
    keys = [lan.identity(name).key for name in ("anna", "bert")]
    session = bytes.fromhex(session_id([key.hex() for key in keys]))
    anna, bert = await lan.client("anna"), await lan.client("bert")
    await anna.enter(session, keys, "record a")
    reading = asyncio.create_task(anna.receive(10))
    first, _, second = await asyncio.gather(
        anna.relays(session, keys, keys[1:]),
        bert.enter(session, keys, "record b"),
        bert.relays(session, keys, keys[:1]),
    )
    assert first[0].flow == second[0].flow
    assert {first[0].side, second[0].side} == {0, 1}
    await anna.enter(session, keys, "moved")
    assert await reading == Present(key=keys[1].hex(), record="record b")


async def test_a_refusal_reaches_the_request_and_the_reader(lan: Lan) -> None:
    anna = await lan.client("anna")
    reading = asyncio.create_task(anna.receive(10))
    with pytest.raises(IdentityProblem, match="not among"):
        await anna.enter(bytes.fromhex(session_id(["cd" * 32])), [b"\xcd" * 32], "record")
    with pytest.raises(IdentityProblem, match="not among"):
        await reading
    with pytest.raises(IdentityProblem, match="not among"):
        await anna.open_session(2)


async def test_nonsense_is_refused(lan: Lan) -> None:
    anna = await lan.client("anna")
    anna.connection.send(CONTROL, b"nonsense")
    with pytest.raises(NetworkProblem, match="malformed message"):
        await anna.receive(10)


async def test_a_wait_has_its_deadline(lan: Lan) -> None:
    host = await lan.client("host")
    await host.open_session(2)
    with pytest.raises(NetworkProblem, match="nothing came through the rendezvous"):
        await host.receive(0.05)


async def test_a_rendezvous_that_talks_nonsense(lan: Lan) -> None:
    host = await lan.client("host")
    assert host.connection.on_message is not None
    host.connection.on_message(CONTROL, b'{"v":2,"kind":"hm"}')
    with pytest.raises(NetworkProblem, match="malformed"):
        await host.receive(10)
    bert = await lan.client("bert")
    assert bert.connection.on_message is not None
    bert.connection.on_message(CONTROL, b'{"v":9,"kind":"entered"}')
    with pytest.raises(IdentityProblem, match="protocol 9"):
        await bert.receive(10)


async def test_a_rendezvous_that_never_stops_talking(
    lan: Lan, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(d, "INBOX_BYTES", 100_000)
    anna = await lan.client("anna")
    hear = anna.connection.on_message
    assert hear is not None
    said = Present(key="ab" * 32, record="x" * 8000).encode()
    for _ in range(100):  # what is read makes room
        hear(CONTROL, said)
        await anna.receive(10)
    for _ in range(100):
        hear(CONTROL, said)
    assert anna._unread < 110_000
    assert await anna.receive(10) == decode_notice(said)  # what came before that is still there
    with pytest.raises(NetworkProblem, match="faster than anyone can read"):
        await anna.open_session(2)


async def test_many_clients_at_once(lan: Lan) -> None:
    host = await lan.client("host")
    opened = await host.open_session(8)
    joiners = [await lan.client(f"member-{i}") for i in range(7)]
    joins = await asyncio.gather(*(joiner.join(opened.number) for joiner in joiners))
    assert sorted(joined.attempt for joined in joins) == list(range(1, 8))
