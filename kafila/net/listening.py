"""The door of a listening node: who is still proving a key, and how many may at once.

A QUIC Initial costs its sender one datagram with any source address, and this node a handshake's
state. So the newcomers that fill the first half of the places come as they are; from then on they
are first sent a Retry, and only who receives it gets further (RFC 9000 section 8.1.2).
"""

from collections.abc import Callable

from kafila.address import Address, format_address
from kafila.defaults import (
    CONTROL_WINDOW,
    HALF_OPEN_PER_ADDRESS,
    MAX_HALF_OPEN,
    MESSAGE_LIMIT,
    PATH_SIZES,
)
from kafila.errors import KafilaError
from kafila.net.carrier import on_the_wire
from kafila.net.connection import Connection, Shell
from kafila.net.handshake import ServerHandshake, Terms
from kafila.net.limits import site
from kafila.net.quic import Destination, Engine, Retries


class Listeners:
    """Makes connections of strangers' first datagrams, within bounds."""

    def __init__(self, shell: Shell, engine: Engine, key: bytes, idle_timeout: float) -> None:
        """`key` is this node's own."""
        self.half_open: dict[Connection, bool] = {}
        """Connections without a proven key; true for a proven address."""
        self._shell = shell
        self._engine = engine
        self._key = key
        self._idle_timeout = idle_timeout
        self._retries = Retries()
        self._accepts: dict[str, Callable[[Connection], None]] = {}

    def __bool__(self) -> bool:
        """Whether this node listens at all."""
        return bool(self._accepts)

    def add(self, alpn: str, accept: Callable[[Connection], None]) -> None:
        """Have `accept` called with each connection of this protocol whose client proved a key."""
        self._accepts[alpn] = accept

    def take(self, to: Destination, source: Address, terms: Terms, now: float) -> Connection | None:
        """Take the first datagram of a newcomer; None: it gets no connection (now)."""
        if not self._accepts or len(self.half_open) >= MAX_HALF_OPEN:
            return None
        first = to.cid
        if to.token:
            proven = self._retries.first_cid(to, source, now)
            if proven is None or self._crowd(site(source[0])) >= HALF_OPEN_PER_ADDRESS:
                return None
            first = proven
        elif len(self.half_open) >= MAX_HALF_OPEN // 2:
            self._shell.send(self._retries.datagram(to, source, now), source)
            return None
        quic = self._engine.accept(
            to.cid,
            first=first,
            alpns=list(self._accepts),
            size=PATH_SIZES[0],
            window=CONTROL_WINDOW,
        )
        connection = Connection(
            self._shell,
            quic,
            ServerHandshake(self._key, terms, expected=None),
            label=f"the client at {format_address(on_the_wire(source))}",
            address=source,
            limit=MESSAGE_LIMIT,
            channels=1,
            idle_timeout=self._idle_timeout,
            on_opened=self._opened,
        )
        self.half_open[connection] = bool(to.token)
        return connection

    def forget(self, connection: Connection) -> None:
        """It is closed."""
        self.half_open.pop(connection, None)

    def close(self) -> None:
        """End what has proven nothing yet."""
        for connection in list(self.half_open):
            connection.abort("")

    def _crowd(self, place: str) -> int:
        """How many newcomers there are that proved to be there: others may feign to be."""
        return sum(
            proven and site(connection.address[0]) == place
            for connection, proven in self.half_open.items()
        )

    def _opened(self, connection: Connection, problem: KafilaError | None) -> None:
        self.forget(connection)
        if problem is None:
            self._accepts[connection.alpn](connection)
