"""A listening node and its clients, over real UDP sockets and real QUIC."""

import asyncio
import contextlib
import os
import socket
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from itertools import chain
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kafila.defaults import (
    CONTROL_WINDOW,
    HALF_OPEN_PER_ADDRESS,
    HANDSHAKE_TIMEOUT,
    MAX_HALF_OPEN,
    MESSAGE_LIMIT,
)
from kafila.errors import IdentityProblem, NetworkProblem
from kafila.net.connection import Connection
from kafila.net.datagram import CertificateQuery, binding_request
from kafila.net.handshake import Terms
from kafila.net.identity import Identity
from kafila.net.node import Node
from kafila.net.quic import Destination, Engine, Quic, Retries, destination
from tests.net.conftest import Inbox

Open = Callable[..., Awaitable[Node]]
Make = Callable[[str], Identity]
ALPN = "kafila-test"


def echo(connection: Connection) -> None:
    connection.on_message = connection.send


async def reply(connection: Connection) -> tuple[int, bytes]:
    """Wait for the next message."""
    (message,) = await Inbox(connection).wait_for(1)
    return message


async def ending(connection: Connection) -> str:
    """Wait until the peer is gone, return why."""
    gone: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    connection.on_closed = gone.set_result
    async with asyncio.timeout(10):
        return await gone


@contextmanager
def plain_socket() -> Iterator[socket.socket]:
    """A stranger's socket."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as stranger:
        stranger.bind(("127.0.0.1", 0))
        stranger.settimeout(0.2)
        yield stranger


async def test_both_ends_know_each_other(node: Open) -> None:
    server, client = await node("server"), await node("client")
    accepted: list[Connection] = []
    server.listen("another", lambda connection: None)
    server.listen(ALPN, accepted.append)
    connection = await client.dial(server.address, alpn=ALPN, server_key=server.identity.key)
    assert connection.peer_key == server.identity.key
    assert accepted[0].peer_key == client.identity.key
    assert accepted[0].address == client.address
    assert accepted[0].alpn == connection.alpn == ALPN


async def test_messages_wait_for_their_reader_in_order(node: Open) -> None:
    server, client = await node("server"), await node("client")

    def accept(connection: Connection) -> None:
        for number in range(100):
            connection.send(0, bytes([number]))

    server.listen(ALPN, accept)
    connection = await client.dial(server.address, alpn=ALPN)
    await asyncio.sleep(0.05)
    received = await Inbox(connection).wait_for(100)
    assert [message[0] for _, message in received] == list(range(100))


async def test_a_closing_end_delivers_what_it_sent_and_its_reason(node: Open) -> None:
    server, client = await node("server"), await node("client")
    accepted: list[Connection] = []
    server.listen(ALPN, accepted.append)
    connection = await client.dial(server.address, alpn=ALPN)
    size = MESSAGE_LIMIT
    received: list[int] = []
    accepted[0].on_message = lambda channel, message: received.append(len(message))
    gone = asyncio.create_task(ending(accepted[0]))
    connection.send(0, bytes(size))
    connection.send(0, bytes(size))
    assert connection.unsent == 2 * size
    await connection.close("all is said")
    assert (await gone).endswith("closed the connection: all is said")
    assert received == [size, size]
    assert accepted[0].closed
    with pytest.raises(NetworkProblem, match="all is said"):
        accepted[0].send(0, b"too late")


async def test_what_came_before_the_end_is_delivered_even_late(node: Open) -> None:
    server, client = await node("server"), await node("client")
    accepted: list[Connection] = []
    server.listen(ALPN, accepted.append)
    connection = await client.dial(server.address, alpn=ALPN)
    connection.send(0, b"last words")
    await connection.close("gone")
    told: list[object] = []
    accepted[0].on_message = lambda *message: told.append(message)
    accepted[0].on_closed = told.append
    await asyncio.sleep(0.01)
    assert told[0] == (0, b"last words")
    assert str(told[1]).endswith("closed the connection: gone")
    assert len(told) == 2


async def test_a_reader_that_fails_harms_only_itself(node: Open) -> None:
    server, client = await node("server"), await node("client")
    problems: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, what: problems.append(what))

    def accept(connection: Connection) -> None:
        def read(channel: int, message: bytes) -> None:
            connection.send(channel, bytes([1 // message[0]]))

        connection.on_message = read

    server.listen(ALPN, accept)
    connection = await client.dial(server.address, alpn=ALPN)
    connection.send(0, bytes([0]))
    connection.send(0, bytes([1]))
    assert await reply(connection) == (0, bytes([1]))
    assert [type(problem["exception"]) for problem in problems] == [ZeroDivisionError]


@pytest.mark.parametrize(
    ("data", "complaint"),
    [
        (b"\0\0\x7f\xff\xff\xff", "at most"),  # a message of 2 GiB
        (b"\xff\xff", "channel 65535"),
        (b"\0\1", "channel 1, there are 1"),  # a rendezvous has one
        (b"\0\0", "twice"),  # a channel that is open already
    ],
)
async def test_a_peer_that_breaks_the_rules_is_cut_off(
    node: Open, data: bytes, complaint: str
) -> None:
    server, client = await node("server"), await node("client")
    accepted: list[Connection] = []
    server.listen(ALPN, accepted.append)
    connection = await client.dial(server.address, alpn=ALPN)
    connection.send(0, b"all is well")
    assert await reply(accepted[0]) == (0, b"all is well")
    connection._quic.open_stream(data)
    client.wake(connection)
    assert complaint in await ending(accepted[0])
    assert "closed the connection: protocol error" in await ending(connection)
    assert not server._connections


async def test_a_reason_is_fit_for_a_terminal(node: Open) -> None:
    server, client = await node("server"), await node("client")
    accepted: list[Connection] = []
    server.listen(ALPN, accepted.append)
    connection = await client.dial(server.address, alpn=ALPN)
    gone = asyncio.create_task(ending(accepted[0]))
    await connection.close("\x1b[31mred\nline" + "x" * 1000)
    reason = (await gone).split(": ", 1)[1]
    assert reason.isprintable()
    assert reason.startswith("[31mredlinexxx")
    assert len(reason) <= 200


async def test_a_server_may_turn_a_client_away_at_once(node: Open) -> None:
    server, client = await node("server"), await node("client")
    tasks: list[asyncio.Task[None]] = []
    server.listen(
        ALPN, lambda connection: tasks.append(asyncio.create_task(connection.close("full")))
    )
    connection = await client.dial(server.address, alpn=ALPN)
    assert "full" in await ending(connection)
    await asyncio.gather(*tasks)


async def test_misuse_is_the_callers_error(node: Open) -> None:
    server, client = await node("server"), await node("client")
    server.listen(ALPN, echo)
    connection = await client.dial(server.address, alpn=ALPN)
    with pytest.raises(ValueError, match="at most"):
        connection.send(0, bytes(MESSAGE_LIMIT + 1))
    for channel in (-1, 1):
        with pytest.raises(ValueError, match="channel"):
            connection.send(channel, b"")
    connection.send(0, b"still well")
    assert await reply(connection) == (0, b"still well")
    await connection.close()
    with pytest.raises(NetworkProblem, match="closed"):
        connection.send(0, b"")


async def test_another_server_key_is_refused(node: Open, identity: Make) -> None:
    server, client = await node("server"), await node("client")
    server.listen(ALPN, echo)
    with pytest.raises(IdentityProblem, match="not the expected"):
        await client.dial(server.address, alpn=ALPN, server_key=identity("other").key)


async def test_a_server_with_a_borrowed_certificate_is_refused(node: Open, identity: Make) -> None:
    """It can show another's certificate, but not prove that key."""
    server, client = await node("server"), await node("client")
    server.listen(ALPN, echo)
    borrowed = identity("other")
    server._queries.certificate = borrowed.certificate
    with pytest.raises(IdentityProblem, match="could not prove the key"):
        await client.dial(server.address, alpn=ALPN, server_key=borrowed.key)


async def test_another_protocol_version_is_refused(node: Open) -> None:
    server, client = await node("server"), await node("client")
    server.listen(ALPN, echo)
    client.protocol = 7
    with pytest.raises(IdentityProblem, match="speaks protocol 2 and this Kafila protocol 7"):
        await client.dial(server.address, alpn=ALPN)


async def test_another_kind_of_node_is_refused(node: Open) -> None:
    server, client = await node("server"), await node("client")
    server.listen(ALPN, echo)
    with pytest.raises(NetworkProblem, match="another kind"):
        await client.dial(server.address, alpn="kafila-other")


async def test_nobody_there(node: Open) -> None:
    client = await node("client")
    with plain_socket() as silent:
        with pytest.raises(NetworkProblem, match=r"does not answer after 0\.3 s"):
            await client.dial(silent.getsockname(), alpn=ALPN, timeout=0.3)
        with pytest.raises(NetworkProblem, match="answers no STUN"):
            await client.round_trips(silent.getsockname(), samples=5, timeout=0.05)
    for host in ("no.such.host.invalid", "a..b"):
        with pytest.raises(NetworkProblem, match="not a known host"):
            await client.dial((host, 1), alpn=ALPN)


@pytest.mark.parametrize("port", [0, -1, 65536, 99999])
async def test_a_port_that_is_none(node: Open, identity: Make, port: int) -> None:
    """The resolver would take 99999 for 34463."""
    client = await node("client")
    with pytest.raises(NetworkProblem, match=f"{port} is not a port"):
        await client.dial(("127.0.0.1", port), alpn=ALPN)
    with pytest.raises(NetworkProblem, match=f"{port} is not a port"):
        await client.round_trips(("127.0.0.1", port), samples=1)
    if port:
        with pytest.raises(NetworkProblem, match=f"cannot open UDP port {port}"):
            await Node.open(identity("second"), "127.0.0.1", port)


async def test_a_node_may_be_closed_twice(node: Open) -> None:
    server, client = await node("server"), await node("client")
    server.listen(ALPN, echo)
    connection = await client.dial(server.address, alpn=ALPN)
    await asyncio.gather(client.close(), client.close())
    await client.close()
    assert connection.closed


async def test_a_node_that_does_not_listen_is_silent(node: Open) -> None:
    quiet = await node("quiet")
    with plain_socket() as stranger:
        for request in (binding_request(bytes(12)), CertificateQuery(bytes(8)).encode()):
            stranger.sendto(request, quiet.address)
        await asyncio.sleep(0.05)
        with pytest.raises(TimeoutError):
            stranger.recv(2000)


async def test_answers_to_strangers_are_never_larger_than_their_requests(node: Open) -> None:
    server = await node("server")
    server.listen(ALPN, echo)
    with plain_socket() as stranger:
        for request in (binding_request(bytes(12)), CertificateQuery(bytes(8)).encode()):
            stranger.sendto(request, server.address)
            await asyncio.sleep(0.05)
            assert 0 < len(stranger.recv(2000)) <= len(request)


async def test_round_trips_are_measured(node: Open) -> None:
    server, client = await node("server"), await node("client")
    server.listen(ALPN, echo)
    samples = await client.round_trips(server.address, samples=4)
    assert len(samples) == 4
    assert all(0 < sample < 1_000_000 for sample in samples)


async def test_port_in_use(node: Open, identity: Make) -> None:
    server = await node("server")
    with pytest.raises(NetworkProblem, match=f"port {server.address[1]} on 127.0.0.1 is in use"):
        await Node.open(identity("second"), *server.address)
    with pytest.raises(NetworkProblem, match=r"cannot open UDP port 0 on 198\.51\.100\.254"):
        await Node.open(identity("second"), "198.51.100.254")


async def test_a_silent_peer_is_given_up(node: Open) -> None:
    """The server's machine loses its network: only time tells."""
    server, client = await node("server"), await node("client", idle_timeout=0.5)
    server.listen(ALPN, echo)
    connection = await client.dial(server.address, alpn=ALPN)
    asyncio.get_running_loop().remove_reader(server.udp.socket)
    assert await ending(connection) == (
        f"nothing was heard of 127.0.0.1:{server.address[1]} for 0.5 s."
    )
    assert connection.closed


async def test_keepalives_keep_an_idle_connection(node: Open) -> None:
    server, client = await node("server"), await node("client", idle_timeout=0.4)
    server.listen(ALPN, echo)
    connection = await client.dial(server.address, alpn=ALPN)
    await asyncio.sleep(1.2)
    assert not connection.closed
    connection.send(0, b"still here")
    assert await reply(connection) == (0, b"still here")


def initials(server: Node, who: Identity) -> Quic:
    """A client that will never get further than its first datagrams."""
    return Engine(who, 5.0).connect(
        server.address,
        alpn=ALPN,
        certificate=server.identity.certificate,
        size=1200,
        window=1000,
        now=0.0,
    )


async def flood(server: Node, who: Identity, stranger: socket.socket, count: int) -> None:
    """Open `count` connections and leave each at that."""
    for _ in range(count):
        for datagram, _ in chain.from_iterable(initials(server, who).datagrams(0.0)):
            stranger.sendto(datagram, server.address)
        await asyncio.sleep(0)
    await asyncio.sleep(0.1)


async def test_newcomers_that_prove_nothing_lock_nobody_out(node: Open, identity: Make) -> None:
    """However many Initials come from wherever: who receives a Retry still gets in."""
    server, client = await node("server"), await node("client")
    server.listen(ALPN, echo)
    with plain_socket() as stranger:
        await flood(server, identity("flood"), stranger, 2 * MAX_HALF_OPEN)
        assert len(server._listeners.half_open) == MAX_HALF_OPEN // 2
        connection = await client.dial(server.address, alpn=ALPN)
        assert connection.address == server.address
        connection.send(0, b"served")
        assert await reply(connection) == (0, b"served")
    assert len(server._listeners.half_open) == MAX_HALF_OPEN // 2
    for each in list(server._listeners.half_open):
        each.abort("")
    assert set(server._connections) == {server._cids[cid] for cid in server._cids}
    assert len(server._connections) == 1


async def test_one_address_cannot_fill_the_proven_half(node: Open, identity: Make) -> None:
    """A stranger that answers every Retry gets a few places; the bound of all holds too."""
    server, client = await node("server"), await node("client")
    server.listen(ALPN, echo)
    loop = asyncio.get_running_loop()
    with plain_socket() as stranger:
        await flood(server, identity("flood"), stranger, MAX_HALF_OPEN // 2)
    for _ in range(HALF_OPEN_PER_ADDRESS + 4):
        quic = initials(server, identity("flood"))
        with plain_socket() as stranger:
            for _ in range(2):  # an Initial, then the same with the token
                for datagram, _ in chain.from_iterable(quic.datagrams(loop.time())):
                    stranger.sendto(datagram, server.address)
                await asyncio.sleep(0.01)
                with contextlib.suppress(TimeoutError):
                    quic.receive(stranger.recv(2000), server.address, loop.time())
    places = list(server._listeners.half_open.values())
    assert places.count(False) == MAX_HALF_OPEN // 2
    assert places.count(True) == HALF_OPEN_PER_ADDRESS
    for each, proven in list(server._listeners.half_open.items()):
        if proven:
            each.abort("")
    assert (await client.dial(server.address, alpn=ALPN)).peer_key == server.identity.key
    server._listeners.close()


async def test_an_ipv6_network_is_one_address(node: Open, identity: Make) -> None:
    """Whoever has one of its addresses has all (RFC 4291: the last 64 bits are the host's own)."""
    server = await node("server")
    server.listen(ALPN, echo)
    listeners, now = server._listeners, asyncio.get_running_loop().time()

    def come(host: str) -> bool:
        """Its first datagram, then the same with the token of a Retry."""
        quic, source = initials(server, identity("flood")), (host, 4000)
        first = destination(next(quic.datagrams(now))[0][0])
        quic.receive(listeners._retries.datagram(first, source, now), server.address, now)
        again = next(quic.datagrams(now))[0][0]
        connection = listeners.take(destination(again), source, Terms(1), now)
        if connection is not None:
            server.receive(connection, again, source)
        return connection is not None

    came = [come(f"2001:db8::{number:x}") for number in range(HALF_OPEN_PER_ADDRESS + 4)]
    assert came == [True] * HALF_OPEN_PER_ADDRESS + [False] * 4
    assert come("2001:db8:0:1::1")
    listeners.close()


def test_a_token_is_good_for_one_address_and_connection_for_a_while() -> None:
    retries = Retries()
    here = ("192.0.2.1", 4000)
    initial = Destination(b"first id", True, 1, b"client's", b"")
    # A Retry (RFC 9000 section 17.2.5): its ids of 8 bytes each, the token, an integrity tag.
    retry = retries.datagram(initial, here, 100.0)
    assert len(retry) <= 1200
    assert retry[6:14] == b"client's"
    again = Destination(retry[15:23], True, 1, b"client's", retry[23:-16])
    assert retries.first_cid(again, here, 101.0) == b"first id"
    assert retries.first_cid(again, here, 101.0 + HANDSHAKE_TIMEOUT) is None
    assert retries.first_cid(again, ("192.0.2.1", 4001), 101.0) is None
    assert retries.first_cid(again._replace(cid=b"other id"), here, 101.0) is None
    assert Retries().first_cid(again, here, 101.0) is None
    for bad in (b"", b"x", bytes(24), bytes(100), again.token + b"x", again.token[:-1]):
        assert retries.first_cid(again._replace(token=bad), here, 101.0) is None


async def test_a_stranger_cannot_make_the_node_keep_room(node: Open, identity: Make) -> None:
    """A byte at the far end of the window, again and again: QUIC's own windows would double each
    time, and the room kept for what is missing with them."""
    server = await node("server")
    server.listen(ALPN, echo)
    loop = asyncio.get_running_loop()
    quic = initials(server, identity("stranger"))
    inner = quic._connection
    kept = 0
    with plain_socket() as wire:
        wire.setblocking(False)
        for _ in range(40):
            for datagram, _ in chain.from_iterable(quic.datagrams(loop.time())):
                wire.sendto(datagram, server.address)
            await asyncio.sleep(0.01)
            with contextlib.suppress(BlockingIOError):
                while True:
                    quic.receive(wire.recv(2000), server.address, loop.time())
            for connection in server._listeners.half_open:
                kept = max(kept, connection._quic._connection._local_max_data.used)
                if not inner._streams:
                    inner.send_stream_data(0, b"x")
                stream = inner._streams.get(0)
                if stream is not None and inner._remote_max_data > 0:
                    end = min(stream.max_stream_data_remote, inner._remote_max_data)
                    if end > stream.sender.highest_offset + 1:
                        sender = stream.sender
                        sender._buffer_start = sender._buffer_stop = end - 1
                        sender._buffer = bytearray()
                        sender.highest_offset = inner._remote_max_data_used = end - 1
                        inner.send_stream_data(0, b"y")
    assert CONTROL_WINDOW // 2 < kept <= 4 * CONTROL_WINDOW
    assert not server._listeners.half_open
    assert not server._connections


async def test_messages_before_the_proof_end_the_connection(node: Open) -> None:
    server, client = await node("server"), await node("client")
    server.listen(ALPN, echo)
    intruder = Engine(client.identity, 5.0).connect(
        server.address,
        alpn=ALPN,
        certificate=server.identity.certificate,
        size=1200,
        window=1000,
        now=0.0,
    )
    loop = asyncio.get_running_loop()
    with plain_socket() as wire:
        for _ in range(20):
            if server._listeners.half_open:
                intruder.open_stream(b"\0\0\0\0\0\1x")
            for datagram, _ in chain.from_iterable(intruder.datagrams(loop.time())):
                wire.sendto(datagram, server.address)
            await asyncio.sleep(0.02)
            wire.setblocking(False)
            while True:
                try:
                    intruder.receive(wire.recv(2000), server.address, loop.time())
                except BlockingIOError:
                    break
    assert not server._listeners.half_open
    assert not server._connections


garbage = st.one_of(
    st.binary(max_size=100),
    st.binary(min_size=1200, max_size=1300),
    st.binary(min_size=1, max_size=1300).map(lambda tail: bytes([0xC0]) + bytes(3) + b"\1" + tail),
    st.binary(max_size=60).map(lambda tail: b"\x08\x01\x00" + tail),
    st.binary(max_size=600).map(lambda tail: b"\x09\x02" + tail),
    st.binary(max_size=60).map(lambda tail: b"\x00\x01" + tail),
)


@settings(
    max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(datagrams=st.lists(garbage, min_size=20, max_size=40))
def test_garbage_does_not_disturb(identity_of: Make, datagrams: list[bytes]) -> None:
    async def run() -> None:
        problems: list[dict[str, object]] = []
        asyncio.get_running_loop().set_exception_handler(
            lambda loop, context: problems.append(context)
        )
        server = await Node.open(identity_of("server"), "127.0.0.1")
        client = await Node.open(identity_of("client"), "127.0.0.1")
        server.listen(ALPN, echo)
        connection = await client.dial(server.address, alpn=ALPN)
        with plain_socket() as stranger:
            for datagram in datagrams:
                stranger.sendto(datagram, server.address)
                client.udp.socket.sendto(
                    datagram, server.address
                )  # as from the client's own address
        connection.send(0, os.urandom(50_000))
        assert len((await reply(connection))[1]) == 50_000
        await client.close()
        await server.close()
        assert not problems

    asyncio.run(run())


@pytest.fixture(scope="module")
def identity_of(tmp_path_factory: pytest.TempPathFactory) -> Make:
    folder = tmp_path_factory.mktemp("identities")
    return lambda name: Identity.load_or_create(folder / name)
