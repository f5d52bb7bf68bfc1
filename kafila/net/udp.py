"""One UDP socket and the names of hosts. Knows no protocol."""

import asyncio
import contextlib
import errno
import socket
import sys
from collections.abc import Callable, Iterator
from typing import Final

from kafila.address import Address
from kafila.defaults import DRAIN, MAX_DATAGRAM, SOCKET_BUFFER
from kafila.errors import NetworkProblem
from kafila.net.candidates import host_candidates

_DONT_FRAGMENT: Final = {
    # A datagram too large for the path must be lost, not cut: that is how its size is found.
    "linux": (socket.IPPROTO_IP, 10, 3),  # IP_MTU_DISCOVER, IP_PMTUDISC_PROBE (ip(7))
    "darwin": (socket.IPPROTO_IP, 28, 1),  # IP_DONTFRAG (netinet/in.h)
}


class Udp:
    """A bound, non-blocking UDP socket (IPv4)."""

    def __init__(self, host: str, port: int) -> None:
        """Bind it (port 0: any free one). Raises NetworkProblem if that cannot be had."""
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        try:
            self.socket.setblocking(False)
            for option in (socket.SO_RCVBUF, socket.SO_SNDBUF):
                self.socket.setsockopt(socket.SOL_SOCKET, option, SOCKET_BUFFER)
            if sys.platform in _DONT_FRAGMENT:
                self.socket.setsockopt(*_DONT_FRAGMENT[sys.platform])
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
        host, port = self.socket.getsockname()
        return host, port

    def candidates(self) -> list[Address]:
        """Return its addresses on this machine's interfaces, best first."""
        host, port = self.address
        hosts = host_candidates() if host == "0.0.0.0" else [host]
        return [(each, port) for each in hosts]

    def watch(self, readable: Callable[[], None]) -> None:
        """Have the running loop call `readable` whenever there is something to `drain`."""
        asyncio.get_running_loop().add_reader(self.socket, readable)

    def drain(self) -> Iterator[tuple[bytes, Address]]:
        """Take what is pending, up to DRAIN datagrams, each with its source."""
        for _ in range(DRAIN):
            try:
                yield self.socket.recvfrom(MAX_DATAGRAM)
            except BlockingIOError:
                return
            except OSError:  # an ICMP error for an earlier datagram: the peer's time-out tells
                continue

    def send(self, datagram: bytes, address: Address) -> None:
        """Send a datagram; one that cannot be sent is lost like any other."""
        with contextlib.suppress(OSError):  # full buffer, too large, no route, ICMP error
            self.socket.sendto(datagram, address)

    def close(self) -> None:
        """Close the socket; again: nothing."""
        if self.socket.fileno() >= 0:
            asyncio.get_running_loop().remove_reader(self.socket)
            self.socket.close()


async def resolve(address: Address) -> Address:
    """Look a host name up. Raises NetworkProblem for an unknown host or a port that is none."""
    host, port = address
    if not 0 < port < 65536:  # the resolver would cut it to 16 bits
        raise NetworkProblem(f"{port} is not a port: ports are 1 to 65535.")
    try:
        found = await asyncio.get_running_loop().getaddrinfo(
            host, port, family=socket.AF_INET, type=socket.SOCK_DGRAM
        )
    except (OSError, UnicodeError) as error:
        raise NetworkProblem(f"{host} is not a known host: {_why(error)}.") from error
    resolved = found[0][4]
    return str(resolved[0]), int(resolved[1])


def _why(error: Exception) -> str:
    """The system's words for it, but for those that only say "address family"."""
    if isinstance(error, socket.gaierror) and error.errno == socket.EAI_ADDRFAMILY:
        return "it has an IPv6 address only, and IPv6 is not supported yet"
    if isinstance(error, UnicodeError):
        return "it has an empty or overlong part"
    return (error.strerror if isinstance(error, OSError) else None) or str(error)
