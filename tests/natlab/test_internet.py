"""The lab's internet: what links do, and packets over the real devices."""

import random
import time
from collections.abc import Callable

import pytest

from tests.natlab.prober import received
from tools.natlab.internet import HOPS, Internet, Link
from tools.natlab.lab import FIRST, Lab

A, B, C = "203.0.113.1", "203.0.113.2", "203.0.113.3"


def packet(to: str, *, ttl: int = 64, size: int = 100) -> bytes:
    """An IPv4 packet with a right checksum."""
    head = bytearray(20)
    head[0], head[8], head[9] = 0x45, ttl, 17
    head[2:4] = size.to_bytes(2, "big")
    head[16:20] = bytes(map(int, to.split(".")))
    head[10:12] = (0xFFFF - _sum(head)).to_bytes(2, "big")
    return bytes(head) + bytes(size - 20)


def _sum(head: bytes | bytearray) -> int:
    total = sum(int.from_bytes(head[i : i + 2], "big") for i in range(0, 20, 2))
    while total > 0xFFFF:
        total = (total & 0xFFFF) + (total >> 16)
    return total


@pytest.fixture
def net() -> Internet:
    made = Internet()
    for site, address in enumerate((A, B, C)):
        made.attach(site, [address])
    return made


def test_a_packet_ages_and_keeps_its_checksum_right(net: Internet) -> None:
    for ttl in range(HOPS + 1, 256):
        routed = net.route(packet(B, ttl=ttl), 0, 0.0)
        assert routed is not None
        assert routed[1] == 1
        assert routed[2][8] == ttl - HOPS
        assert _sum(routed[2][:20]) == 0xFFFF
    assert net.route(packet(B, ttl=HOPS), 0, 0.0) is None


@pytest.mark.parametrize("wrong", [b"", b"\x60" + bytes(60), packet("192.0.2.1"), packet(A)])
def test_what_has_no_destination_goes_nowhere(net: Internet, wrong: bytes) -> None:
    assert net.route(wrong, 0, 0.0) is None


def test_links_differ_by_pair_and_change_while_packets_flow(net: Internet) -> None:
    net.everywhere(delay=0.04)
    net.link(1, 0, delay=0.01)

    def due(source: int, to: str) -> float | None:
        routed = net.route(packet(to), source, 5.0)
        return routed and routed[0]

    assert due(0, B) == due(1, A) == 5.01
    assert due(0, C) == 5.04
    net.link(0, 1, blackhole=True)
    assert due(0, B) is due(1, A) is None
    assert due(1, C) == 5.04
    net.link(0, 1, blackhole=False)
    assert due(0, B) == 5.01  # the delay stayed
    net.everywhere(loss=1.0)
    assert due(0, B) is due(0, C) is None


def test_loss_and_jitter_are_as_told() -> None:
    chance = random.Random(1)
    link = Link(delay=1.0, jitter=0.5, loss=0.2)
    due = [link.due(100, 1, 0.0, chance) for _ in range(10_000)]
    came = [each for each in due if each is not None]
    assert 7_800 < len(came) < 8_200
    assert 1.0 <= min(came) < 1.01
    assert 1.49 < max(came) < 1.5


def test_a_rate_spaces_packets_and_drops_what_would_wait_too_long() -> None:
    link = Link(rate=10_000)
    chance = random.Random(1)
    assert [link.due(100, 1, 0.0, chance) for _ in range(3)] == pytest.approx([0.01, 0.02, 0.03])
    assert link.due(100, 0, 0.0, chance) == pytest.approx(0.01)  # the other direction
    due = [link.due(100, 1, 0.0, chance) for _ in range(20)]
    assert due.count(None) == 12
    assert link.due(100, 1, 1.0, chance) == pytest.approx(1.01)


def test_unknown_conditions_are_refused(net: Internet) -> None:
    with pytest.raises(ValueError, match="links have no lag"):
        net.link(0, 1, lag=1)


@pytest.mark.netns
def test_packets_cross_it_late_and_not_at_all(lab: Callable[..., Lab]) -> None:
    scene = lab(0.05)
    here, there = scene.rendezvous(), scene.public("there", "198.51.100.9")
    with here.udp(5000) as a, there.udp(5000) as b:
        start = time.monotonic()
        a.sendto(b"over", ("198.51.100.9", 5000))
        assert received(b) == (FIRST, 5000)
        assert time.monotonic() - start >= 0.05
        scene.link("there", "rendezvous", blackhole=True)
        a.sendto(b"over", ("198.51.100.9", 5000))
        assert received(b) is None
        scene.link("there", "rendezvous", blackhole=False, delay=0.0)
        a.sendto(b"over", ("198.51.100.9", 5000))
        assert received(b) == (FIRST, 5000)
