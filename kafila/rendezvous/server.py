"""The rendezvous as a process: a node that listens, the registry, and a clock between them."""

import asyncio
import contextlib
import time
from collections.abc import Callable

from kafila import defaults as d
from kafila.net.connection import Connection
from kafila.net.identity import Identity
from kafila.net.node import Node
from kafila.rendezvous.actions import Action, Close, Log, Send
from kafila.rendezvous.messages import ALPN, CONTROL
from kafila.rendezvous.registry import Registry


class Rendezvous:
    """Serves until closed. `log` gets one line per thing worth telling its keeper."""

    def __init__(self, node: Node, key: bytes, log: Callable[[str], None]) -> None:
        self.node = node
        self.key = key
        self._log = log
        self._registry = Registry()
        self._connections: dict[int, Connection] = {}
        self._count = 0
        self._closing: set[asyncio.Task[None]] = set()
        node.listen(ALPN, self._accept)
        self._ticking = asyncio.create_task(self._tick())

    @classmethod
    async def open(
        cls,
        identity: Identity,
        host: str = "0.0.0.0",  # a rendezvous is there to be reached
        port: int = d.RENDEZVOUS_PORT,
        log: Callable[[str], None] = lambda line: None,
    ) -> "Rendezvous":
        """Raises NetworkProblem when the port is in use."""
        return cls(await Node.open(identity, host, port), identity.key, log)

    @property
    def address(self) -> tuple[str, int]:
        return self.node.address

    async def close(self) -> None:
        self._ticking.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._ticking
        await self.node.close()

    def _accept(self, connection: Connection) -> None:
        self._count += 1
        number = self._count
        self._connections[number] = connection
        connection.on_message = lambda _, data: self._message(number, data)
        connection.on_closed = lambda reason: self._closed(number)
        now = time.monotonic()
        self._perform(
            self._registry.connected(number, connection.peer_key, connection.address[0], now)
        )

    def _message(self, number: int, data: bytes) -> None:
        self._perform(self._registry.received(number, data, time.monotonic()))

    def _closed(self, number: int) -> None:
        self._connections.pop(number, None)
        self._perform(self._registry.disconnected(number, time.monotonic()))

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(1)
            self._perform(self._registry.tick(time.monotonic()))

    def _perform(self, actions: list[Action]) -> None:
        for action in actions:
            match action:
                case Log():
                    self._log(action.line)
                case Send():
                    self._send(action)
                case Close():
                    self._close(action.connection, action.reason)

    def _send(self, action: Send) -> None:
        connection = self._connections.get(action.connection)
        if connection is None or connection.closed:
            return
        if connection.unsent > d.UNSENT_LIMIT:
            self._close(action.connection, "too much is waiting to be read")
        else:
            connection.send(CONTROL, action.message.encode())

    def _close(self, number: int, reason: str) -> None:
        connection = self._connections.get(number)
        if connection is None:
            return
        task = asyncio.create_task(connection.close(reason))
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)
        self._closed(number)  # a connection does not report that we closed it
