"""Real nodes on loopback, closed when a test ends; identities in the test's own folder."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from kafila.net.connection import Connection
from kafila.net.edge import Peer
from kafila.net.identity import Identity
from kafila.net.node import Node

SESSION = b"s" * 32
DIGEST = b"d" * 32


@pytest.fixture
def identity(tmp_path: Path) -> Callable[[str], Identity]:
    """Make, or find again, the identity of a name."""
    return lambda name: Identity.load_or_create(tmp_path / name)


@pytest.fixture
async def node(
    identity: Callable[[str], Identity],
) -> AsyncIterator[Callable[..., Awaitable[Node]]]:
    """Open a node of a name on loopback; closed at the end."""
    opened = []

    async def open_node(
        name: str, idle_timeout: float = 15.0, port: int = 0, host: str = "127.0.0.1"
    ) -> Node:
        opened.append(await Node.open(identity(name), host, port, idle_timeout=idle_timeout))
        return opened[-1]

    yield open_node
    for each in opened:
        await each.close()


def peer(name: str, at: Node, identity: Identity | None = None) -> Peer:
    """Describe the node `at` as a plan does; `identity`: as if it had these keys."""
    who = identity or at.identity
    places = at.local_candidates()
    return Peer(name, who.key, who.exchange_key, who.certificate, places, at.nonce)


class Inbox:
    """What has arrived on a connection."""

    def __init__(self, connection: Connection) -> None:
        self.messages: list[tuple[int, bytes]] = []
        self._arrived = asyncio.Event()
        connection.on_message = self._take

    def _take(self, channel: int, message: bytes) -> None:
        self.messages.append((channel, message))
        self._arrived.set()

    async def wait_for(self, count: int) -> list[tuple[int, bytes]]:
        async with asyncio.timeout(30):
            while len(self.messages) < count:
                self._arrived.clear()
                await self._arrived.wait()
        return self.messages
