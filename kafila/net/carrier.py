"""What carries datagrams: a UDP socket, a tunnel, a relayed flow. Knows none of them."""

from collections.abc import Callable, Sequence
from typing import Final, Protocol

from kafila.address import Address


class Carrier(Protocol):
    """Takes datagrams to addresses; any of them may be lost. Two carriers are the same only if
    they are the same object: a path is a carrier and an address."""

    def send(self, datagram: bytes, address: Address, ttl: int | None = None) -> None:
        """Send a datagram now; `ttl` is how many routers it may pass (None: as many as usual)."""

    def send_all(self, datagrams: Sequence[bytes], address: Address) -> None:
        """Send several datagrams to one address, at once where the carrier can."""


Reader = Callable[[bytes, Carrier, Address], None]
"""Takes a datagram, the carrier it came over and its source; raises ValueError for garbage."""

_TUNNELS: Final = 1 << 16


def tunnel_address(address: Address, number: int) -> Address:
    """Return what stands for the `number`th TCP connection with the peer at `address`.

    Its host is the peer's, its port no UDP port, so that it is nobody else's address.
    """
    host, port = address
    return host, port + _TUNNELS * (1 + number % (_TUNNELS - 1))


def tunnelled(address: Address) -> bool:
    """Tell whether `address` stands for a TCP connection."""
    return address[1] >= _TUNNELS


def on_the_wire(address: Address) -> Address:
    """Return the address that packets come from, of UDP or of TCP."""
    return address[0], address[1] % _TUNNELS
