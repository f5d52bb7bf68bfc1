"""What goes on a connection's channels: messages in, pieces of streams to QUIC.

The other side of `inbox`. Knows neither the peer nor a loop.
"""

from typing import Protocol

from kafila.net.channels import frame, opening


class Streams(Protocol):
    """What it needs of QUIC."""

    def open_stream(self, data: bytes) -> int:
        """Open a unidirectional stream with its first bytes; return its number."""

    def send(self, stream: int, data: bytes, *, end: bool = False) -> None:
        """Queue bytes on a stream."""


class Outbox:
    """This end's side of all channels."""

    def __init__(self, streams: Streams, channels: int, limit: int) -> None:
        """`channels` bounds their numbers, `limit` a message in bytes."""
        self.unsent = 0
        """About how many bytes wait to be sent (a retransmission counts as progress)."""
        self._streams = streams
        self._channels = channels
        self._limit = limit
        self._open: dict[int, int] = {}

    def put(self, channel: int, message: bytes) -> None:
        """Queue a message. Raises ValueError if it is too long, or the channel is none."""
        if len(message) > self._limit:
            raise ValueError(
                f"a message of {len(message)} bytes, at most {self._limit} are allowed"
            )
        stream = self._open.get(channel)
        if stream is not None:
            self._streams.send(stream, frame(message))
        elif 0 <= channel < self._channels:
            self._open[channel] = self._streams.open_stream(opening(channel) + frame(message))
        else:
            raise ValueError(f"channel {channel}, there are {self._channels}")
        self.unsent += len(message)

    def gone(self, size: int) -> None:
        """So many bytes of datagrams were sent."""
        self.unsent = max(0, self.unsent - size)

    def end(self) -> int:
        """End every channel; return how many there were."""
        for stream in self._open.values():
            self._streams.send(stream, b"", end=True)
        return len(self._open)
