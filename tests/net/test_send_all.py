"""A burst of datagrams in few system calls: what comes out is what went in."""

import errno
import socket

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafila.net.udp import Udp


class Pair:
    """A sender and a receiver."""

    def __init__(self, host: str = "127.0.0.1") -> None:
        self.sender, self.receiver = Udp(host, 0), Udp(host, 0)

    def pass_on(self, datagrams: list[bytes]) -> list[bytes]:
        """Send a burst; return what arrived."""
        self.sender.send_all(datagrams, self.receiver.address)
        arrived: list[bytes] = []
        while batch := [datagram for datagram, _ in self.receiver.drain()]:
            arrived += batch
        return arrived

    def close(self) -> None:
        self.sender.socket.close()
        self.receiver.socket.close()


@settings(max_examples=100, deadline=None)
@given(sizes=st.lists(st.sampled_from([1, 40, 1200, 1452, 8900]), max_size=90), seed=st.binary())
def test_every_datagram_arrives_whole_and_in_order(sizes: list[int], seed: bytes) -> None:
    pair = Pair()
    sent = [(bytes([number]) + seed + bytes(size))[:size] for number, size in enumerate(sizes)]
    try:
        assert pair.pass_on(sent) == sent
    finally:
        pair.close()


def test_ipv6_too() -> None:
    try:
        pair = Pair("::1")
    except Exception as error:  # no IPv6 on this machine
        pytest.skip(str(error))
    sent = [bytes([number]) * 1200 for number in range(10)] + [b"last"]
    assert pair.pass_on(sent) == sent
    pair.close()


def test_where_the_interface_cannot_they_go_one_by_one() -> None:
    class Refusing:
        """A socket on an interface without checksums of its own."""

        def __init__(self, inner: socket.socket) -> None:
            self._inner = inner

        def sendmsg(self, *_: object) -> int:
            raise OSError(errno.EIO, "no")

        def __getattr__(self, name: str) -> object:
            return getattr(self._inner, name)

    pair = Pair()
    pair.sender.socket = Refusing(pair.sender.socket)  # type: ignore[assignment]
    sent = [bytes([number]) * 1200 for number in range(10)]
    assert pair.pass_on(sent) == sent
    pair.close()
