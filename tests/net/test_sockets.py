"""A node's several sockets, on both families of addresses, and what goes over which."""

import asyncio
import contextlib
import socket
from collections.abc import Awaitable, Callable

import pytest

from kafila.address import Address
from kafila.defaults import STRANGERS_BURST
from kafila.errors import NetworkProblem
from kafila.net import queries
from kafila.net.carrier import Carrier
from kafila.net.connection import Connection
from kafila.net.datagram import REFLECTION, CertificateQuery, Family, binding_request
from kafila.net.identity import Identity
from kafila.net.node import Node
from kafila.net.udp import Udp
from tests.net.conftest import Inbox

Open = Callable[..., Awaitable[Node]]
Make = Callable[[str], Identity]
ALPN = "kafila-test"


def echo(connection: Connection) -> None:
    connection.on_message = connection.send


async def answered(connection: Connection) -> bool:
    connection.send(0, b"hello")
    return await Inbox(connection).wait_for(1) == [(0, b"hello")]


async def heard(wire: socket.socket) -> list[bytes]:
    """What a plain socket has received a moment later."""
    await asyncio.sleep(0.05)
    wire.setblocking(False)
    received = []
    with contextlib.suppress(BlockingIOError):
        while True:
            received.append(wire.recv(2000))
    return received


# --- where a node listens ------------------------------------------------------------------------


async def test_one_address_means_that_one(node: Open) -> None:
    four, six = await node("four"), await node("six", host="::1")
    assert not four.udp.ipv6
    assert four.udp6 is None
    assert six.udp is six.udp6
    assert six.local_candidates() == [six.address] == [("::1", six.address[1])]
    assert four.local_candidates() == [four.address]
    seen = ("203.0.113.5", 40001)
    assert four.local_candidates([seen]) == [four.address, seen, (seen[0], four.address[1])]
    fresh = four.open_socket()
    assert four.local_candidates(udp=fresh) == [fresh.address]
    for each, ipv6 in ((four, True), (six, False)):
        with pytest.raises(NetworkProblem, match="has no IPv"):
            each.open_socket(ipv6=ipv6)


@pytest.mark.parametrize("host", ["0.0.0.0", "::"])
async def test_all_interfaces_means_both_families_at_one_port(node: Open, host: str) -> None:
    server, client = await node("server", host=host), await node("client", host=host)
    server.listen(ALPN, echo)
    port = server.address[1]
    assert server.udp.address == ("0.0.0.0", port)
    assert server.udp6 is not None
    assert server.udp6.address == ("::", port)
    for here in ("127.0.0.1", "::1", "localhost"):
        connection = await client.dial((here, port), alpn=ALPN)
        assert await answered(connection)
        assert here in (connection.address[0], "localhost")
        assert len(await client.round_trips((here, port), samples=2)) == 2


async def test_a_port_that_only_ipv6_has_taken(node: Open, identity: Make) -> None:
    other = Udp("::", 0)
    with pytest.raises(NetworkProblem, match=f"UDP port {other.address[1]} on :: is in use"):
        await node("server", host="0.0.0.0", port=other.address[1])
    other.close()


async def test_without_ipv6_there_is_only_ipv4(node: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    real = socket.socket

    def refuse(family: int = socket.AF_INET, *arguments: int) -> socket.socket:
        if family == socket.AF_INET6:
            raise OSError(97, "Address family not supported by protocol")
        return real(family, *arguments)

    with monkeypatch.context() as patch:
        patch.setattr(socket, "socket", refuse)
        alone = await node("alone", host="0.0.0.0")
        assert not any(":" in host for host, _ in alone.local_candidates())
        with pytest.raises(NetworkProblem, match="cannot open a UDP socket for ::1: Address fam"):
            await node("never", host="::1")
    assert alone.udp6 is None
    with pytest.raises(NetworkProblem, match="does not answer"):
        await alone.dial(("::1", 4710), alpn=ALPN, timeout=0.2)


async def test_a_client_without_the_servers_family_says_so_by_silence(node: Open) -> None:
    server, client = await node("server", host="::1"), await node("client")
    server.listen(ALPN, echo)
    with pytest.raises(NetworkProblem, match=r"\[::1\]:\d+ does not answer"):
        await client.dial(server.address, alpn=ALPN, timeout=0.2)


# --- fresh sockets -------------------------------------------------------------------------------


async def test_a_fresh_socket_is_read_until_it_is_closed(node: Open) -> None:
    here = await node("here")
    taken: list[tuple[bytes, Carrier, Address]] = []
    here.on_family(Family.REFLECTION, lambda *what: taken.append(what))
    fresh, other = here.open_socket(), here.open_socket()
    assert len({here.address, fresh.address, other.address}) == 3
    assert fresh.address[0] == "127.0.0.1"
    ask = bytes([REFLECTION]) + b"?"
    other.send(ask, fresh.address)
    fresh.send(ask, here.address)
    await asyncio.sleep(0.05)
    assert sorted(taken, key=lambda each: each[1] is fresh) == [
        (ask, here.udp, fresh.address),
        (ask, fresh, other.address),
    ]
    address = fresh.address
    here.close_socket(fresh)
    here.close_socket(fresh)
    other.send(ask, address)
    await asyncio.sleep(0.05)
    assert len(taken) == 2
    again = here.open_socket(port=address[1])
    assert again.address == address


async def test_strangers_get_connections_at_the_main_socket_only(node: Open) -> None:
    server, client = await node("server"), await node("client")
    server.listen(ALPN, echo)
    fresh = server.open_socket()
    with pytest.raises(NetworkProblem, match="does not answer"):  # the certificate comes, no more
        await client.dial(fresh.address, alpn=ALPN, timeout=0.5)
    assert not server._connections
    assert await answered(await client.dial(server.address, alpn=ALPN))


async def test_a_reader_that_refuses_a_datagram_harms_none(node: Open) -> None:
    here, taken = await node("here"), []

    def read(datagram: bytes, carrier: Carrier, source: Address) -> None:
        if len(datagram) < 3:
            raise ValueError("too short")
        taken.append(datagram)

    here.on_family(Family.REFLECTION, read)
    sender = here.open_socket()
    for datagram in (b"\x0a", b"", b"\x0axx", b"\x05xx"):
        sender.send(datagram, here.address)
    await asyncio.sleep(0.05)
    assert taken == [b"\x0axx"]


# --- what others see -----------------------------------------------------------------------------


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
async def test_each_socket_learns_its_own_reflexive_address(node: Open, host: str) -> None:
    server, client = await node("server", host=host), await node("client", host=host)
    server.listen(ALPN, echo)
    assert await client.reflexive(server.address) == client.address
    fresh = client.open_socket(ipv6=host == "::1")
    assert await client.reflexive(server.address, udp=fresh) == fresh.address


async def test_no_answer_no_address(node: Open) -> None:
    client, deaf = await node("client"), await node("deaf")
    assert await client.reflexive(deaf.address, timeout=0.2) is None
    assert await client.reflexive(("::1", 4710), timeout=0.2) is None


async def test_a_lost_question_is_asked_again(node: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    server, client = await node("server"), await node("client")
    server.listen(ALPN, echo)
    sent: list[bytes] = []
    send = client.udp.send

    def lossy(datagram: bytes, address: Address, ttl: int | None = None) -> None:
        sent.append(datagram)
        if len(sent) == 3:
            send(datagram, address, ttl)

    monkeypatch.setattr(client.udp, "send", lossy)
    assert await client.reflexive(server.address, timeout=5.0) == client.address
    assert len(sent) == 3
    assert len(set(sent)) == 1


async def test_a_stranger_is_answered_so_often(node: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    """STUN and certificates out of one bucket; but a machine may ask itself as it likes."""
    server = await node("server")
    server.listen(ALPN, echo)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as stranger:
        stranger.bind(("127.0.0.1", 0))
        for _ in range(100):
            stranger.sendto(binding_request(bytes(12)), server.address)
        assert len(await heard(stranger)) == 100
        monkeypatch.setattr(queries, "network", lambda host: host.encode())
        for _ in range(50):
            stranger.sendto(binding_request(bytes(12)), server.address)
            stranger.sendto(CertificateQuery(bytes(8)).encode(), server.address)
        assert STRANGERS_BURST <= len(await heard(stranger)) <= STRANGERS_BURST + 10


# --- a NAT that changes its mind -----------------------------------------------------------------


class Nat:
    """Forwards datagrams to a server from a socket of its own, which it can exchange."""

    def __init__(self, server: Address) -> None:
        self.inside = Udp("127.0.0.1", 0)
        self.outside = Udp("127.0.0.1", 0)
        self._server = server
        self._client: Address | None = None
        self.inside.watch(self._out)
        self.outside.watch(self._back)

    def rebind(self) -> None:
        """Forget the mapping: the next datagram gets another port, the old one is dead."""
        self.outside.close()
        self.outside = Udp("127.0.0.1", 0)
        self.outside.watch(self._back)

    def close(self) -> None:
        self.inside.close()
        self.outside.close()

    def _out(self) -> None:
        for datagram, source in self.inside.drain():
            self._client = source
            self.outside.send(datagram, self._server)

    def _back(self) -> None:
        for datagram, _ in self.outside.drain():
            assert self._client is not None
            self.inside.send(datagram, self._client)


async def test_a_connection_goes_on_when_a_nat_maps_it_anew(node: Open) -> None:
    """The server follows: same connection id, another address, validated by QUIC."""
    server, client = await node("server"), await node("client")
    accepted: list[Connection] = []

    def accept(connection: Connection) -> None:
        accepted.append(connection)
        connection.on_message = connection.send

    server.listen(ALPN, accept)
    nat = Nat(server.address)
    connection = await client.dial(nat.inside.address, alpn=ALPN)
    inbox = Inbox(connection)
    seen = set()
    for number in range(1, 4):
        connection.send(0, bytes(20_000))
        assert len(await inbox.wait_for(number)) == number
        assert accepted[0].address == nat.outside.address
        seen.add(accepted[0].address)
        nat.rebind()
    assert len(seen) == 3
    accepted[0].send(0, b"one more")  # said into the void: its acknowledgement is missed
    connection.send(0, b"from there")
    assert (await inbox.wait_for(5))[3:] == [(0, b"one more"), (0, b"from there")]
    assert len(accepted) == 1
    assert not connection.closed
    await client.close()
    nat.close()
