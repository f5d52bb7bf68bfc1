"""The local networks this machine is in, and whose they are. Knows no members.

Most homes have a 192.168.1.0/24, and a carrier puts many of them behind one public address. So the
network that leads out is named with its router, where the system tells who that is.
"""

import hashlib
import re
from pathlib import Path

from kafila import defaults
from kafila.net.candidates import interfaces, networks

_ROUTE = Path("/proc/net/route")
_NEIGHBOURS = Path("/proc/net/arp")


def local_networks() -> tuple[str, ...]:
    """As in `192.168.1.0/24 at 1f0c9a7e`: eight digits of a digest of the router's MAC address. As
    in `192.168.1.0/24`: it does not lead out, or the system (all but Linux) does not say."""
    device, router = _router(_read(_ROUTE), _read(_NEIGHBOURS)) or ("", "")
    named = [
        f"{network} at {router}" if router and interface.name == device else network
        for interface in interfaces()
        for network in networks([interface])
    ]
    return tuple(dict.fromkeys(named))[: defaults.NETWORKS]


def _router(routes: str, neighbours: str) -> tuple[str, str] | None:
    """The device of the default route, and what names its router (proc(5))."""
    for line in routes.splitlines()[1:]:
        device, destination, gateway, flags, *_ = line.split()
        if destination != "00000000" or not int(flags, 16) & _GATEWAY:
            continue
        host = ".".join(str(octet) for octet in reversed(bytes.fromhex(gateway)))
        for entry in neighbours.splitlines()[1:]:
            fields = entry.split()
            if fields[0] == host and fields[-1] == device and _MAC.fullmatch(fields[3]):
                words = f"kafila router|{fields[3].lower()}"
                return device, hashlib.sha256(words.encode()).hexdigest()[:8]
    return None


_GATEWAY = 0x2  # RTF_GATEWAY
_MAC = re.compile("(?!00:00:00:00:00:00)(?:[0-9a-fA-F]{2}:){5}[0-9a-fA-F]{2}")


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""
