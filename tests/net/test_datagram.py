"""Own datagrams: round trips, bounds, and garbage that raises ValueError and nothing else."""

import contextlib
import struct

import pytest
from aioice import stun
from hypothesis import given
from hypothesis import strategies as st

from kafila.defaults import CERTIFICATE_QUERY_SIZE, MAX_CERTIFICATE
from kafila.net.datagram import (
    CertificateAnswer,
    CertificateQuery,
    Family,
    binding_answer,
    binding_mapped,
    binding_request,
    decode_certificate,
    family,
)

eight = st.binary(min_size=8, max_size=8)


@given(eight, st.binary(min_size=1, max_size=MAX_CERTIFICATE))
def test_certificate_answers_are_never_larger_than_queries(
    transaction: bytes, certificate: bytes
) -> None:
    query = CertificateQuery(transaction).encode()
    answer = CertificateAnswer(transaction, certificate).encode()
    assert decode_certificate(query) == CertificateQuery(transaction)
    assert decode_certificate(answer) == CertificateAnswer(transaction, certificate)
    assert len(answer) <= len(query) == CERTIFICATE_QUERY_SIZE
    with pytest.raises(ValueError, match="neither"):
        decode_certificate(query[:-1])


@pytest.mark.parametrize("source", [("203.0.113.7", 4710), ("2001:db8::7", 65535)])
def test_stun_answers_are_never_larger_than_requests(source: tuple[str, int]) -> None:
    request = binding_request(b"t" * 12)
    answer = binding_answer(request, source)
    assert answer is not None
    assert len(answer) <= len(request)
    assert binding_mapped(answer) == (b"t" * 12, source)
    assert family(request) is family(answer) is Family.STUN


def test_a_bare_stun_request_would_be_amplified_and_gets_no_answer() -> None:
    bare = bytes(stun.Message(stun.Method.BINDING, stun.Class.REQUEST))
    assert binding_answer(bare, ("203.0.113.7", 4710)) is None


def test_a_stun_answer_is_not_answered() -> None:
    answer = binding_answer(binding_request(b"t" * 12), ("203.0.113.7", 4710))
    assert answer is not None
    assert binding_answer(answer, ("203.0.113.7", 4710)) is None
    assert binding_mapped(binding_request(b"t" * 12)) is None


def test_old_and_terse_stun_servers() -> None:
    def answer(attributes: dict[str, tuple[str, int]]) -> bytes:
        response = (stun.Method.BINDING, stun.Class.RESPONSE, b"t" * 12)
        return bytes(stun.Message(*response, attributes))

    seen = ("203.0.113.7", 4710)
    assert binding_mapped(answer({"MAPPED-ADDRESS": seen})) == (b"t" * 12, seen)
    assert binding_mapped(answer({})) is None


def test_the_first_byte_decides() -> None:
    readers = [family(bytes([first])) for first in range(256)]
    assert readers[:4] == [Family.STUN] * 4
    assert readers[64:] == [Family.QUIC] * 192
    own = {
        8: Family.CHECK,
        9: Family.CERTIFICATE,
        10: Family.REFLECTION,
        11: Family.RELAY,
        12: Family.BINDING,
    }
    assert readers[4:64] == [own.get(first) for first in range(4, 64)]
    assert family(b"") is None


attribute = st.tuples(st.integers(0, 0x8030), st.binary(max_size=12)).map(
    lambda pair: struct.pack("!HH", pair[0], len(pair[1])) + pair[1] + bytes(-len(pair[1]) % 4)
)
stunlike = st.lists(attribute, max_size=4).map(
    lambda attributes: (
        struct.pack("!HHI12s", 1, sum(map(len, attributes)), stun.COOKIE, bytes(12))
        + b"".join(attributes)
    )
)


@given(st.one_of(st.binary(max_size=1500), stunlike))
def test_garbage_raises_only_value_errors(garbage: bytes) -> None:
    for parse in (decode_certificate, binding_mapped):
        with contextlib.suppress(ValueError):
            parse(garbage)
    with contextlib.suppress(ValueError):
        binding_answer(garbage, ("203.0.113.7", 4710))
