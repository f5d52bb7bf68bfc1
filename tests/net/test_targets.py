"""Which addresses of a peer get a PING."""

import pytest

from kafila.defaults import MAX_CANDIDATES
from kafila.net.targets import near, outside, reachable


def test_loopback_leads_nowhere_from_another_machine() -> None:
    loopback, lan = ("127.0.0.1", 5), ("192.0.2.1", 5)
    assert reachable([lan, loopback], [("192.0.2.1", 9)]) == [lan, loopback]
    assert reachable([lan, loopback], [("192.0.2.7", 9), ("127.0.0.1", 9)]) == [lan]
    assert reachable([loopback], [("192.0.2.7", 9)]) == [loopback]
    assert reachable([("::1", 5), ("2001:db8::1", 5)], [("2001:db8::7", 9)]) == [("2001:db8::1", 5)]


def test_only_addresses_of_one_host_are_tried_and_not_many() -> None:
    bad = ["224.0.0.1", "0.0.0.0", "0.1.2.3", "255.255.255.255", "example.org", "1.2.3"]
    bad += ["ff02::1", "::", "fe80::1", "::ffff:192.0.2.1", "192.0.2.1%eth0"]
    assert reachable([(host, 5) for host in bad], []) == []
    assert reachable([("192.0.2.1", 0), ("192.0.2.1", 65536)], []) == []
    many = [("192.0.2.1", port) for port in range(1, 30)]
    assert reachable(many + many, []) == many[:MAX_CANDIDATES]


def test_only_addresses_of_a_family_that_there_is_a_socket_for() -> None:
    both = [("192.0.2.1", 5), ("2001:db8::1", 5)]
    assert reachable(both, []) == both
    assert reachable(both, [], [4]) == both[:1]
    assert reachable(both, [], [6]) == both[1:]


@pytest.mark.parametrize(
    ("host", "is_near"),
    [
        ("127.0.0.1", True),
        ("192.168.1.7", True),
        ("172.16.0.1", True),
        ("100.64.0.1", True),
        ("fd00::1", True),
        ("192.0.2.5", True),
        ("192.0.2.1", False),
        ("203.0.113.9", False),
        ("2001:db8::1", False),
    ],
)
def test_what_no_nat_lies_before(host: str, is_near: bool) -> None:
    assert near((host, 5), own=[("192.0.2.5", 9)]) is is_near


def test_the_outside_of_a_nat_is_the_first_public_ipv4_address() -> None:
    candidates = [("192.168.1.2", 5), ("2001:db8::1", 5), ("198.51.100.1", 7), ("198.51.100.1", 5)]
    assert outside(candidates) == ("198.51.100.1", 7)
    assert outside(candidates[:2]) is None
