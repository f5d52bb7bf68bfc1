"""The key exchange: right, wrong, tampered with, replayed."""

import itertools

import pytest

from kafila.session.pake import MESSAGE, Channel, Pake, PakeFailure, Terms

TERMS = Terms(7, b"m" * 32, b"h" * 32)


def channels(
    theirs: bytes = b"amber-falcon-canyon", terms: Terms = TERMS
) -> tuple[Channel, Channel]:
    """Channels of a member with the right words, and of a host with the given ones."""
    member = Pake("member", b"amber-falcon-canyon", TERMS)
    host = Pake("host", theirs, terms)
    return member.finish(host.message), host.finish(member.message)


def test_the_right_words_open_a_channel_both_ways() -> None:
    member, host = channels()
    member.confirm(host.proof)
    host.confirm(member.proof)
    assert member.proof != host.proof
    for text in (b"one", b"", b"x" * 10000):
        assert host.incoming.open(member.outgoing.seal(text)) == text
        assert member.incoming.open(host.outgoing.seal(text)) == text


@pytest.mark.parametrize(
    ("words", "terms"),
    [
        (b"amber-falcon-river", TERMS),
        (b"amber-falcon-canyon", Terms(8, TERMS.member, TERMS.host)),
        (b"amber-falcon-canyon", Terms(7, b"x" * 32, TERMS.host)),
        (b"amber-falcon-canyon", Terms(7, TERMS.member, b"x" * 32)),
        (b"amber-falcon-canyon", Terms(7, TERMS.host, TERMS.member)),
    ],
)
def test_other_words_numbers_or_keys_are_not_confirmed(words: bytes, terms: Terms) -> None:
    member, host = channels(words, terms)
    with pytest.raises(PakeFailure):
        member.confirm(host.proof)
    with pytest.raises(PakeFailure):
        host.confirm(member.proof)
    with pytest.raises(PakeFailure):
        host.incoming.open(member.outgoing.seal(b"secret"))


def test_a_proof_is_not_good_for_its_own_side() -> None:
    member, host = channels()
    with pytest.raises(PakeFailure):
        member.confirm(member.proof)
    with pytest.raises(PakeFailure):
        host.confirm(host.proof)


def test_altered_messages_open_nothing() -> None:
    member, host = channels()
    sealed = member.outgoing.seal(b"report")
    for i in range(len(sealed)):
        copy = bytearray(sealed)
        copy[i] ^= 1
        _, fresh = channels()
        with pytest.raises(PakeFailure):
            fresh.incoming.open(bytes(copy))
    assert host.incoming.open(sealed) == b"report"


def test_replayed_reordered_or_reflected_messages_open_nothing() -> None:
    member, host = channels()
    first, second = member.outgoing.seal(b"1"), member.outgoing.seal(b"2")
    with pytest.raises(PakeFailure):
        member.incoming.open(first)
    with pytest.raises(PakeFailure):
        host.incoming.open(second)
    member, host = channels()
    first = member.outgoing.seal(b"1")
    assert host.incoming.open(first) == b"1"
    with pytest.raises(PakeFailure):
        host.incoming.open(first)


def test_messages_that_are_no_points_are_refused() -> None:
    honest = Pake("host", b"w", TERMS).message
    zero = b"\1" + bytes(31)
    bad = [b"", honest[:-1], honest + b"x", b"A" + honest[1:], b"B" + zero, b"B" + b"\xff" * 32]
    for message in bad:
        with pytest.raises(PakeFailure):
            Pake("member", b"w", TERMS).finish(message)


def test_a_reflected_exchange_is_refused() -> None:
    member = Pake("member", b"w", TERMS)
    with pytest.raises(PakeFailure):
        member.finish(b"B" + member.message[1:])


def test_messages_of_a_fixed_length_never_repeat() -> None:
    messages = [Pake("member", b"w", TERMS).message for _ in range(4)]
    assert all(len(message) == MESSAGE for message in messages)
    assert all(a != b for a, b in itertools.combinations(messages, 2))
