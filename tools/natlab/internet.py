"""The internet between the routers of a lab: a process that forwards IPv4 between TUN devices.

Every site has one device; a packet goes to the site that has its destination address, later, never
or not at all, as the link between the two says. Knows no NATs. `Internet` is sans-IO; the process
takes commands as lines of JSON on stdin, answers each with one on stdout, and ends when stdin does.
"""

import fcntl
import heapq
import json
import os
import random
import select
import struct
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Final

HOPS: Final = 8
"""By how much a packet's TTL falls on the way, as on a path through several carriers."""
QUEUE_SECONDS: Final = 0.1
"""What a link with a rate keeps at most before it drops."""
_TUNSETIFF: Final = 0x400454CA
_TUN_WITHOUT_HEADER: Final = 0x1001  # IFF_TUN | IFF_NO_PI
_BURST: Final = 64


@dataclass
class Link:
    """What happens to packets between two sites; the same both ways."""

    delay: float = 0.0
    """Seconds, one way."""
    jitter: float = 0.0
    """Up to that many seconds more, packet by packet: they may overtake each other."""
    loss: float = 0.0
    """Part of the packets that vanish."""
    rate: float = 0.0
    """Bytes per second each way; 0 is no limit."""
    blackhole: bool = False
    """Nothing passes."""
    free: dict[int, float] = field(default_factory=dict, init=False)
    """When each direction has sent all that waits in it, by the site it leads to."""

    def due(self, size: int, to: int, now: float, chance: random.Random) -> float | None:
        """When a packet of `size` bytes arrives; None when it does not."""
        if self.blackhole or (self.loss and chance.random() < self.loss):
            return None
        sent = now
        if self.rate:
            start = max(now, self.free.get(to, 0.0))
            if start > now + QUEUE_SECONDS:
                return None
            sent = self.free[to] = start + size / self.rate
        return sent + self.delay + (chance.random() * self.jitter if self.jitter else 0.0)


class Internet:
    """Sites, their addresses and the links between them."""

    def __init__(self, seed: int = 0) -> None:
        self._sites: dict[bytes, int] = {}
        self._everywhere: dict[str, Any] = {}
        self._own: dict[tuple[int, int], dict[str, Any]] = {}
        self._links: dict[tuple[int, int], Link] = {}  # made from both when first used
        self._chance = random.Random(seed)

    def attach(self, site: int, addresses: Sequence[str]) -> None:
        """Bring packets for `addresses` to a site."""
        self._sites |= {bytes(map(int, address.split("."))): site for address in addresses}

    def everywhere(self, **conditions: Any) -> None:
        """Change these conditions of all links from now on, but where a link has its own."""
        self._everywhere |= _known(conditions)
        self._links.clear()

    def link(self, a: int, b: int, **conditions: Any) -> None:
        """Give the link between two sites these conditions of its own from now on."""
        self._own.setdefault(_pair(a, b), {}).update(_known(conditions))
        self._links.pop(_pair(a, b), None)

    def route(self, packet: bytes, source: int, now: float) -> tuple[float, int, bytes] | None:
        """When and where a packet of a site arrives, and as what; None when it does not."""
        if len(packet) < 20 or packet[0] >> 4 != 4 or packet[8] <= HOPS:
            return None
        site = self._sites.get(packet[16:20])
        if site is None or site == source:
            return None
        pair = _pair(source, site)
        if pair not in self._links:
            self._links[pair] = Link(**{**self._everywhere, **self._own.get(pair, {})})
        link = self._links[pair]
        due = link.due(len(packet), site, now, self._chance)
        return None if due is None else (due, site, _aged(packet))


def _known(conditions: dict[str, Any]) -> dict[str, Any]:
    unknown = conditions.keys() - {each.name for each in fields(Link) if each.init}
    if unknown:
        raise ValueError(f"links have no {', '.join(sorted(unknown))}")
    return conditions


def _pair(a: int, b: int) -> tuple[int, int]:
    return (a, b) if a < b else (b, a)


def _aged(packet: bytes) -> bytes:
    """The packet HOPS routers later: its TTL lower, its checksum adapted (RFC 1624)."""
    aged = bytearray(packet)
    aged[8] -= HOPS
    total = (aged[10] << 8 | aged[11]) + (HOPS << 8)
    aged[10:12] = ((total & 0xFFFF) + (total >> 16)).to_bytes(2, "big")
    return bytes(aged)


class InternetProcess:
    """The running internet as the lab holds it. As a context manager it ends with the block."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tools.natlab.internet"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=Path(__file__).parents[2],
            start_new_session=True,
        )
        self._sites: dict[str, int] = {}

    def attach(self, site: str, addresses: Sequence[str]) -> str:
        """Add a site; returns the name of its TUN device, to be moved to where the site is."""
        answer = self._ask({"attach": addresses})
        self._sites[site] = answer["site"]
        return str(answer["device"])

    def everywhere(self, **conditions: Any) -> None:
        """Change the conditions of all links, but where a link has its own; see Link."""
        self._ask({"everywhere": conditions})

    def link(self, a: str, b: str, **conditions: Any) -> None:
        """Give the link between two sites conditions of its own; see Link."""
        self._ask({"link": [self._sites[a], self._sites[b]], "conditions": conditions})

    def close(self) -> None:
        """End it; its devices vanish with it."""
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.close()
        try:
            self._process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()

    def _ask(self, command: Mapping[str, Any]) -> dict[str, Any]:
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.write(json.dumps(command) + "\n")
        self._process.stdin.flush()
        answer = json.loads(self._process.stdout.readline() or "null")
        if not isinstance(answer, dict):
            raise OSError("the lab's internet has ended")
        return answer


class _Forwarder:
    """The process: devices, commands, and packets that are under way."""

    def __init__(self) -> None:
        self._internet = Internet()
        self._devices: list[int] = []
        self._under_way: list[tuple[float, int, int, bytes]] = []
        self._count = 0
        self._commands = b""

    def run(self) -> None:
        """Forward until stdin ends."""
        stdin = sys.stdin.fileno()
        while True:
            # select, because its timeout is finer than epoll's whole milliseconds
            ready, _, _ = select.select([stdin, *self._devices], [], [], self._deliver())
            for site, device in enumerate(self._devices):
                if device in ready:
                    self._take(site, device)
            if stdin in ready:
                text = os.read(stdin, 65536)
                if not text:
                    return
                *lines, self._commands = (self._commands + text).split(b"\n")
                for line in lines:
                    print(json.dumps(self._obey(json.loads(line))), flush=True)

    def _take(self, site: int, device: int) -> None:
        for _ in range(_BURST):
            try:
                packet = os.read(device, 65536)
            except BlockingIOError:
                return
            routed = self._internet.route(packet, site, time.monotonic())
            if routed is not None:
                due, to, aged = routed
                self._count += 1
                heapq.heappush(self._under_way, (due, self._count, to, aged))

    def _deliver(self) -> float | None:
        """Hand over what is due; returns the seconds until the next is."""
        while self._under_way:
            wait = self._under_way[0][0] - time.monotonic()
            if wait > 0:
                return wait
            _, _, site, packet = heapq.heappop(self._under_way)
            try:
                os.write(self._devices[site], packet)
            except OSError:  # the device is down, or its namespace is gone
                continue
        return None

    def _obey(self, command: Mapping[str, Any]) -> dict[str, Any]:
        if "attach" in command:
            device, name = _open_tun()
            self._internet.attach(len(self._devices), command["attach"])
            self._devices.append(device)
            return {"site": len(self._devices) - 1, "device": name}
        if "link" in command:
            self._internet.link(*command["link"], **command["conditions"])
        else:
            self._internet.everywhere(**command["everywhere"])
        return {}


def _open_tun() -> tuple[int, str]:
    """A new TUN device of this process, and the name the kernel gave it."""
    device = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    asked = struct.pack("16sH22x", b"kafila%d", _TUN_WITHOUT_HEADER)
    given = fcntl.ioctl(device, _TUNSETIFF, asked)
    return device, given[:16].rstrip(b"\0").decode("ascii")


if __name__ == "__main__":
    os.nice(-10)  # distances do not grow because members compute
    _Forwarder().run()
