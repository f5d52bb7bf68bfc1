"""The pairs of the matrix: who stands behind what, and what packets can do there.

Only says how scenes are built; running them is `matrix`' business.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, Literal

from tools.natlab import nat as nats
from tools.natlab.lab import Host, Lab
from tools.natlab.nat import Nat

Path = Literal["direct", "relayed"]
NAMES: Final = ("anna", "bert")
_OPEN: Final = ("203.0.113.101", "203.0.113.102")


@dataclass(frozen=True)
class Site:
    """Where a member stands: `build(lab, name)` makes its host and all that is in front of it."""

    label: str
    build: Callable[[Lab, str], Host]


@dataclass(frozen=True)
class Cell:
    """Two members. `possible` is what these NATs allow, found by experiment or plain to see."""

    a: str
    b: str
    build: Callable[[Lab], tuple[Host, Host]]
    possible: Path
    nats: tuple[Nat | None, Nat | None] = (None, None)
    """What the classifier should find for each, where that is one behaviour."""
    birthday: bool = False
    tries: int = 1

    @property
    def title(self) -> str:
        return f"{self.a} x {self.b}"


def behind(nat: Nat) -> Site:
    """Behind one NAT."""
    return Site(nat.label, partial(_behind, nat))


def _behind(nat: Nat, lab: Lab, name: str) -> Host:
    return lab.host(name, lab.router(f"home-{name}", nat))


def behind_two(home: Nat, carrier: Nat) -> Site:
    """Behind a home's NAT that is behind a carrier's."""
    return Site(f"{home.label} behind {carrier.label}", partial(_behind_two, home, carrier))


def _behind_two(home: Nat, carrier: Nat, lab: Lab, name: str) -> Host:
    above = lab.router(f"carrier-{name}", carrier, carrier=True)
    return lab.host(name, lab.router(f"home-{name}", home, behind=above))


def in_the_open() -> Site:
    """No NAT at all."""
    return Site("no NAT", _in_the_open)


def _in_the_open(lab: Lab, name: str) -> Host:
    return lab.public(name, _OPEN[NAMES.index(name)])


def pair(a: Site, b: Site, possible: Path) -> Cell:
    """Two members at two sites."""
    return Cell(a.label, b.label, partial(_pair, a, b), possible)


def _pair(a: Site, b: Site, lab: Lab) -> tuple[Host, Host]:
    return a.build(lab, NAMES[0]), b.build(lab, NAMES[1])


def one_lan(nat: Nat) -> Cell:
    """Both behind one home's NAT."""
    return Cell(f"one LAN behind {nat.label}", "the same", partial(_one_lan, nat), "direct")


def _one_lan(nat: Nat, lab: Lab) -> tuple[Host, Host]:
    router = lab.router("home", nat)
    return lab.host(NAMES[0], router), lab.host(NAMES[1], router)


def one_carrier(nat: Nat) -> Cell:
    """Two homes of one carrier, whose insides look alike."""
    possible: Path = "direct" if nat.hairpin else "relayed"
    return Cell(f"two homes behind {nat.label}", "the same", partial(_one_carrier, nat), possible)


def _one_carrier(nat: Nat, lab: Lab) -> tuple[Host, Host]:
    above = lab.router("carrier", nat, carrier=True)
    homes = [lab.router(f"home-{name}", nats.APDF, behind=above) for name in NAMES]
    return lab.host(NAMES[0], homes[0]), lab.host(NAMES[1], homes[1])


# Measured with plain sockets: rows and columns in the order of nats.BEHAVIOURS.
_MEASURED: Final = (
    "ddddd",
    "ddddd",
    "dddrr",
    "ddrrr",
    "ddrrr",
)


def behaviour_pairs() -> list[Cell]:
    """All ordered pairs of the five common behaviours."""
    cells = []
    for row, a in enumerate(nats.BEHAVIOURS):
        for column, b in enumerate(nats.BEHAVIOURS):
            possible: Path = "direct" if _MEASURED[row][column] == "d" else "relayed"
            cells.append(_of(a, b, possible))
    return cells


def _of(a: Nat, b: Nat, possible: Path) -> Cell:
    made = pair(behind(a), behind(b), possible)
    return Cell(made.a, made.b, made.build, possible, (a, b))


def other_pairs() -> list[Cell]:
    """What the rule was not found on."""
    loose = Nat("EI", "APD", inbound_drop=False)
    open_apdm, open_adm, adm_adf = Nat("APD", "EI"), Nat("AD", "EI"), Nat("AD", "AD")
    blocked = Nat("EI", "APD", udp_blocked=True)
    apdf_twice = behind_two(nats.APDF, nats.APDF)
    cells = [
        # Open filtering lets the peer in wherever it saw this NAT: the rule does not count on it.
        _of(open_apdm, nats.EIF, "direct"),
        _of(open_apdm, nats.APDF, "direct"),
        _of(open_apdm, nats.APDM, "direct"),
        _of(open_apdm, open_apdm, "direct"),
        _of(open_adm, nats.APDM, "direct"),
        _of(adm_adf, nats.APDF, "relayed"),
        _of(adm_adf, nats.ADF, "direct"),
        _of(adm_adf, nats.APDM, "relayed"),
        _of(adm_adf, adm_adf, "relayed"),
        _of(loose, loose, "direct"),
        _of(loose, nats.APDF, "direct"),
        _of(nats.APDF, loose, "direct"),
        _of(loose, nats.APDM, "relayed"),
        pair(apdf_twice, apdf_twice, "direct"),
        pair(apdf_twice, behind(nats.ADF), "direct"),
        pair(behind_two(nats.EIF, nats.APDM), behind(nats.ADF), "direct"),
        pair(behind_two(nats.EIF, nats.APDM), behind(nats.APDF), "relayed"),
        pair(behind_two(nats.ADM, nats.EIF), apdf_twice, "relayed"),
        pair(in_the_open(), in_the_open(), "direct"),
        pair(in_the_open(), behind(nats.APDM), "direct"),
        pair(behind(blocked), behind(nats.EIF), "relayed"),
        pair(behind(blocked), behind(blocked), "relayed"),
    ]
    cells += [one_lan(nat) for nat in (nats.APDF, nats.APDM)]
    cells += [one_carrier(Nat("EI", "EI", hairpin=hairpin)) for hairpin in (True, False)]
    return cells


def birthday_pairs(tries: int) -> list[Cell]:
    """One side filters by port, the other maps by destination, and ports are guessed."""
    pairs: Sequence[tuple[Nat, Nat]] = (
        (nats.APDF, nats.APDM),
        (nats.APDM, nats.APDF),
        (nats.APDF, nats.ADM),
        (nats.ADM, nats.APDF),
    )
    return [
        Cell(cell.a, cell.b, cell.build, "direct", cell.nats, birthday=True, tries=tries)
        for cell in (_of(a, b, "direct") for a, b in pairs)
    ]
