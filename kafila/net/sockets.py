"""The sockets and tunnels of one node: which there are, and which leads to an address.

Nothing listens beyond what was asked for: all interfaces means those of both families of
addresses, any other address means that one.
"""

import asyncio
import socket
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from kafila.address import Address
from kafila.errors import NetworkProblem
from kafila.net.candidates import interfaces, outside, outward_ipv6, rank
from kafila.net.carrier import Carrier, tunnelled
from kafila.net.identity import Identity
from kafila.net.tunnel import Tunnel, TunnelServer
from kafila.net.udp import Udp, is_ipv6

Take = Callable[[Carrier, Iterable[tuple[bytes, Address]]], None]
"""Takes what came over a carrier: datagrams, each with its source."""

_ANY4: Final = "0.0.0.0"
_ANY6: Final = "::"


class Sockets:
    """Two main sockets at most, one for each family; fresh ones on request; tunnels."""

    def __init__(
        self, host: str, port: int, take: Take, severed: Callable[[Address], None]
    ) -> None:
        """Bind the main ones (port 0: any free one, the same for both where it can be).

        `take` is called with what comes, `severed` with the address of a tunnel that broke. Raises
        NetworkProblem if `host` and `port` cannot be had.
        """
        self.take = take
        self._severed = severed
        self._server: TunnelServer | None = None
        self._fresh: dict[Udp, None] = {}
        self.tunnels: dict[Address, Tunnel] = {}
        """Those that are open, by the address that stands for each."""
        self.udp, self.udp6 = _main(host, port)
        self._watch(self.udp)
        if self.udp6 not in (None, self.udp):
            self._watch(self.udp6)

    def open(self, *, ipv6: bool, port: int) -> Udp:
        """Open one more, where the main one of its family listens."""
        beside = self.udp6 if ipv6 else self.udp
        if beside is None or beside.ipv6 is not ipv6:
            family = "IPv6" if ipv6 else "IPv4"
            raise NetworkProblem(f"this process has no {family} address to open a socket at.")
        udp = Udp(beside.address[0], port)
        self._fresh[udp] = None
        self._watch(udp)
        return udp

    def forget(self, udp: Udp) -> None:
        """Close one that was opened so."""
        self._fresh.pop(udp, None)
        udp.close()

    def accept_tunnels(self, identity: Identity) -> None:
        """Listen on TCP where the main sockets do on UDP."""
        self._server = TunnelServer(self, identity)
        for udp in dict.fromkeys((self.udp, self.udp6)):
            if udp is not None:
                self._server.listen(udp.address)

    def tunnel_opened(self, tunnel: Tunnel) -> None:
        """Know a new tunnel (see `tunnel.Owner`)."""
        self.tunnels[tunnel.address] = tunnel

    def tunnel_closed(self, tunnel: Tunnel) -> None:
        """Forget it."""
        self.tunnels.pop(tunnel.address, None)
        self._severed(tunnel.address)

    def towards(self, address: Address) -> Carrier:
        """Return what leads to an address; where nothing does, what is sent is lost."""
        if tunnelled(address):
            return self.tunnels.get(address) or self.udp
        return self.udp6 if self.udp6 is not None and is_ipv6(address[0]) else self.udp

    def main(self, carrier: Carrier) -> bool:
        """Whether connections with strangers and servers go over it."""
        return carrier is self.udp or carrier is self.udp6 or isinstance(carrier, Tunnel)

    def candidates(self, reflexive: Sequence[Address], udp: Udp) -> list[Address]:
        """Return the addresses at which `udp` and the main IPv6 one might be reached, best first;
        `reflexive` are those at which others see them."""
        bound = list(dict.fromkeys(each.address for each in (udp, self.udp6) if each))
        ports = {is_ipv6(host): port for host, port in bound}
        port, port6 = ports.get(False), ports.get(True)
        if bound[0][0] not in (_ANY4, _ANY6):
            return list(dict.fromkeys([*bound, *outside(reflexive, port, port6)]))
        return rank(
            interfaces(), port=port, port6=port6, reflexive=reflexive, outward=outward_ipv6()
        )

    async def close(self) -> None:
        """Close them all; again: nothing."""
        if self._server is not None:
            await self._server.close()
        await asyncio.gather(*(tunnel.close() for tunnel in list(self.tunnels.values())))
        for udp in (self.udp, self.udp6, *self._fresh):
            if udp is not None:
                udp.close()
        self._fresh.clear()

    def _watch(self, udp: Udp) -> None:
        udp.watch(lambda: self.take(udp, udp.drain()))


def _main(host: str, port: int) -> tuple[Udp, Udp | None]:
    """Bind the main socket, and the IPv6 one, which may be the same."""
    if host not in (_ANY4, _ANY6):
        udp = Udp(host, port)
        return udp, udp if udp.ipv6 else None
    udp = Udp(_ANY4, port)
    if not _ipv6_works():
        return udp, None
    try:
        return udp, Udp(_ANY6, udp.address[1])
    except NetworkProblem:
        if port:
            udp.close()
            raise
        return udp, Udp(_ANY6, 0)


def _ipv6_works() -> bool:
    try:
        with socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as probe:
            probe.bind((_ANY6, 0))
    except OSError:
        return False
    return True
