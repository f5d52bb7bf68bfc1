"""Datagrams inside TLS on TCP: real sockets, real TLS, real QUIC inside."""

import asyncio
import contextlib
import socket
import ssl
import struct
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafila.address import Address
from kafila.defaults import MAX_DATAGRAM, MESSAGE_LIMIT, TUNNEL_BUFFER
from kafila.errors import IdentityProblem, NetworkProblem
from kafila.net import dialling, tunnel
from kafila.net.carrier import Carrier, on_the_wire, tunnelled
from kafila.net.connection import Connection
from kafila.net.identity import Identity
from kafila.net.node import Node
from kafila.net.tunnel import Frames, Tunnel
from tests.net.conftest import Inbox

Open = Callable[..., Awaitable[Node]]
Make = Callable[[str], Identity]
ALPN = "kafila-test"


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dialling, "TUNNEL_AFTER", 0.2)


def deaf(node: Node) -> None:
    """Let no UDP get to a node, as a firewall would."""
    for udp in (node.udp, node.udp6):
        if udp is not None:
            asyncio.get_running_loop().remove_reader(udp.socket)


async def rendezvous(node: Open, host: str = "127.0.0.1") -> tuple[Node, list[Connection]]:
    """A listening node that takes tunnels, and whom it has accepted; it echoes."""
    server = await node("server", host=host)
    accepted: list[Connection] = []

    def accept(connection: Connection) -> None:
        accepted.append(connection)
        connection.on_message = connection.send

    server.listen(ALPN, accept)
    server.accept_tunnels()
    return server, accepted


@contextlib.asynccontextmanager
async def tls(server: Node) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """A stranger's TLS connection."""
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    before = len(server._sockets.tunnels)
    reader, writer = await asyncio.open_connection(*server.address, ssl=context)
    for _ in range(500):  # the server's end of TLS is up a moment later
        if len(server._sockets.tunnels) > before:
            break
        await asyncio.sleep(0.01)
    try:
        yield reader, writer
    finally:
        writer.transport.abort()
        with contextlib.suppress(OSError):
            await writer.wait_closed()


async def ended(reader: asyncio.StreamReader) -> bool:
    """Whether the other end closes within seconds, without another byte."""
    async with asyncio.timeout(10):
        try:
            return await reader.read(100) == b""
        except OSError:
            return True


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
async def test_where_udp_is_blocked_quic_goes_through_tls(node: Open, host: str) -> None:
    server, accepted = await rendezvous(node, host)
    deaf(server)
    client = await node("client")
    connection = await client.dial(server.address, alpn=ALPN, server_key=server.identity.key)
    assert connection.tunnelled
    assert connection.peer_key == server.identity.key
    assert accepted[0].peer_key == client.identity.key
    assert accepted[0].tunnelled
    assert tunnelled(accepted[0].address)
    assert on_the_wire(accepted[0].address)[0] == host
    assert isinstance(client.carrier(connection.address), Tunnel)
    message = bytes(range(256)) * (MESSAGE_LIMIT // 256)
    connection.send(0, message)
    assert await Inbox(connection).wait_for(1) == [(0, message)]
    trips = await client.round_trips(connection.address, samples=3)
    assert len(trips) == 3
    await client.close()
    await asyncio.sleep(0.05)
    assert not server._sockets.tunnels
    assert not server._connections


async def test_a_name_leads_through_a_tunnel_too(node: Open) -> None:
    server, _ = await rendezvous(node)
    deaf(server)
    client = await node("client")
    assert (await client.dial(("localhost", server.address[1]), alpn=ALPN)).tunnelled


async def test_where_udp_works_nothing_goes_through_tcp(node: Open) -> None:
    server, accepted = await rendezvous(node)
    client = await node("client")
    connection = await client.dial(server.address, alpn=ALPN)
    assert not connection.tunnelled
    assert not accepted[0].tunnelled
    assert not client._sockets.tunnels


async def test_udp_that_answers_late_still_wins(
    node: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """TCP is tried beside it, and nothing of the attempt is left."""
    monkeypatch.setattr(dialling, "TUNNEL_AFTER", 0.0)
    server = await node("server")
    server.listen(ALPN, lambda connection: None)
    client = await node("client")
    with socket.create_server(server.address) as silent:  # takes connections, says nothing
        assert not (await client.dial(server.address, alpn=ALPN)).tunnelled
        silent.setblocking(False)
    assert not client._sockets.tunnels


async def test_of_two_answers_at_once_that_over_udp_is_kept(
    node: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dialling, "TUNNEL_AFTER", 0.0)
    server, _ = await rendezvous(node)
    client = await node("client")
    take, held = client._sockets.take, dict[type, tuple[Carrier, list[tuple[bytes, Address]]]]()

    def hold(carrier: Carrier, datagrams: Iterable[tuple[bytes, Address]]) -> None:
        held.setdefault(type(carrier), (carrier, list(datagrams)))
        if len(held) == 2:
            client._sockets.take = take
            for each in held.values():
                take(*each)

    client._sockets.take = hold
    assert not (await client.dial(server.address, alpn=ALPN)).tunnelled
    assert len(held) == 2
    assert not client._sockets.tunnels


async def test_both_silent_is_said(node: Open) -> None:
    client = await node("client")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as silent:
        silent.bind(("127.0.0.1", 0))
        with pytest.raises(NetworkProblem, match="Neither UDP nor TCP reaches it"):
            await client.dial(silent.getsockname(), alpn=ALPN, timeout=0.5)


async def test_something_else_on_tcp_is_said(node: Open) -> None:
    server, client = await node("server"), await node("client")
    server.accept_tunnels()  # but it does not listen: no certificate comes
    deaf(server)
    with pytest.raises(NetworkProblem, match="Something else answers there over TCP"):
        await client.dial(server.address, alpn=ALPN, timeout=1.0)
    assert not client._sockets.tunnels


async def test_tcp_that_is_refused_is_tried_again(
    node: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As while a rendezvous is started again: edges live on the relay for seconds only."""
    monkeypatch.setattr(dialling, "TUNNEL_AGAIN", 0.1)
    server, client = await node("server"), await node("client")
    server.listen(ALPN, lambda _: None)
    deaf(server)
    dialled = asyncio.create_task(client.dial(server.address, alpn=ALPN))
    await asyncio.sleep(0.4)
    server.accept_tunnels()
    assert (await dialled).tunnelled


async def test_tls_proves_nothing_and_quic_inside_everything(node: Open, identity: Make) -> None:
    server, _ = await rendezvous(node)
    deaf(server)
    client = await node("client")
    with pytest.raises(IdentityProblem, match="not the expected"):
        await client.dial(server.address, alpn=ALPN, server_key=identity("other").key)
    server._queries.certificate = identity("other").certificate
    with pytest.raises(IdentityProblem, match="could not prove the key"):
        await client.dial(server.address, alpn=ALPN, server_key=identity("other").key)


async def test_the_certificate_is_the_identitys(node: Open) -> None:
    server, _ = await rendezvous(node)
    async with tls(server) as (_, writer):
        shown = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
    assert shown == server.identity.certificate


async def test_a_broken_tunnel_ends_its_connection_and_the_next_dial_opens_another(
    node: Open,
) -> None:
    server, accepted = await rendezvous(node)
    deaf(server)
    client = await node("client")
    connection = await client.dial(server.address, alpn=ALPN)
    gone: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    connection.on_closed = gone.set_result
    for each in list(server._sockets.tunnels.values()):
        await each.close()
    async with asyncio.timeout(5):
        assert (await gone).startswith("the TLS connection with 127.0.0.1:")
    assert accepted[0].closed
    again = await client.dial(server.address, alpn=ALPN)
    assert again.tunnelled
    assert again.address != connection.address
    connection.lost("told twice")  # nothing more comes of it


async def test_the_next_connection_uses_the_tunnel_that_is_there(node: Open) -> None:
    server, accepted = await rendezvous(node)
    deaf(server)
    client = await node("client")
    first = await client.dial(server.address, alpn=ALPN)
    second = await client.dial(server.address, alpn=ALPN)
    assert first.address == second.address
    assert accepted[0].address == accepted[1].address
    await first.close()
    second.send(0, b"still here")
    assert await Inbox(second).wait_for(1) == [(0, b"still here")]


async def test_a_tcp_port_in_use_is_said(node: Open) -> None:
    server = await node("server")
    with (
        socket.create_server(server.address),
        pytest.raises(NetworkProblem, match=f"cannot open TCP port {server.address[1]} on"),
    ):
        server.accept_tunnels()


async def test_one_address_gets_a_few_tunnels(node: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tunnel, "TUNNELS_PER_ADDRESS", 2)
    server, _ = await rendezvous(node)
    async with tls(server), tls(server):
        assert len(server._sockets.tunnels) == 2
        reader, writer = await asyncio.open_connection(*server.address)
        assert await ended(reader)
        writer.close()
    await asyncio.sleep(0.05)
    assert not server._sockets.tunnels
    async with tls(server):
        assert len(server._sockets.tunnels) == 1


@pytest.mark.parametrize("first", [b"", b"GET / HTTP/1.1\r\n\r\n"])
async def test_who_speaks_no_tls_is_cut_off(
    node: Open, monkeypatch: pytest.MonkeyPatch, first: bytes
) -> None:
    monkeypatch.setattr(tunnel, "HANDSHAKE_TIMEOUT", 0.1)
    server, _ = await rendezvous(node)
    reader, writer = await asyncio.open_connection(*server.address)
    writer.write(first)
    async with asyncio.timeout(10):
        with contextlib.suppress(OSError):
            while await reader.read(100):  # an alert, at most
                pass
    writer.close()
    assert server._sockets._server is not None
    assert not server._sockets._server._guests


async def test_who_says_nothing_for_long_is_cut_off(
    node: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tunnel, "TUNNEL_IDLE", 0.1)
    server, _ = await rendezvous(node)
    async with tls(server) as (reader, writer):
        writer.write(b"\0\1x")  # heard once: one more period
        assert await ended(reader)
    assert not server._sockets.tunnels


@pytest.mark.parametrize("nonsense", [b"\0\0", b"\xff\xff", b"\0\1x" * 3 + b"\x24\x01"])
async def test_who_sends_nonsense_is_cut_off(node: Open, nonsense: bytes) -> None:
    server, _ = await rendezvous(node)
    async with tls(server) as (reader, writer):
        writer.write(nonsense)
        assert await ended(reader)


async def test_who_does_not_read_loses_what_is_too_much(node: Open) -> None:
    server, _ = await rendezvous(node)
    async with tls(server) as (_, writer):
        assert isinstance(writer.transport, asyncio.Transport)
        writer.transport.pause_reading()
        (end,) = server._sockets.tunnels.values()
        for _ in range(30_000):
            end.send(bytes(1200), end.address)
        assert end._transport is not None
        assert 0 < end._transport.get_write_buffer_size() <= TUNNEL_BUFFER + 3000
        end.send(bytes(MAX_DATAGRAM + 1), end.address)
        end.send(b"not even to the next router", end.address, ttl=1)


async def test_a_node_that_closes_leaves_no_tunnel(node: Open) -> None:
    """Some are up, some on their way; the clients are told."""
    server, _ = await rendezvous(node)
    deaf(server)
    client = await node("client")
    connection = await client.dial(server.address, alpn=ALPN)
    _, half = await asyncio.open_connection(*server.address)
    async with tls(server) as (reader, _):
        await server.close()
        await server.close()
        assert await ended(reader)
    half.close()
    await asyncio.sleep(0.05)
    assert connection.closed
    assert not client._sockets.tunnels
    assert not server._sockets.tunnels
    tasks = {task.get_name() for task in asyncio.all_tasks()}
    assert len(tasks) == 1, tasks


@given(st.lists(st.binary(min_size=1, max_size=300), max_size=20), st.lists(st.integers(1, 400)))
def test_a_stream_is_cut_where_it_was_joined(datagrams: list[bytes], cuts: list[int]) -> None:
    stream = b"".join(struct.pack("!H", len(each)) + each for each in datagrams)
    frames = Frames()
    received = []
    for cut in [*cuts, len(stream)]:
        received += frames.feed(stream[:cut])
        stream = stream[cut:]
    assert received + frames.feed(stream) == datagrams


@given(st.lists(st.binary(max_size=2000), max_size=20))
def test_any_bytes_are_datagrams_or_nonsense(pieces: list[bytes]) -> None:
    frames = Frames()
    with contextlib.suppress(ValueError):
        for piece in pieces:
            assert all(0 < len(each) <= MAX_DATAGRAM for each in frames.feed(piece))
            assert len(frames._rest) <= MAX_DATAGRAM + 2
