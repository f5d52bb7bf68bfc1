"""Which pairs can talk directly, predicted from each member's own NAT; no packet is sent for it.

The rule is that of RFC 4787's two full behaviours, measured over 25 pairs of real NATs. It is a
prior that errs on the safe side: a predicted relay may turn out direct. Knows no costs.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from kafila.plan.values import Device, Nat, Path
from kafila.words import listed

PaperClass = Literal["permissive", "ordinary", "restrictive", "unknown", "blocked"]
_STRICTEST = "address-and-port-dependent"


@dataclass(frozen=True, slots=True)
class Reach:
    """How a pair will be connected, and the fact that decided it."""

    path: Path
    why: str


def predict(a: Device, b: Device) -> Reach:
    """The path between two members; symmetric in them.

    Direct, unless both map dependently on the destination, or one does and the other filters by
    address and port: then neither can know the port that the other's packets come from. One
    machine, one LAN or IPv6 on both sides need no hole; without UDP there is none.
    """
    if local(a, b):
        return Reach("direct", "one machine" if a.machine == b.machine else "one LAN")
    blocked = [each.name for each in (a, b) if each.nat.blocked]
    if blocked:
        return Reach("relayed", f"UDP is blocked at {listed(blocked)}")
    if a.nat.ipv6 and b.nat.ipv6:
        return Reach("direct", "IPv6 on both sides")
    if _dependent(a.nat) and _dependent(b.nat):
        why = "both NATs map by destination"
    elif (_dependent(a.nat) and _by_port(b.nat)) or (_dependent(b.nat) and _by_port(a.nat)):
        why = "one NAT maps by destination, the other filters by port"
    else:
        return Reach("direct", "the NATs allow it")
    unknown = [each.name for each in (a, b) if not known(each.nat)]
    if unknown:
        why = f"unknown NAT at {listed(unknown)}, taken for the strictest"
    return Reach("relayed", why)


def local(a: Device, b: Device) -> bool:
    """Whether their packets stay within one machine or one LAN."""
    return a.machine == b.machine or _one_lan(a, b)


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


def _one_lan(a: Device, b: Device) -> bool:
    """Behind one public address and in one subnet: many homes have a 192.168.1.0/24."""
    same_site = a.nat.public is not None and a.nat.public == b.nat.public
    return same_site and not set(a.nat.networks).isdisjoint(b.nat.networks)


def _dependent(nat: Nat) -> bool:
    return nat.mapping != "endpoint-independent"


def _by_port(nat: Nat) -> bool:
    return nat.filtering in (_STRICTEST, "unknown")
