"""Measures a NAT from outside with plain sockets, independently of the program's own classifier."""

import socket
from collections.abc import Sequence

from kafila.address import Address
from tools.natlab.lab import FIRST, SECOND, Host

PORTS = (5001, 5002)


class Outside:
    """Four endpoints in the open: two addresses with two ports each."""

    def __init__(self, host: Host) -> None:
        self.sockets = {
            (address, port): host.udp(port, address)
            for address in (FIRST, SECOND)
            for port in PORTS
        }

    def close(self) -> None:
        for each in self.sockets.values():
            each.close()

    def seen(self, inside: socket.socket, endpoint: Address) -> Address | None:
        """Send from inside to an endpoint: the source that it sees."""
        inside.sendto(b"out", endpoint)
        return received(self.sockets[endpoint])

    def mapping(self, host: Host) -> str:
        """EI, AD or APD by the sources that the endpoints see of one socket."""
        with host.udp() as inside:
            seen = {endpoint: self.seen(inside, endpoint) for endpoint in self.sockets}
        assert None not in seen.values()
        if len(set(seen.values())) == 1:
            return "EI"
        per_address = [{seen[address, port] for port in PORTS} for address in (FIRST, SECOND)]
        return "AD" if all(len(each) == 1 for each in per_address) else "APD"

    def filtering(self, host: Host) -> str:
        """EI, AD or APD by who may send to a socket that has sent to one endpoint only."""
        with host.udp() as inside:
            outside = self.seen(inside, (FIRST, PORTS[0]))
            assert outside is not None
            let_in = []
            for endpoint, each in self.sockets.items():
                each.sendto(b"in", outside)
                let_in.append(received(inside) == endpoint)
        assert let_in[0]
        return {(True, True, True): "EI", (True, False, False): "AD"}.get(
            (let_in[1], let_in[2], let_in[3]), "APD"
        )


def received(on: socket.socket) -> Address | None:
    """Where the next datagram comes from; None if none comes."""
    try:
        source = on.recvfrom(2048)[1]
    except TimeoutError:
        return None
    assert isinstance(source, tuple)
    return source


def passes(a: socket.socket, b: socket.socket, to: Sequence[Address]) -> bool:
    """Whether a datagram of `a` to any of the addresses comes to `b`."""
    for address in to:
        a.sendto(b"over", address)
    return received(b) is not None
