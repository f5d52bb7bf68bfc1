"""The addresses of this machine that a peer might reach, best first.

What the interfaces are is read in one place (`interfaces`, `outward_ipv6`); the rest is a function
of that.
"""

import ipaddress
import socket
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

import psutil

from kafila.address import Address
from kafila.defaults import MAX_CANDIDATES

_VIRTUAL: Final = (
    "br-",
    "docker",
    "lxc",
    "ppp",
    "tailscale",
    "tap",
    "tun",
    "utun",
    "veth",
    "virbr",
    "vmnet",
    "wg",
    "wt",
    "zt",
)
_SMALLEST_MTU: Final = 1280
"""A path below it cannot carry QUIC's 1,200 bytes with room for a tunnel's headers."""

_FIRST_OF_EACH: Final = 2
"""Addresses of each kind that go before all others: no kind can starve the next."""

_OUTSIDE: Final = ("2001:db8::1", 9)
"""Only its route is asked for; nothing is sent (the address is for documentation, RFC 3849)."""


class Interface(NamedTuple):
    """A network interface that is up; its addresses with the lengths of their prefixes."""

    name: str
    mtu: int
    """In bytes; 0: unknown."""
    addresses: Sequence[tuple[str, int]]

    @property
    def virtual(self) -> bool:
        """Whether it leads into a tunnel or to containers rather than to other machines."""
        return self.name.startswith(_VIRTUAL) or 0 < self.mtu < _SMALLEST_MTU

    def of(self, version: int) -> list[ipaddress.IPv4Interface | ipaddress.IPv6Interface]:
        """Return its addresses of IP version 4 or 6."""
        each = (ipaddress.ip_interface(f"{host}/{length}") for host, length in self.addresses)
        return [address for address in each if address.version == version]


def rank(
    interfaces: Iterable[Interface],
    *,
    port: int | None,
    port6: int | None,
    reflexive: Sequence[Address] = (),
    outward: str | None = None,
) -> list[Address]:
    """Return at most MAX_CANDIDATES addresses of sockets bound to all interfaces, best first.

    `port` and `port6` are those of the IPv4 and the IPv6 socket (None: there is none), `reflexive`
    what others say they see, `outward` the IPv6 address that the system itself sends from. In
    turn: real IPv4 interfaces, global IPv6, reflexive, virtual ones, loopback. Link-local
    addresses mean nothing elsewhere and are left out.
    """
    interfaces = list(interfaces)

    def of(version: int, own: int | None, *, virtual: bool) -> list[Address]:
        return [
            (str(each.ip), own)
            for interface in interfaces
            for each in interface.of(version)
            if own and interface.virtual is virtual and not _local(each.ip)
        ]

    real, ipv6 = of(4, port, virtual=False), of(6, port6, virtual=False)
    virtual = of(4, port, virtual=True) + of(6, port6, virtual=True)
    # What the system sends from is what a firewall on the way will have seen; then, addresses that
    # are good everywhere before those of one organisation (RFC 4193).
    ipv6.sort(key=lambda place: (place[0] != outward, not _global(place[0])))
    ranked = [*real[:_FIRST_OF_EACH], *ipv6[:_FIRST_OF_EACH]]
    ranked += outside(reflexive, port, port6)
    ranked += [*real[_FIRST_OF_EACH:], *ipv6[_FIRST_OF_EACH:], *virtual]
    last = [("127.0.0.1", port)] if port else []
    return list(dict.fromkeys(ranked))[: MAX_CANDIDATES - len(last)] + last


def outside(reflexive: Sequence[Address], port: int | None, port6: int | None) -> list[Address]:
    """Return where the sockets at these ports may be reached through a NAT: at each reflexive
    address, and at its host with the socket's own port, since a NAT that maps anew for each peer
    often keeps the port where it can."""
    found: list[Address] = []
    for host, seen in reflexive:
        own = port6 if ":" in host else port
        found += [(host, seen), (host, own or seen)]
    return list(dict.fromkeys(found))


def networks(interfaces: Iterable[Interface]) -> list[str]:
    """Return the local IPv4 networks, as in 192.168.1.0/24: members that share one and a public
    address are most likely neighbours."""
    found = [
        str(four.network)
        for interface in interfaces
        if not interface.virtual
        for four in interface.of(4)
        if not _local(four.ip) and four.network.prefixlen < 31
    ]
    return list(dict.fromkeys(found))


def interfaces() -> list[Interface]:
    """Read this machine's interfaces that are up."""
    statistics = psutil.net_if_stats()
    found = []
    for name, addresses in psutil.net_if_addrs().items():
        state = statistics.get(name)
        if state is None or not state.isup:
            continue
        hosts = [
            (each.address.partition("%")[0], _length(each.netmask, each.family))
            for each in addresses
            if each.family in (socket.AF_INET, socket.AF_INET6)
        ]
        found.append(Interface(name, state.mtu, hosts))
    return found


def outward_ipv6() -> str | None:
    """Return the IPv6 address this machine sends from to the outside; None: it has no way there."""
    try:
        with socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as probe:
            probe.connect(_OUTSIDE)
            host: str = probe.getsockname()[0]
    except OSError:
        return None
    return host


def global_ipv6() -> str | None:
    """Return this machine's IPv6 address that is good everywhere; None: it has none."""
    host = outward_ipv6()
    return host if host is not None and _global(host) else None


def _local(ip: ipaddress.IPv4Address | ipaddress.IPv6Address) -> bool:
    """Whether an address means nothing beyond this machine or one cable."""
    return ip.is_loopback or ip.is_link_local


def _global(host: str) -> bool:
    return ipaddress.ip_address(host).is_global


def _length(netmask: str | None, family: int) -> int:
    """The prefix length that a netmask says; that of one address if it says none."""
    if netmask is None:
        return 32 if family == socket.AF_INET else 128
    return int(ipaddress.ip_address(netmask.partition("%")[0])).bit_count()
