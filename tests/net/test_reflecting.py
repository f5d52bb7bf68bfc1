"""Reflection datagrams: what is written is read, what is not understood raises ValueError only."""

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafila.net.datagram import Family, family
from kafila.net.reflecting import ASK_SIZE, Answer, Ask, Knock, decode

COOKIE, TRANSACTION = bytes(range(16)), b"12345678"


@pytest.mark.parametrize("ports", [{0}, {1}, {0, 1}])
@pytest.mark.parametrize("size", [ASK_SIZE, 1200, 8900])
def test_an_ask(ports: set[int], size: int) -> None:
    ask = Ask(COOKIE, TRANSACTION, frozenset(ports), size)
    datagram = ask.encode()
    assert len(datagram) == size
    assert family(datagram) is Family.REFLECTION
    assert decode(datagram) == ask


@pytest.mark.parametrize("observed", [("203.0.113.9", 4710), ("2001:db8::9", 1)])
@pytest.mark.parametrize("port", [0, 1])
def test_an_answer(observed: tuple[str, int], port: int) -> None:
    answer = Answer(TRANSACTION, port, observed)
    assert decode(answer.encode()) == answer


def test_a_knock() -> None:
    assert decode(Knock(TRANSACTION).encode()) == Knock(TRANSACTION)


def test_answers_are_never_larger_than_what_they_answer() -> None:
    ask = Ask(COOKIE, TRANSACTION, frozenset((0, 1))).encode()
    answer = Answer(TRANSACTION, 1, ("2001:db8:ffff:ffff:ffff:ffff:ffff:ffff", 65535)).encode()
    assert 2 * len(answer) <= len(ask)


@pytest.mark.parametrize(
    "datagram",
    [
        b"",
        b"\x0a",
        b"\x0b\x01" + bytes(100),
        b"\x0a\x04" + bytes(8),
        b"\x0a\x03" + bytes(7),
        Ask(COOKIE, TRANSACTION, frozenset((0,))).encode()[:-1],
        Ask(COOKIE, TRANSACTION, frozenset()).encode(),
        b"\x0a\x01" + bytes(10_000),
        Answer(TRANSACTION, 2, ("203.0.113.9", 1)).encode(),
        Answer(TRANSACTION, 1, ("203.0.113.9", 1)).encode() + b"\0",
        b"\x0a\x02" + TRANSACTION + b"\0\5" + bytes(18),
    ],
)
def test_nonsense(datagram: bytes) -> None:
    with pytest.raises(ValueError, match=r"not a|neither|no port|no address"):
        decode(datagram)


@given(st.binary(max_size=200), st.integers(0, 4))
def test_anything_is_read_or_refused(noise: bytes, kind: int) -> None:
    for datagram in (noise, bytes((0x0A, kind)) + noise, os.urandom(0)):
        try:
            message = decode(datagram)
        except ValueError:
            continue
        assert decode(message.encode()) == message
