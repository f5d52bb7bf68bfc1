"""Messages over streams: whatever the pieces, the same messages in the same order."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafila.net.channels import Incoming, Messages, frame, opening


@given(st.lists(st.binary(max_size=50)), st.lists(st.integers(1, 30)))
def test_pieces_do_not_matter(messages: list[bytes], cuts: list[int]) -> None:
    stream = opening(7) + b"".join(map(frame, messages))
    incoming = Incoming(channels=8, limit=50)
    received = []
    for cut in [*cuts, len(stream)]:
        received += incoming.feed(stream[:cut])
        stream = stream[cut:]
    assert received == messages
    assert incoming.channel == 7


def test_a_message_over_the_limit_is_refused_by_its_length_alone() -> None:
    messages = Messages(limit=100)
    assert messages.feed(frame(bytes(100))) == [bytes(100)]
    with pytest.raises(ValueError, match="101 bytes"):
        messages.feed(frame(bytes(101))[:4])


def test_a_channel_that_is_none_is_refused() -> None:
    with pytest.raises(ValueError, match="channel 8"):
        Incoming(channels=8, limit=10).feed(opening(8))


@given(st.lists(st.binary(max_size=300)))
def test_garbage_raises_only_value_errors_and_is_not_hoarded(pieces: list[bytes]) -> None:
    incoming = Incoming(channels=300, limit=1000)
    with contextlib.suppress(ValueError):
        for piece in pieces:
            assert all(len(message) <= 1000 for message in incoming.feed(piece))
