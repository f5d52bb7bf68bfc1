"""A member as the stranger of others: it stands at a door and knocks at theirs.

Sockets and timers round `kafila.probe.strangers`. How the two members talk about it is whoever
calls' business.
"""

import asyncio
import ipaddress
from collections.abc import Sequence

from kafila import defaults as d
from kafila.address import Address
from kafila.net.carrier import Carrier, on_the_wire
from kafila.net.datagram import Family
from kafila.net.node import Node
from kafila.net.udp import Udp, is_ipv6
from kafila.plan.reach import private
from kafila.probe.strangers import Stranger


class Doors:
    """Those where this member stands for others."""

    def __init__(self, node: Node, rendezvous: Address) -> None:
        """`rendezvous`: a connection's address of it."""
        self._node = node
        self._server = on_the_wire(rendezvous)
        self._standing: dict[Udp, Stranger | None] = {}
        node.on_family(Family.REFLECTION, self._knocked)

    def close(self) -> None:
        """Stand nowhere any longer."""
        for udp in list(self._standing):
            self.leave(udp)

    async def stand(self) -> tuple[Udp, Address] | None:
        """Stand at a fresh socket: the socket, and where the rendezvous sees it. None: it does not,
        or too many others are helped already."""
        if len(self._standing) >= d.MAX_MEMBERS or is_ipv6(self._server[0]):
            return None
        udp = self._node.open_socket()
        self._standing[udp] = None
        address = await self._node.reflexive(self._server, udp=udp)
        if address is None:
            self.leave(udp)
            return None
        return udp, address

    async def knock(
        self, udp: Udp, where: Address, doors: Sequence[Address], token: bytes
    ) -> list[Address]:
        """Knock at a member's doors from the socket that stands at `where`, for KNOCK_SECONDS;
        return where its own knocks came from. Doors that are no other member's are left out."""
        loop = asyncio.get_running_loop()
        fit = [door for door in doors if _knockable(door[0], where[0])]
        stranger = self._standing[udp] = Stranger(fit, token, loop.time())
        while loop.time() < stranger.until:
            for datagram, door in stranger.poll(loop.time()):
                udp.send(datagram, door)
            await asyncio.sleep(max(0.0, stranger.due - loop.time()))
        return stranger.seen

    def leave(self, udp: Udp) -> None:
        """Stand there no longer."""
        if self._standing.pop(udp, self) is not self:
            self._node.close_socket(udp)

    def _knocked(self, datagram: bytes, carrier: Carrier, source: Address) -> None:
        stranger = self._standing.get(carrier) if isinstance(carrier, Udp) else None
        if stranger is not None:
            stranger.received(datagram, source)


def _knockable(door: str, own: str) -> bool:
    """Whether a door is another machine's in the same kind of network as this one."""
    address, here = ipaddress.ip_address(door), ipaddress.ip_address(own)
    common = address.version == here.version and address.is_loopback == here.is_loopback
    nobody = address.is_multicast or address.is_unspecified or door == "255.255.255.255"
    return common and not nobody and private(door) == private(own) and door != own
