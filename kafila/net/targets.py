"""Which of a peer's addresses get a PING, and which lie behind nobody's NAT: pure functions."""

from collections.abc import Collection, Iterable
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from typing import Final

from kafila.address import Address
from kafila.defaults import MAX_CANDIDATES

_NEAR: Final = [
    ip_network(network)
    for network in (
        "127.0.0.0/8",
        "10.0.0.0/8",
        "172.16.0.0/12",
        "192.168.0.0/16",
        "169.254.0.0/16",
        "100.64.0.0/10",
        "::1/128",
        "fc00::/7",
    )
]
"""Not routed on the internet (RFC 1918, 3927, 6598, 4193): no NAT lies before such an address."""

Host = IPv4Address | IPv6Address


def version(address: Address) -> int:
    """The IP version of an address: 4 or 6."""
    return 6 if ":" in address[0] else 4


def reachable(
    candidates: Iterable[Address], own: Iterable[Address], versions: Collection[int] = (4, 6)
) -> list[Address]:
    """Keep the candidates worth a PING: addresses of one host, at most MAX_CANDIDATES.

    Loopback ones only if the peer is on this machine (it has a host in common with `own`) or has
    no other: on another machine they would lead back to this one.
    """
    every = [(host, port) for text, port in candidates if (host := _host(text, port))]
    every = [(host, port) for host, port in every if host.version in versions]
    hosts = {host for host, _ in every if not host.is_loopback}
    here = not hosts or hosts & {ip_address(host) for host, _ in own}
    kept = [(str(host), port) for host, port in every if here or not host.is_loopback]
    return list(dict.fromkeys(kept))[:MAX_CANDIDATES]


def near(address: Address, own: Iterable[Address] = ()) -> bool:
    """Whether a PING to this address opens no NAT and needs no caution: it stays on this machine
    (`own` addresses) or in its network."""
    host = ip_address(address[0])
    if any(host.version == network.version and host in network for network in _NEAR):
        return True
    return any(host == ip_address(mine) for mine, _ in own)


def outside(candidates: Iterable[Address]) -> Address | None:
    """The first IPv4 address that a peer has on the internet: where its NAT is."""
    far = (each for each in candidates if version(each) == 4 and not near(each))
    return next(far, None)


def _host(text: str, port: int) -> Host | None:
    """The address, if it is one of one host on a port."""
    try:
        host = ip_address(text)
    except ValueError:
        return None
    if host.is_multicast or host.is_unspecified or not 0 < port < 65536:
        return None
    if isinstance(host, IPv4Address):
        return None if host.packed[3] == 255 or host.packed[0] == 0 else host
    return None if host.is_link_local or host.ipv4_mapped else host
