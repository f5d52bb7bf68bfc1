"""The pair rule against what real NATs did, its overrides, and the paper's classes."""

from dataclasses import replace
from itertools import combinations_with_replacement, product
from typing import get_args

import pytest

from kafila.plan.order import classes_relay
from kafila.plan.reach import known, local, paper_class, paths_of, predict, private
from kafila.plan.values import Behaviour, Device, Nat
from tests.plan.fleets import ORDINARY, PERMISSIVE, RESTRICTIVE, device

EI, AD, APD, UNKNOWN = get_args(Behaviour)

NATS = [Nat(EI, EI), Nat(EI, AD), Nat(EI, APD), Nat(AD, APD), Nat(APD, APD)]
MEASURED = [
    "direct direct direct direct direct",
    "direct direct direct direct direct",
    "direct direct direct relayed relayed",
    "direct direct relayed relayed relayed",
    "direct direct relayed relayed relayed",
]
"""Simultaneous punches between kernel NATs of these behaviours, row against column."""


def pair(a: Nat, b: Nat) -> tuple[Device, Device]:
    return device("a", nat=a), device("b", nat=b)


@pytest.mark.parametrize("row", range(5))
def test_prediction_is_what_was_measured(row: int) -> None:
    assert " ".join(predict(*pair(NATS[row], other)).path for other in NATS) == MEASURED[row]


ALL = [Nat(mapping, filtering) for mapping, filtering in product(get_args(Behaviour), repeat=2)]


def test_prediction_is_symmetric() -> None:
    for a, b in combinations_with_replacement(ALL, 2):
        assert predict(*pair(a, b)).path == predict(*pair(b, a)).path


def test_unknown_is_the_strictest_and_said_so() -> None:
    def strict(nat: Nat) -> Nat:
        mapping, filtering = (
            APD if each == UNKNOWN else each for each in (nat.mapping, nat.filtering)
        )
        return Nat(mapping, filtering)

    for a, b in product(ALL, ALL):
        reach = predict(*pair(a, b))
        assert reach.path == predict(*pair(strict(a), strict(b))).path
        if reach.path == "relayed" and not (known(a) and known(b)):
            assert "taken for the strictest" in reach.why


def test_one_lan_is_one_public_address_and_one_subnet() -> None:
    home = replace(RESTRICTIVE, public="203.0.113.7", networks=("192.168.1.0/24", "10.0.0.0/8"))
    same = replace(home, networks=("192.168.1.0/24",))
    assert predict(*pair(home, same)).why == "one LAN"
    assert local(*pair(home, same))
    for other in (
        replace(home, public="203.0.113.8"),  # another home with the usual subnet
        replace(home, networks=("172.16.0.0/12",)),  # two subnets of one campus
        replace(home, public=None),
    ):
        assert predict(*pair(home, other)).path == "relayed"
    bare = replace(home, public=None)
    assert predict(*pair(bare, bare)).path == "relayed"


def test_two_homes_of_one_carrier_are_no_lan() -> None:
    """They have the usual subnet, one public address, and each its own router."""
    home = Nat(EI, EI, public="203.0.113.7", networks=("192.168.1.0/24 at 11111111",))
    other = replace(home, networks=("192.168.1.0/24 at 22222222",))
    reach = predict(*pair(home, other))
    assert (reach.path, reach.why) == (
        "relayed",
        "both are behind one NAT, which need not let them meet",
    )
    assert predict(*pair(home, home)).why == "one LAN"
    unnamed = replace(home, networks=("192.168.1.0/24",))
    assert predict(*pair(home, unnamed)).why == "one LAN"


def test_a_rendezvous_in_the_lan_saw_its_members_there() -> None:
    lan = replace(RESTRICTIVE, networks=("192.168.1.0/24",))
    a, b = (replace(lan, public=f"192.168.1.{number}") for number in (5, 6))
    assert predict(*pair(a, b)).why == "one LAN"
    for other in ("10.0.0.6", "not an address"):  # two homes in one larger network
        assert predict(*pair(a, replace(b, public=other))).path == "relayed"


def test_what_was_measured_inside_says_nothing_of_the_way_out() -> None:
    """The rendezvous stands in one member's network: no NAT lies between those two."""
    inside = Nat(EI, EI, public="192.168.1.5", networks=("192.168.1.0/24",))
    neighbour = Nat(EI, APD, public="192.168.2.5")
    assert predict(*pair(inside, neighbour)).path == "direct"
    outside = replace(neighbour, public="203.0.113.7")
    for a, b in ((inside, outside), (outside, inside)):
        reach = predict(*pair(a, b))
        assert reach.path == "relayed"
        assert "unknown NAT at" in reach.why
    assert predict(*pair(inside, replace(outside, filtering=AD))).path == "direct"


def test_private_addresses() -> None:
    for host in ("10.1.2.3", "172.31.0.1", "192.168.0.1", "100.64.0.1", "127.0.0.1", "fd00::1"):
        assert private(host)
    for host in ("203.0.113.1", "172.32.0.1", "100.128.0.1", "2001:db8::1", "nonsense"):
        assert not private(host)


def test_claiming_more_than_true_never_makes_a_pair_direct() -> None:
    """What a classifier may get wrong, it gets wrong towards the strict; so does the prediction."""
    order = {EI: 0, AD: 1, APD: 2, UNKNOWN: 3}

    def claims(nat: Nat) -> list[Nat]:
        return [
            each
            for each in ALL
            if order[each.mapping] >= order[nat.mapping]
            and order[each.filtering] >= order[nat.filtering]
        ]

    for a, b in product(ALL, ALL):
        if predict(*pair(a, b)).path == "relayed":
            for claimed in claims(a):
                assert predict(*pair(claimed, b)).path == "relayed"


def test_one_machine_is_direct_whatever_its_nat() -> None:
    a, b = (device(name, machine="m", nat=Nat(blocked=True)) for name in "ab")
    assert predict(a, b).path == "direct"


def test_ipv6_needs_both_sides() -> None:
    six = replace(RESTRICTIVE, ipv6=True)
    assert predict(*pair(six, six)).why == "IPv6 on both sides"
    assert predict(*pair(six, RESTRICTIVE)).path == "relayed"


def test_without_udp_there_is_only_the_relay() -> None:
    blocked = Nat(blocked=True)
    reach = predict(*pair(PERMISSIVE, blocked))
    assert (reach.path, reach.why) == ("relayed", "UDP is blocked at b")
    inside = replace(blocked, public="203.0.113.7", networks=("10.0.0.0/8",))
    assert predict(*pair(inside, inside)).path == "direct"  # the LAN needs no way out
    assert predict(*pair(replace(blocked, ipv6=True), replace(PERMISSIVE, ipv6=True))).why == (
        "UDP is blocked at a"
    )


def test_the_papers_classes() -> None:
    assert [paper_class(nat) for nat in NATS] == [
        "permissive",
        "ordinary",
        "ordinary",
        "restrictive",
        "restrictive",
    ]
    assert paper_class(Nat()) == paper_class(Nat(EI, UNKNOWN)) == "unknown"
    assert paper_class(Nat(blocked=True)) == "blocked"


def test_the_papers_rule_errs_only_on_the_safe_side() -> None:
    """It relays ordinary with restrictive, of which the filter by address alone is direct."""
    wrong = []
    for a, b in product(NATS, NATS):
        paper = classes_relay(paper_class(a), paper_class(b))
        if paper != (predict(*pair(a, b)).path == "relayed"):
            assert paper
            wrong.append({a, b})
    assert wrong
    assert all(Nat(EI, AD) in each for each in wrong)


def test_paths_follow_the_ring() -> None:
    ring = [
        device("a", nat=RESTRICTIVE),
        device("b", nat=PERMISSIVE),
        device("c", nat=ORDINARY),
    ]
    assert paths_of(ring) == ("direct", "direct", "relayed")
    assert paths_of(ring[:1]) == ("direct",)
