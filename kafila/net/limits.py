"""What limits are made of: token buckets, and what of an address they count. Pure, and bounded."""

import ipaddress
import socket
from dataclasses import dataclass


@dataclass
class Bucket:
    """A token bucket: `burst` at once, `rate` a second from then on. Times are in seconds."""

    rate: float
    burst: float
    level: float
    filled: float

    def take(self, now: float, tokens: float = 1) -> bool:
        """Take a token, or several; False: there are not as many."""
        self.level = min(self.burst, self.level + (now - self.filled) * self.rate)
        self.filled = now
        if self.level < tokens:
            return False
        self.level -= tokens
        return True


class Rates:
    """A bucket for each of many keys.

    Remembers the `keys` that asked last; who is forgotten starts anew, which a flood from more
    networks than that could use, but no single one.
    """

    def __init__(self, rate: float, burst: float, keys: int) -> None:
        self._rate = rate
        self._burst = burst
        self._keys = keys
        self._buckets: dict[bytes | str, Bucket] = {}

    def take(self, key: bytes | str, now: float) -> bool:
        """Take a token of `key`'s bucket; False: it is empty."""
        bucket = self._buckets.pop(key, None) or Bucket(self._rate, self._burst, self._burst, now)
        self._buckets[key] = bucket
        if len(self._buckets) > self._keys:
            del self._buckets[next(iter(self._buckets))]
        return bucket.take(now)


def network(host: str) -> bytes | None:
    """Return whom answers to forgeable questions are counted for: the /24 or /56 of an address;
    None: it is this machine itself, whose address nobody else can feign."""
    if ":" in host:
        packed = socket.inet_pton(socket.AF_INET6, host.partition("%")[0])  # fe80::1%eth0
        return None if packed == bytes(15) + b"\1" else packed[:7]
    packed = socket.inet_pton(socket.AF_INET, host)
    return None if packed[0] == 127 else packed[:3]


def site(host: str) -> str:
    """Return what counts as one address where it is proven: an IPv4 address, or the /64 that an
    IPv6 address is in, since whoever has one of those has all."""
    address = ipaddress.ip_address(host.partition("%")[0])
    if isinstance(address, ipaddress.IPv4Address):
        return str(address)
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(ipaddress.ip_network((address, 64), strict=False))
