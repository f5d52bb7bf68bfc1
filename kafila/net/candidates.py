"""The addresses of this machine that a peer might reach, best first."""

import socket
from typing import Final

import psutil

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
    "zt",
)
_SMALLEST_MTU: Final = 1280
"""A path below it cannot carry QUIC's 1,200 bytes with room for a tunnel's headers."""


def host_candidates() -> list[str]:
    """Return this machine's IPv4 addresses: real interfaces, then virtual ones, then loopback."""
    statistics = psutil.net_if_stats()
    ranked = []
    for interface, addresses in psutil.net_if_addrs().items():
        state = statistics.get(interface)
        if state is None or not state.isup:
            continue
        virtual = interface.startswith(_VIRTUAL) or 0 < state.mtu < _SMALLEST_MTU
        for address in addresses:
            if address.family is socket.AF_INET:
                loopback = address.address.startswith("127.")
                ranked.append((2 if loopback else int(virtual), address.address))
    ranked.sort(key=lambda rank_and_host: rank_and_host[0])
    hosts = [host for _, host in ranked]
    return hosts[: MAX_CANDIDATES - 1] + hosts[MAX_CANDIDATES - 1 :][-1:]
