"""A UDP socket of either family, and names."""

import asyncio
import socket
import sys

import pytest

from kafila.defaults import DRAIN
from kafila.errors import NetworkProblem
from kafila.net.udp import Udp, resolve

LOOPBACK = pytest.mark.parametrize("host", ["127.0.0.1", "::1"])


@LOOPBACK
async def test_what_is_sent_arrives_with_its_source(host: str) -> None:
    one, other = Udp(host, 0), Udp(host, 0)
    one.send(b"hello", other.address)
    await asyncio.sleep(0.01)
    assert list(other.drain()) == [(b"hello", one.address)]
    assert one.ipv6 is (host == "::1")
    assert one.reaches(other.address)
    assert not one.reaches(("127.0.0.1" if one.ipv6 else "::1", 1))
    one.close()
    one.close()
    other.close()


@pytest.mark.skipif(sys.platform != "linux", reason="how the receiver learns it is Linux'")
@LOOPBACK
async def test_a_ttl_is_for_one_datagram(host: str) -> None:
    one, other = Udp(host, 0), Udp(host, 0)
    level, seen = (
        (socket.IPPROTO_IPV6, socket.IPV6_RECVHOPLIMIT)
        if one.ipv6
        else (socket.IPPROTO_IP, 12)  # IP_RECVTTL (ip(7))
    )
    other.socket.setsockopt(level, seen, 1)
    hops = []
    for ttl in (None, 3, None):
        one.send(b"x", other.address, ttl)
        await asyncio.sleep(0.01)
        _, [(_, _, data)], _, _ = other.socket.recvmsg(10, 100)
        hops.append(int.from_bytes(data[:4], "little"))
    assert hops[1] == 3
    assert hops[0] == hops[2] > 30
    one.close()
    other.close()


async def test_what_cannot_be_sent_is_lost() -> None:
    udp = Udp("127.0.0.1", 0)
    for address in [("::1", 9), ("127.0.0.1", 70000), ("no.such.host.invalid", 9), ("", 9)]:
        udp.send(b"x", address)
        udp.send(b"x", address, 4)
    udp.send(bytes(70000), udp.address)
    assert not list(udp.drain())
    udp.close()


async def test_a_burst_is_taken_in_parts() -> None:
    udp = Udp("127.0.0.1", 0)
    for _ in range(DRAIN + 1):
        udp.send(b"x", udp.address)
    await asyncio.sleep(0.01)
    assert [len(list(udp.drain())) for _ in range(3)] == [DRAIN, 1, 0]
    udp.close()


async def test_an_ipv6_socket_hears_no_ipv4() -> None:
    udp = Udp("::", 0)
    port = udp.address[1]
    beside = Udp("0.0.0.0", port)
    beside.send(b"x", ("127.0.0.1", port))
    await asyncio.sleep(0.01)
    assert not list(udp.drain())
    assert len(list(beside.drain())) == 1
    udp.close()
    beside.close()


@pytest.mark.parametrize("host", ["198.51.100.254", "2001:db8::1", "::x", "a..b"])
def test_an_address_that_is_not_here(host: str) -> None:
    with pytest.raises(NetworkProblem, match="cannot open UDP port 0 on"):
        Udp(host, 0)


async def test_names_and_numbers_are_resolved() -> None:
    assert await resolve(("::1", 4710)) == [("::1", 4710)]
    assert await resolve(("127.0.0.1", 4710)) == [("127.0.0.1", 4710)]
    found = await resolve(("localhost", 4710))
    assert ("127.0.0.1", 4710) in found
    assert len(set(found)) == len(found)
    with pytest.raises(NetworkProblem, match="not a known host"):
        await resolve(("fe80::x", 4710))


async def test_a_silent_name_service_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    async def silence(*_: object, **__: object) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr("kafila.net.udp.RESOLVE_SECONDS", 0.05)
    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", silence)
    with pytest.raises(NetworkProblem, match=r"within 0.05 s where far\.example is"):
        await resolve(("far.example", 4710))
