"""Token buckets: how much anybody gets, how much is remembered, and who counts as one."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafila.net.limits import Rates, network, site


@given(st.lists(st.floats(0, 0.2), min_size=1, max_size=300))
def test_nobody_gets_more_than_burst_and_rate(pauses: list[float]) -> None:
    rates, now, granted = Rates(20, 40, 10), 0.0, 0
    for pause in pauses:
        now += pause
        granted += rates.take(b"a", now)
        assert granted <= 40 + 20 * now + 1e-6


def test_who_waits_gets_all_again_and_the_others_were_never_touched() -> None:
    rates = Rates(20, 40, 10)
    assert [rates.take(b"a", 0.0) for _ in range(41)] == [True] * 40 + [False]
    assert rates.take(b"b", 0.0)
    assert rates.take(b"a", 0.06)
    assert not rates.take(b"a", 0.06)
    assert [rates.take(b"a", 100.0) for _ in range(41)] == [True] * 40 + [False]


def test_memory_is_bounded() -> None:
    rates = Rates(20, 1, 100)
    for number in range(1000):
        assert rates.take(number.to_bytes(2), 0.0)
        assert not rates.take(number.to_bytes(2), 0.0)
        assert len(rates._buckets) <= 100


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("203.0.113.5", "203.0.113.250", True),
        ("203.0.113.5", "203.0.114.5", False),
        ("2001:db8:0:1::5", "2001:db8:0:ff::7", True),
        ("2001:db8:0:1::5", "2001:db8:0:100::5", False),
    ],
)
def test_networks(one: str, other: str, same: bool) -> None:
    assert (network(one) == network(other)) is same


def test_this_machine_limits_itself() -> None:
    assert network("127.0.0.9") is None
    assert network("::1") is None


def test_sites() -> None:
    assert site("192.0.2.1") == site("::ffff:192.0.2.1") == "192.0.2.1"
    assert site("fe80::1%eth0") == site("fe80::2%eth1") == "fe80::/64"
    assert site("2001:db8:0:1::5") != site("2001:db8:0:2::5")
