"""Messages over QUIC streams: a pure codec that knows neither QUIC nor sockets.

A stream is a channel number (two bytes) and then messages, each behind its length (four bytes,
big-endian). Every length is checked before a byte of the message is kept.
"""

import struct
from typing import Final

_LENGTH: Final = struct.Struct("!I")
_CHANNEL: Final = struct.Struct("!H")


def opening(channel: int) -> bytes:
    """Return the bytes a channel's stream starts with."""
    return _CHANNEL.pack(channel)


def frame(message: bytes) -> bytes:
    """Return a message with its length in front."""
    return _LENGTH.pack(len(message)) + message


class Messages:
    """Reassembles messages of at most `limit` bytes from the pieces of a stream."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._buffer = bytearray()

    def feed(self, data: bytes) -> list[bytes]:
        """Take the next bytes, return the messages they complete.

        Raises ValueError for a message over the limit.
        """
        buffer = self._buffer
        buffer += data
        messages = []
        start = 0
        while len(buffer) - start >= _LENGTH.size:
            (length,) = _LENGTH.unpack_from(buffer, start)
            if length > self._limit:
                raise ValueError(f"a message of {length} bytes, at most {self._limit} are allowed")
            end = start + _LENGTH.size + length
            if len(buffer) < end:
                break
            with memoryview(buffer) as view:
                messages.append(bytes(view[start + _LENGTH.size : end]))
            start = end
        del buffer[:start]
        return messages


class Incoming:
    """A stream of the peer: which channel it is, and its messages."""

    def __init__(self, channels: int, limit: int) -> None:
        self.channel: int | None = None
        self._channels = channels
        self._messages = Messages(limit)
        self._head = b""

    def feed(self, data: bytes) -> list[bytes]:
        """Take the next bytes; return the messages they complete, once `channel` is known.

        Raises ValueError for a channel number or a message over its limit.
        """
        if self.channel is None:
            self._head += data
            if len(self._head) < _CHANNEL.size:
                return []
            (channel,) = _CHANNEL.unpack_from(self._head)
            if channel >= self._channels:
                raise ValueError(f"channel {channel}, there are {self._channels}")
            self.channel = channel
            data, self._head = self._head[_CHANNEL.size :], b""
        return self._messages.feed(data)
