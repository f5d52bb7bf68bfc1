"""One UDP socket and the names of hosts. Knows no protocol."""

import asyncio
import contextlib
import errno
import socket
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from kafila.address import Address
from kafila.defaults import (
    BURST_BYTES,
    DRAIN,
    MAX_DATAGRAM,
    RESOLVE_SECONDS,
    RESOLVED_ADDRESSES,
    SOCKET_BUFFER,
)
from kafila.errors import NetworkProblem

_DONT_FRAGMENT: Final = {
    # A datagram too large for the path must be lost, not cut: that is how its size is found.
    ("linux", socket.AF_INET): (socket.IPPROTO_IP, 10, 3),  # IP_MTU_DISCOVER, _PROBE (ip(7))
    ("linux", socket.AF_INET6): (socket.IPPROTO_IPV6, 23, 3),  # IPV6_MTU_DISCOVER (ipv6(7))
    ("darwin", socket.AF_INET): (socket.IPPROTO_IP, 28, 1),  # IP_DONTFRAG (netinet/in.h)
    ("darwin", socket.AF_INET6): (socket.IPPROTO_IPV6, 62, 1),  # IPV6_DONTFRAG
}

_SEGMENT: Final = (17, 103)
"""SOL_UDP and UDP_SEGMENT of Linux (udp(7)): one system call sends a buffer cut into datagrams."""
_MOST_SEGMENTS: Final = 64


class Udp:
    """A bound, non-blocking UDP socket, for one of the two families of addresses."""

    def __init__(self, host: str, port: int) -> None:
        """Bind it (port 0: any free one). Raises NetworkProblem if that cannot be had."""
        self.ipv6 = is_ipv6(host)
        """Whether its addresses are IPv6 ones; if so, none is an IPv4 one in disguise."""
        family = socket.AF_INET6 if self.ipv6 else socket.AF_INET
        try:
            self.socket = socket.socket(family, socket.SOCK_DGRAM)
        except OSError as error:
            raise NetworkProblem(f"cannot open a UDP socket for {host}: {_why(error)}.") from error
        try:
            self.socket.setblocking(False)
            for option in (socket.SO_RCVBUF, socket.SO_SNDBUF):
                self.socket.setsockopt(socket.SOL_SOCKET, option, SOCKET_BUFFER)
            if (sys.platform, family) in _DONT_FRAGMENT:
                self.socket.setsockopt(*_DONT_FRAGMENT[sys.platform, family])
            if self.ipv6:
                self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            self._ttl = self.socket.getsockopt(*self._hops)
            self._segments = _segments(self.socket)
            self.socket.bind((host, port))
        except (OSError, OverflowError, UnicodeError) as error:
            self.socket.close()
            if isinstance(error, OSError) and error.errno == errno.EADDRINUSE:
                problem = f"UDP port {port} on {host} is in use: stop its user or take another."
            else:
                problem = f"cannot open UDP port {port} on {host}: {_why(error)}."
            raise NetworkProblem(problem) from error

    @property
    def address(self) -> Address:
        """Where it is bound."""
        host, port = self.socket.getsockname()[:2]
        return host, port

    @property
    def _hops(self) -> tuple[int, int]:
        """The socket option that says how many routers a datagram may pass."""
        if self.ipv6:
            return socket.IPPROTO_IPV6, socket.IPV6_UNICAST_HOPS
        return socket.IPPROTO_IP, socket.IP_TTL

    def reaches(self, address: Address) -> bool:
        """Tell whether an address is of this socket's family."""
        return is_ipv6(address[0]) is self.ipv6

    def watch(self, readable: Callable[[], None]) -> None:
        """Have the running loop call `readable` whenever there is something to `drain`."""
        asyncio.get_running_loop().add_reader(self.socket, readable)

    def drain(self) -> Iterator[tuple[bytes, Address]]:
        """Take what is pending, up to DRAIN datagrams, each with its source."""
        receive = self.socket.recvfrom
        for _ in range(DRAIN):
            try:
                datagram, source = receive(MAX_DATAGRAM)
            except BlockingIOError:
                return
            except OSError:  # an ICMP error for an earlier datagram: the peer's time-out tells
                continue
            yield datagram, source[:2]

    def send(self, datagram: bytes, address: Address, ttl: int | None = None) -> None:
        """Send a datagram; one that cannot be sent is lost like any other.

        `ttl`: it gets past this many routers, no more.
        """
        # Full buffer, too large, no route, an ICMP error; the address of a tunnel that is gone.
        with contextlib.suppress(OSError, OverflowError):
            if ttl is None:
                self.socket.sendto(datagram, address)
                return
            self.socket.setsockopt(*self._hops, ttl)
            try:
                self.socket.sendto(datagram, address)
            finally:
                self.socket.setsockopt(*self._hops, self._ttl)

    def send_all(self, datagrams: Sequence[bytes], address: Address) -> None:
        """Send several datagrams to one address, like `send`.

        Where the system can, those of one size leave together: a receiver that wakes for the
        first of them finds them all.
        """
        start = 0
        while start < len(datagrams):
            end = start + 1
            if self._segments:
                size = len(datagrams[start])
                most = min(len(datagrams), start + min(BURST_BYTES // size, _MOST_SEGMENTS))
                while end < most and len(datagrams[end - 1]) == size >= len(datagrams[end]):
                    end += 1
            self._send_run(datagrams[start:end], address)
            start = end

    def _send_run(self, datagrams: Sequence[bytes], address: Address) -> None:
        """Send datagrams of one size, the last of which may be smaller."""
        if len(datagrams) > 1:
            size = len(datagrams[0]).to_bytes(2, sys.byteorder)
            with contextlib.suppress(OSError):  # the interface cannot, or see `send`
                self.socket.sendmsg(datagrams, [(*_SEGMENT, size)], 0, address)
                return
        for datagram in datagrams:
            self.send(datagram, address)

    def close(self) -> None:
        """Close the socket; again: nothing."""
        if self.socket.fileno() >= 0:
            asyncio.get_running_loop().remove_reader(self.socket)
            self.socket.close()


def _segments(udp: socket.socket) -> bool:
    """Tell whether the system cuts a buffer into datagrams."""
    if sys.platform != "linux":
        return False
    try:
        return udp.getsockopt(*_SEGMENT) == 0
    except OSError:  # before Linux 4.18
        return False


def is_ipv6(host: str) -> bool:
    """Tell whether a host is an IPv6 address; names and IPv4 addresses have no colon."""
    return ":" in host


async def resolve(address: Address) -> list[Address]:
    """Look a host name up: its addresses of both families, in the system's order of preference.

    Raises NetworkProblem for an unknown host or a port that is none, and when nobody says which in
    RESOLVE_SECONDS.
    """
    host, port = address
    if not 0 < port < 65536:  # the resolver would cut it to 16 bits
        raise NetworkProblem(f"{port} is not a port: ports are 1 to 65535.")
    try:
        async with asyncio.timeout(RESOLVE_SECONDS):
            found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_DGRAM)
    except TimeoutError:
        raise NetworkProblem(
            f"no name service says within {RESOLVE_SECONDS:g} s where {host} is."
        ) from None
    except (OSError, UnicodeError) as error:
        raise NetworkProblem(f"{host} is not a known host: {_why(error)}.") from error
    addresses = [(str(place[0]), int(place[1])) for *_, place in found]
    return list(dict.fromkeys(addresses))[:RESOLVED_ADDRESSES]


def _why(error: Exception) -> str:
    """The system's words for it."""
    if isinstance(error, UnicodeError):
        return "it has an empty or overlong part"
    return (error.strerror if isinstance(error, OSError) else None) or str(error)
