"""The connections of a node: whose a datagram is, and who has something to send.

The node's part that is `connection.Shell`; a node adds what carries the datagrams.
"""

import asyncio
from abc import ABC, abstractmethod

from kafila.address import Address
from kafila.net.connection import Connection
from kafila.net.edge import Edge


class Connections(ABC):
    """All connections, by connection id too. Loop thread only."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._connections: dict[Connection, set[bytes]] = {}
        self._cids: dict[bytes, Connection] = {}
        self._received: dict[Connection, None] = {}
        self._awake: dict[Connection, None] = {}

    def receive(self, connection: Connection, datagram: bytes, source: Address) -> None:
        """Hand a connection its datagram; it acts on it in `process`."""
        connection.receive(datagram, source, self._loop.time())
        self._received[connection] = None

    def process(self) -> None:
        """Let connections act on all they have received, and send what they and their readers
        have to say at once: another turn of the loop would cost as much as two datagrams."""
        now = self._loop.time()
        received, self._received = self._received, {}
        for connection in received:
            connection.process(now)
        for connection in received:
            self._awake.pop(connection, None)
            connection.flush(now)

    def sever(self, address: Address) -> None:
        """What led to `address` is gone: so are its connections, but not edges, which have other
        paths."""
        for connection in list(self._connections):
            if connection.address == address and not isinstance(connection, Edge):
                connection.lost(f"the TLS connection with {connection.label} broke.")

    # --- what connections need ---------------------------------------------------------------

    @abstractmethod
    def send(self, datagram: bytes, address: Address) -> None:
        """Send a datagram now."""

    def wake(self, connection: Connection) -> None:
        """Flush `connection` at the end of this loop turn."""
        if not self._awake:
            self._loop.call_soon(self._flush)
        self._awake[connection] = None

    def _flush(self) -> None:
        """Let the connections that something happened to send."""
        awake, self._awake = self._awake, {}
        now = self._loop.time()
        for connection in awake:
            connection.flush(now)

    def join(self, connection: Connection) -> None:
        """Know a new connection."""
        self._connections[connection] = set()

    def route(self, cid: bytes, connection: Connection) -> None:
        """Bring datagrams with this connection id to `connection` (an edge has its paths)."""
        if not isinstance(connection, Edge):
            self._cids[cid] = connection
            self._connections[connection].add(cid)

    def unroute(self, cid: bytes) -> None:
        """Forget a connection id."""
        connection = self._cids.pop(cid, None)
        if connection is not None:
            self._connections[connection].discard(cid)

    def release(self, connection: Connection) -> None:
        """Forget a connection."""
        for cid in self._connections.pop(connection):
            del self._cids[cid]
