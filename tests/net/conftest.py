"""Real nodes on loopback, closed when a test ends; identities in the test's own folder."""

from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

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

    async def open_node(name: str, idle_timeout: float = 15.0, port: int = 0) -> Node:
        opened.append(
            await Node.open(identity(name), "127.0.0.1", port, idle_timeout=idle_timeout)
        )
        return opened[-1]

    yield open_node
    for each in opened:
        await each.close()


def peer(name: str, at: Node, identity: Identity | None = None) -> Peer:
    """Describe the node `at` as a plan does; `identity`: as if it had these keys."""
    who = identity or at.identity
    return Peer(name, who.key, who.exchange_key, who.certificate, at.local_candidates())
