"""What comes on a connection's channels: pieces of streams in, messages to a reader.

Messages wait here for a reader that is not there yet. Knows neither QUIC nor a loop.
"""

from collections.abc import Callable

from kafila.defaults import KEPT_MESSAGE_BYTES
from kafila.net.channels import Incoming

Reader = Callable[[int, bytes], None]


class Inbox:
    """The peer's side of all channels."""

    def __init__(
        self, channels: int, limit: int, call: Callable[[Reader, int, bytes], None]
    ) -> None:
        """`limit` bounds a message in bytes; `call` calls the reader with a message."""
        self.reader: Reader | None = None
        self.ended = 0
        """Channels of which all has come."""
        self._channels = channels
        self._limit = limit
        self._call = call
        self._streams: dict[int, Incoming] = {}
        self._opened: set[int] = set()
        self._waiting: list[tuple[int, bytes]] = []
        self._waiting_bytes = 0
        self._shut = False

    def take(self, stream: int, data: bytes, end: bool) -> None:
        """Take the next bytes of a stream. Raises ValueError if they break the rules."""
        if stream not in self._streams:
            self._streams[stream] = Incoming(self._channels, self._limit)
        incoming = self._streams[stream]
        known = incoming.channel is not None
        messages = incoming.feed(data)
        if incoming.channel is None:
            if end:
                raise ValueError("a channel ended before it began")
            return
        if not known and incoming.channel in self._opened:
            raise ValueError(f"it opened channel {incoming.channel} twice")
        self._opened.add(incoming.channel)
        for message in messages:
            self._deliver(incoming.channel, message)
        self.ended += end

    def catch_up(self) -> None:
        """Give the reader what has waited for it."""
        waiting, self._waiting, self._waiting_bytes = self._waiting, [], 0
        for channel, message in waiting:
            self._deliver(channel, message)

    def shut(self) -> None:
        """Drop whatever still comes: nobody reads any more."""
        self._shut = True

    def _deliver(self, channel: int, message: bytes) -> None:
        if self._shut:
            return
        if self.reader is not None and not self._waiting:
            self._call(self.reader, channel, message)
            return
        self._waiting.append((channel, message))
        self._waiting_bytes += len(message) + KEPT_MESSAGE_BYTES
        if self._waiting_bytes > 2 * self._limit:
            raise ValueError("it sends to a reader that is not there")
