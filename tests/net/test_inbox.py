"""Messages that wait for their reader, and the order they come in."""

from collections.abc import Callable

import pytest

from kafila.defaults import KEPT_MESSAGE_BYTES
from kafila.net.channels import frame, opening
from kafila.net.inbox import Inbox

LIMIT = 4 * KEPT_MESSAGE_BYTES


def call(reader: Callable[[int, bytes], None], channel: int, message: bytes) -> None:
    reader(channel, message)


def test_messages_wait_in_order_and_new_ones_queue_up_behind() -> None:
    inbox = Inbox(4, LIMIT, call)
    got: list[tuple[int, bytes]] = []
    inbox.take(2, opening(1) + frame(b"one") + frame(b"two"), False)
    inbox.reader = lambda channel, message: got.append((channel, message))
    inbox.take(6, opening(3) + frame(b"three"), True)
    assert got == []
    inbox.catch_up()
    inbox.take(2, frame(b"four"), False)
    assert got == [(1, b"one"), (1, b"two"), (3, b"three"), (1, b"four")]
    assert inbox.ended == 1


def test_who_sends_to_no_reader_is_stopped_even_with_empty_messages() -> None:
    inbox = Inbox(1, LIMIT, call)
    inbox.take(2, opening(0) + frame(b"") * 8, False)
    with pytest.raises(ValueError, match="reader that is not there"):
        inbox.take(2, frame(b""), False)


def test_a_shut_inbox_keeps_nothing_and_still_counts() -> None:
    inbox = Inbox(1, LIMIT, call)
    inbox.shut()
    inbox.take(2, opening(0) + frame(b"x" * LIMIT) * 10, False)
    inbox.take(2, b"", True)
    assert inbox.ended == 1


def test_streams_and_channels_fit_together() -> None:
    inbox = Inbox(2, LIMIT, call)
    inbox.take(2, opening(1), False)
    with pytest.raises(ValueError, match="twice"):
        inbox.take(6, opening(1), False)
    with pytest.raises(ValueError, match="before it began"):
        inbox.take(10, b"\0", True)
    with pytest.raises(ValueError, match="channel 2, there are 2"):
        inbox.take(14, opening(2), False)
