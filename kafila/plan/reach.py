"""Which pairs can talk directly, predicted from each member's own NAT; no packet is sent for it.

The rule is that of RFC 4787's two full behaviours, measured over 25 pairs of real NATs. It is a
prior that errs on the safe side: a predicted relay may turn out direct. Knows no costs.
"""

import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

from kafila.plan.values import Device, Nat, Path
from kafila.words import listed

PaperClass = Literal["permissive", "ordinary", "restrictive", "unknown", "blocked"]
_STRICTEST = "address-and-port-dependent"

KINDS: Final = (
    Nat("endpoint-independent", "endpoint-independent"),
    Nat("endpoint-independent", "address-dependent"),
    Nat("endpoint-independent", "address-and-port-dependent"),
    Nat("address-dependent", "address-and-port-dependent"),
    Nat("address-and-port-dependent", "address-and-port-dependent"),
    Nat(blocked=True),
)
"""What most members are behind, from the most open to none at all."""


@dataclass(frozen=True, slots=True)
class Reach:
    """How a pair will be connected, and the fact that decided it."""

    path: Path
    why: str


def predict(a: Device, b: Device) -> Reach:
    """The path between two members; symmetric in them.

    Direct, unless both map dependently on the destination, or one does and the other filters by
    address and port: then neither can know the port that the other's packets come from. One
    machine, one LAN or IPv6 on both sides need no hole; without UDP there is none, and two homes
    behind one carrier's NAT depend on its hairpinning, which nobody measured.
    """
    if local(a, b):
        return Reach("direct", "one machine" if a.host == b.host else "one LAN")
    return through(a.nat, b.nat, (a.name, b.name))


def through(a: Nat, b: Nat, names: tuple[str, str]) -> Reach:
    """The path between two places, and why, where `names` says who is meant."""
    blocked = [name for name, nat in zip(names, (a, b), strict=True) if nat.blocked]
    if blocked:
        return Reach("relayed", f"UDP is blocked at {listed(blocked)}")
    if a.ipv6 and b.ipv6:
        return Reach("direct", "IPv6 on both sides")
    if a.public is not None and a.public == b.public:
        return Reach("relayed", "both are behind one NAT, which need not let them meet")
    one, other = _towards(a, b), _towards(b, a)
    if _dependent(one) and _dependent(other):
        why = "both NATs map by destination"
    elif (_dependent(one) and _by_port(other)) or (_dependent(other) and _by_port(one)):
        why = "one NAT maps by destination, the other filters by port"
    else:
        return Reach("direct", "the NATs allow it")
    unknown = [name for name, nat in zip(names, (one, other), strict=True) if not known(nat)]
    if unknown:
        why = f"unknown NAT at {listed(unknown)}, taken for the strictest"
    return Reach("relayed", why)


def local(a: Device, b: Device) -> bool:
    """Whether their packets stay within one machine or one LAN."""
    return a.host == b.host or _one_lan(a, b)


def known(nat: Nat) -> bool:
    """Whether it was classified in full."""
    return nat.blocked or "unknown" not in (nat.mapping, nat.filtering)


def paper_class(nat: Nat) -> PaperClass:
    """The paper's three classes, for display: predictions use the full behaviours."""
    if nat.blocked:
        return "blocked"
    if not known(nat):
        return "unknown"
    if nat.mapping != "endpoint-independent":
        return "restrictive"
    return "permissive" if nat.filtering == "endpoint-independent" else "ordinary"


def paths_of(ring: Sequence[Device]) -> tuple[Path, ...]:
    """The predicted path from each member to the next."""
    return tuple(
        predict(each, after).path for each, after in zip(ring, (*ring[1:], ring[0]), strict=True)
    )


def private(host: str) -> bool:
    """Whether an address means something in its own network only: RFC 1918, shared address space
    (RFC 6598), unique local, link-local and loopback."""
    return any(_within(host, network) for network in _PRIVATE)


_PRIVATE: Final = (
    "10.0.0.0/8",
    "172.16.0.0/12",
    "192.168.0.0/16",
    "100.64.0.0/10",
    "169.254.0.0/16",
    "127.0.0.0/8",
    "fc00::/7",
    "fe80::/10",
    "::1/128",
)


def _one_lan(a: Device, b: Device) -> bool:
    """Behind one public address and in one subnet, since many homes have a 192.168.1.0/24; or
    seen in that subnet itself by a rendezvous that is there too."""
    one, other = a.nat.public, b.nat.public
    if one is None or other is None:
        return False
    shared = [x for x in a.nat.networks if any(_same(x, y) for y in b.nat.networks)]
    return any(one == other or (_within(one, net) and _within(other, net)) for net in shared)


def _same(network: str, other: str) -> bool:
    """Whether two may be one: the same subnet, and not with two routers (see kafila.probe.lan)."""
    (subnet, _, router), (theirs, _, their_router) = (n.partition(" at ") for n in (network, other))
    return subnet == theirs and (router == their_router or not router or not their_router)


def _within(host: str, network: str) -> bool:
    try:
        return ipaddress.ip_address(host) in ipaddress.ip_network(network.partition(" ")[0])
    except ValueError:  # a file may say anything
        return False


def _towards(nat: Nat, other: Nat) -> Nat:
    """What is known of a NAT on the way to another member.

    Nothing, where the rendezvous saw this member in a network of its own and the other outside:
    then what lies between the two was not measured.
    """
    inside = nat.public is not None and private(nat.public)
    outside = other.public is not None and not private(other.public)
    return Nat(public=nat.public) if inside and outside else nat


def _dependent(nat: Nat) -> bool:
    return nat.mapping != "endpoint-independent"


def _by_port(nat: Nat) -> bool:
    return nat.filtering in (_STRICTEST, "unknown")
