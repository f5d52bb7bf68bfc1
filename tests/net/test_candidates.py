"""Which addresses a member names, best first: interfaces in, addresses out."""

import pytest

from kafila.address import Address
from kafila.defaults import MAX_CANDIDATES
from kafila.net.candidates import (
    Interface,
    global_ipv6,
    interfaces,
    networks,
    outward_ipv6,
    rank,
)

LO = Interface("lo", 65536, [("127.0.0.1", 8), ("::1", 128)])
LAN = Interface("eth0", 1500, [("192.168.1.7", 24), ("2001:db8::7", 64), ("fe80::7", 64)])
WIFI = Interface("wlan0", 1500, [("10.9.0.4", 20), ("fd00::4", 64)])
VPN = Interface("wg0", 1420, [("100.64.3.3", 32), ("2001:db8:5::3", 128)])
PUBLIC = ("203.0.113.5", 40001)


def hosts(places: list[Address]) -> list[str]:
    return [host for host, _ in places]


def test_real_interfaces_then_ipv6_then_reflexive_then_virtual_then_loopback() -> None:
    found = rank([VPN, LO, LAN], port=7, port6=8, reflexive=[PUBLIC])
    assert found == [
        ("192.168.1.7", 7),
        ("2001:db8::7", 8),
        PUBLIC,
        ("203.0.113.5", 7),  # where a NAT keeps the port for one peer, it may for the next
        ("100.64.3.3", 7),
        ("2001:db8:5::3", 8),
        ("127.0.0.1", 7),
    ]


def test_without_a_socket_of_a_family_it_has_no_addresses() -> None:
    assert hosts(rank([LAN, LO], port=7, port6=None)) == ["192.168.1.7", "127.0.0.1"]
    assert hosts(rank([LAN, LO], port=None, port6=8)) == ["2001:db8::7"]


def test_a_public_address_is_named_once() -> None:
    public = Interface("eth0", 1500, [("203.0.113.5", 24)])
    assert rank([public, LO], port=40001, port6=None, reflexive=[PUBLIC]) == [
        PUBLIC,
        ("127.0.0.1", 40001),
    ]


def test_nothing_starves_the_good_ones() -> None:
    """Containers by the dozen, many cards, many IPv6 addresses."""
    junk = [Interface(f"docker{n}", 1500, [(f"172.{16 + n}.0.1", 16)]) for n in range(12)]
    cards = [Interface(f"eth{n}", 1500, [(f"192.168.{n}.7", 24)]) for n in range(6)]
    private = Interface("eno1", 1500, [(f"2001:db8::{n}", 64) for n in range(1, 9)])
    found = rank([*junk, *cards, private, LO], port=7, port6=8, reflexive=[PUBLIC])
    assert len(found) == MAX_CANDIDATES
    assert PUBLIC in found
    assert ("203.0.113.5", 7) in found
    assert found[0] == ("192.168.0.7", 7)
    assert sum(":" in host for host in hosts(found)) == 2
    assert found[-1] == ("127.0.0.1", 7)
    assert not any(host.startswith("172.") for host in hosts(found))


def test_the_address_that_ipv6_leaves_from_comes_first() -> None:
    """A firewall on the way lets in answers to that one only."""
    addresses = [("fd00::1", 64), ("2600::1", 64), ("2600::2", 64), ("2600::3", 64)]
    card = Interface("eth0", 1500, addresses)
    assert hosts(rank([card], port=None, port6=8))[:2] == ["2600::1", "2600::2"]
    found = hosts(rank([card], port=None, port6=8, outward="2600::3"))
    assert found[:2] == ["2600::3", "2600::1"]


@pytest.mark.parametrize(
    ("name", "mtu", "virtual"),
    [
        ("eth0", 1500, False),
        ("wlp3s0", 1400, False),
        ("en0", 0, False),
        ("eth0", 1279, True),
        ("tun0", 1500, True),
        ("tailscale0", 1280, True),
        ("br-12ab", 1500, True),
        ("utun3", 1380, True),
        ("ztabc", 2800, True),
    ],
)
def test_virtual_interfaces(name: str, mtu: int, virtual: bool) -> None:
    assert Interface(name, mtu, []).virtual is virtual


def test_networks_are_those_of_real_interfaces() -> None:
    point = Interface("eth9", 1500, [("198.51.100.1", 32), ("169.254.1.1", 16)])
    assert networks([LO, LAN, WIFI, VPN, point, LAN]) == ["192.168.1.0/24", "10.9.0.0/20"]


def test_this_machine_has_addresses() -> None:
    here = interfaces()
    found = rank(here, port=7, port6=8, outward=outward_ipv6())
    assert found[-1] == ("127.0.0.1", 7)
    assert len(set(found)) == len(found)
    assert not any(host.startswith(("127.", "fe80", "::1")) for host in hosts(found[:-1]))
    assert all("/" in network for network in networks(here))
    outward = global_ipv6()
    assert outward is None or outward in hosts(found)
