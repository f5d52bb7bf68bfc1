"""A NAT as RFC 4787 describes them, as a table in virtual time: no sockets, no clock of its own."""

import random
from dataclasses import dataclass, field
from typing import Final, Literal

from kafila.address import Address
from kafila.plan.values import Behaviour

Ports = Literal["preserve", "random", "sequential"]
ALLOTTED = range(20000, 65536)
UNASKED_SECONDS: Final = 30.0
"""For how long a flow that came unasked keeps what it took (Linux, without a reply)."""


@dataclass
class _Mapping:
    inside: Address
    outside: Address
    made: float
    used: float
    admitted: set[object] = field(default_factory=set)


class Nat:
    """One NAT with one public address (or a pool of them).

    `mapping` and `filtering` are its behaviours (RFC 4787 sections 4.1 and 5), `lifetime` the idle
    seconds after which a mapping is gone, and `absolute` those after which it is even if used;
    what comes in keeps it alive too if `refreshed` says so (REQ-6), what goes out always.
    `drop`: what comes unasked leaves no trace; without it, it takes the flow for itself, and a
    later packet out to where it came from gets another port, as Linux does. `hairpin`: two inside
    may reach each other at its public address.
    """

    def __init__(
        self,
        public: str,
        mapping: Behaviour,
        filtering: Behaviour,
        *,
        lifetime: float = 120.0,
        absolute: float | None = None,
        refreshed: bool = False,
        ports: Ports = "preserve",
        drop: bool = True,
        hairpin: bool = False,
        pool: tuple[str, ...] = (),
        seed: int = 0,
    ) -> None:
        self.public = public
        self.mapping = mapping
        self.filtering = filtering
        self.lifetime = lifetime
        self.absolute = absolute
        self.refreshed = refreshed
        self.ports = ports
        self.drop = drop
        self.hairpin = hairpin
        self.pool = pool or (public,)
        self._random = random.Random(seed)
        self._next = ALLOTTED.start
        self._mappings: dict[object, _Mapping] = {}
        self._outside: dict[Address, _Mapping] = {}
        self._taken: dict[tuple[int, Address], float] = {}  # port, other side -> when last

    def outward(self, source: Address, target: Address, now: float) -> Address:
        """A packet leaves: return the source it has outside."""
        key: object = (source, _part(self.mapping, target))
        mapping = self._get(key, now)
        if mapping is not None and self._is_taken(mapping.outside[1], target, now):
            key = (source, target, "taken")  # the port belongs to the unasked flow
            mapping = self._get(key, now)
        if mapping is None:
            host = self.pool[self._random.randrange(len(self.pool))]
            outside = host, self._port(source[1], target, now)
            mapping = self._mappings[key] = _Mapping(source, outside, now, now)
            self._outside[outside] = mapping
        mapping.used = now
        mapping.admitted.add(_part(self.filtering, target))
        return mapping.outside

    def inward(self, source: Address, target: Address, now: float) -> Address | None:
        """A packet comes in for a public address: return whom it goes to; None: nobody."""
        mapping = self._outside.get(target)
        alive = mapping is not None and self._alive(mapping, now)
        if mapping is not None and alive and _part(self.filtering, source) in mapping.admitted:
            if self.refreshed:
                mapping.used = now
            return mapping.inside
        if not self.drop:
            self._taken[target[1], source] = now
        return None

    def owns(self, host: str) -> bool:
        """Whether this is one of its public addresses."""
        return host in self.pool

    def reboot(self) -> None:
        """Forget everything."""
        self._mappings.clear()
        self._outside.clear()
        self._taken.clear()

    def _get(self, key: object, now: float) -> _Mapping | None:
        mapping = self._mappings.get(key)
        if mapping is None or self._alive(mapping, now):
            return mapping
        del self._mappings[key]
        if self._outside.get(mapping.outside) is mapping:
            del self._outside[mapping.outside]
        return None

    def _alive(self, mapping: _Mapping, now: float) -> bool:
        old = self.absolute is not None and now - mapping.made >= self.absolute
        return not old and now - mapping.used < self.lifetime

    def _is_taken(self, port: int, target: Address, now: float) -> bool:
        at = self._taken.get((port, target))
        return at is not None and now - at < UNASKED_SECONDS

    def _port(self, wanted: int, target: Address, now: float) -> int:
        def free(port: int) -> bool:
            mappings = (self._outside.get((host, port)) for host in self.pool)
            used = any(each is not None and self._alive(each, now) for each in mappings)
            return not used and not self._is_taken(port, target, now)

        if self.ports == "preserve" and free(wanted):
            return wanted
        while True:
            if self.ports == "sequential":
                port, self._next = self._next, self._next + 1
            else:
                port = self._random.choice(ALLOTTED)
            if free(port):
                return port


def _part(behaviour: Behaviour, address: Address) -> object:
    """What of the other side's address makes a difference."""
    match behaviour:
        case "endpoint-independent":
            return None
        case "address-dependent":
            return address[0]
        case _:
            return address


def outward(nats: list[Nat], source: Address, target: Address, now: float) -> Address:
    """Through a row of NATs, the innermost first."""
    for nat in nats:
        source = nat.outward(source, target, now)
    return source


def inward(nats: list[Nat], source: Address, target: Address, now: float) -> Address | None:
    """The same way back."""
    inside: Address | None = target
    for nat in reversed(nats):
        if inside is None:
            return None
        inside = nat.inward(source, inside, now)
    return inside


BEHAVIOURS: tuple[Behaviour, ...] = (
    "endpoint-independent",
    "address-dependent",
    "address-and-port-dependent",
)
