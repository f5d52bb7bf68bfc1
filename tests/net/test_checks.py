"""Path checks on the wire: round trips, tags; garbage raises ValueError and nothing else."""

import contextlib
from ipaddress import ip_address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafila.defaults import MAX_CANDIDATES
from kafila.net.checks import CHECK_SIZE, Check, CheckType, Signer, authentic, edge_key
from kafila.net.datagram import Family, family

KEY = b"k" * 32
eight = st.binary(min_size=8, max_size=8)
addresses = st.tuples(st.ip_addresses().map(str), st.integers(0, 65535))
checks = st.builds(
    Check,
    type=st.sampled_from(CheckType),
    from_client=st.booleans(),
    protocol=st.integers(0, 65535),
    edge=eight,
    transaction=eight,
    plan=eight,
    size=st.integers(CHECK_SIZE, 9000),
)
calls = st.builds(
    Check,
    type=st.just(CheckType.CALL),
    from_client=st.booleans(),
    protocol=st.integers(0, 65535),
    edge=eight,
    transaction=eight,
    plan=eight,
    size=st.integers(0, 1),
    candidates=st.lists(addresses, max_size=MAX_CANDIDATES).map(tuple),
)


@given(checks | calls)
def test_checks_return_as_they_were(check: Check) -> None:
    datagram = check.encode(KEY)
    assert Check.decode(datagram) == check
    assert authentic(datagram, KEY)
    assert not authentic(datagram, b"x" * 32)
    assert family(datagram) is Family.CHECK
    if check.type is CheckType.PING:
        assert len(datagram) == check.size
    elif check.type is not CheckType.CALL:
        assert len(datagram) == CHECK_SIZE


@given(checks | calls, st.data())
def test_a_changed_check_is_not_authentic(check: Check, data: st.DataObject) -> None:
    """Only the padding of a PING is nobody's concern."""
    datagram = bytearray(check.encode(KEY))
    signed = len(datagram) if check.type is CheckType.CALL else CHECK_SIZE
    where = data.draw(st.integers(0, signed - 1))
    datagram[where] ^= data.draw(st.integers(1, 255))
    assert not authentic(bytes(datagram), KEY)


def test_a_cut_check_is_none() -> None:
    ping = Check(CheckType.PING, True, 1, b"e" * 8, b"t" * 8, b"p" * 8, 1200).encode(KEY)
    with pytest.raises(ValueError, match="length"):
        Check.decode(ping[:-1])
    call = Check(
        CheckType.CALL, True, 1, b"e" * 8, bytes(8), b"p" * 8, 0, (("192.0.2.1", 5), ("::1", 5))
    )
    assert Check.decode(call.encode(KEY)) == call
    with pytest.raises(ValueError, match="addresses"):
        Check.decode(call.encode(KEY)[:-1])


def test_a_call_has_no_more_addresses_than_are_tried() -> None:
    many = tuple((str(ip_address(number)), 5) for number in range(1, MAX_CANDIDATES + 2))
    call = Check(CheckType.CALL, True, 1, b"e" * 8, bytes(8), b"p" * 8, 0, many).encode(KEY)
    with pytest.raises(ValueError, match="too many"):
        Check.decode(call)


def test_a_reflected_check_is_not_the_peers() -> None:
    client = Signer(KEY, b"e" * 8, True, 1, b"p" * 8)
    server = Signer(KEY, b"e" * 8, False, 1, b"p" * 8)
    ping = client.sign(CheckType.PING, b"t" * 8, 1200)
    assert server.genuine(ping, Check.decode(ping))
    assert not client.genuine(ping, Check.decode(ping))


def test_both_members_derive_one_edge() -> None:
    assert edge_key(b"s" * 32, b"a" * 32, b"b" * 32) == edge_key(b"s" * 32, b"b" * 32, b"a" * 32)
    assert edge_key(b"s" * 32, b"a" * 32, b"b" * 32) != edge_key(b"s" * 32, b"a" * 32, b"c" * 32)


@given(st.binary(max_size=300).map(lambda rest: b"\x08" + rest) | st.binary(max_size=300))
def test_garbage_raises_only_value_errors(garbage: bytes) -> None:
    with contextlib.suppress(ValueError):
        Check.decode(garbage)
