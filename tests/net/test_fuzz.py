"""Garbage: every parser raises its own error only, nodes stay up, memory stays flat.

A few thousand datagrams; `python -m tools.fuzz` feeds 100,000 and more.
"""

import asyncio
import logging
import socket
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from random import Random

import pytest

from kafila.address import Address
from kafila.net.edge import Edge
from tests.net.conftest import Inbox
from tests.net.test_edge import Open, join
from tests.rendezvous.lan import Lan
from tools.fuzz.campaign import fuzz, grown
from tools.fuzz.mutations import scrambled
from tools.fuzz.siege import SAMPLES, besiege, growth, listen_in, nothing_raised
from tools.fuzz.target import Target
from tools.fuzz.targets import TARGETS

DATAGRAMS = 100
SIEGE = 1500
GROWTH = 256 << 10
NODE_GROWTH = 2 << 20
"""Bytes a second siege may leave: handshakes that began are forgotten after seconds only."""


@pytest.fixture(autouse=True)
def _unlogged(caplog: pytest.LogCaptureFixture) -> None:
    """What the engine says of each bad frame would be kept by the test run itself."""
    caplog.set_level(logging.CRITICAL, logger="quic")


@pytest.mark.parametrize("target", TARGETS, ids=str)
def test_nothing_but_its_own_error_comes_out_of_it(target: Target) -> None:
    fed = fuzz(target, DATAGRAMS // 20 if target.slow else DATAGRAMS)
    assert grown(target, fed) < GROWTH


@asynccontextmanager
async def strangers(address: Address, count: int) -> AsyncIterator[list[Callable[[bytes], None]]]:
    """Sockets that send to an address."""
    sockets = [socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(count)]
    try:
        for each in sockets:
            each.connect(address)
            each.setblocking(False)
        yield [_careless(each) for each in sockets]
    finally:
        for each in sockets:
            each.close()


def _careless(stranger: socket.socket) -> Callable[[bytes], None]:
    def send(datagram: bytes) -> None:
        try:
            stranger.send(datagram)
            while stranger.recv(1 << 16):
                pass
        except OSError:  # nothing (more) to read, or a full buffer
            return

    return send


async def test_a_besieged_rendezvous_serves_on(tmp_path: Path) -> None:
    async with Lan(tmp_path) as lan, nothing_raised():
        node = await lan.node("anna")
        heard = listen_in(node.udp)
        client = await lan.dial(node)
        await client.close()
        assert len(heard) > 3
        samples = (*heard, *SAMPLES)
        async with strangers(lan.rendezvous.address, 8) as sends:
            left = await growth(lambda seed: besiege(sends, samples, SIEGE, seed))
        assert left < NODE_GROWTH
        assert lan.rendezvous.relay.dropped["unbound"] > SIEGE / 50  # it was read
        assert lan.rendezvous.relay.handshakes["challenged"] > SIEGE / 50
        later = await lan.client("bert")
        assert (await later.reflector()).port
        await later.close()


async def test_besieged_tunnels_harm_nobody(tmp_path: Path) -> None:
    """Garbage on TCP instead of TLS, and inside it; datagrams of every family, whole and not."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    random = Random(1)
    async with Lan(tmp_path) as lan, nothing_raised():
        host, port = lan.rendezvous.address
        for number in range(40):
            tls = None if number % 8 == 0 else context
            _, writer = await asyncio.open_connection(host, port, ssl=tls)
            for _ in range(30):
                datagram = scrambled(SAMPLES, random)
                length = len(datagram) if random.random() < 0.98 else random.randrange(1 << 16)
                writer.write(length.to_bytes(2) + datagram)
            with suppress(OSError):
                await writer.drain()
                writer.close()
                await writer.wait_closed()
        later = await lan.client("bert")
        assert (await later.reflector()).port
        await later.close()


async def test_a_besieged_edge_carries_on(node: Open) -> None:
    """Garbage from strangers, and from the peer's own address."""
    async with nothing_raised():
        anna, bert = await node("anna"), await node("bert")
        heard = listen_in(bert.udp)
        first, second = await join(anna, bert)
        inbox = Inbox(first)
        second.send(0, b"before")
        await inbox.wait_for(1)

        def from_bert(datagram: bytes) -> None:
            bert.udp.socket.sendto(datagram, anna.address)

        samples = (*heard, *SAMPLES)
        async with strangers(anna.address, 4) as sends:
            left = await growth(lambda seed: besiege([*sends, from_bert], samples, SIEGE, seed))
        assert left < NODE_GROWTH
        await _still_works(first, second, inbox)


async def _still_works(first: Edge, second: Edge, inbox: Inbox) -> None:
    second.send(1, b"after" * 5000)
    assert (await inbox.wait_for(2))[1] == (1, b"after" * 5000)
    answer = Inbox(second)
    first.send(2, b"and back")
    assert await answer.wait_for(1) == [(2, b"and back")]
