"""A rendezvous on loopback, and members with identities, sockets and connections of their own."""

from pathlib import Path
from types import TracebackType

from kafila.net.identity import Identity
from kafila.net.node import Node
from kafila.rendezvous.client import RendezvousClient
from kafila.rendezvous.server import Rendezvous

LOOPBACK = "127.0.0.1"


class Lan:
    """Closes everything that was opened in it."""

    def __init__(self, folder: Path) -> None:
        self.log: list[str] = []
        self.nodes: list[Node] = []
        self._folder = folder

    async def __aenter__(self) -> "Lan":
        self.rendezvous = await Rendezvous.open(
            self.identity("rendezvous"), LOOPBACK, 0, self.log.append
        )
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        for node in self.nodes:
            await node.close()
        await self.rendezvous.close()

    def identity(self, name: str) -> Identity:
        """The same one for the same name."""
        return Identity.load_or_create(self._folder / name)

    async def node(self, name: str) -> Node:
        node = await Node.open(self.identity(name), LOOPBACK, 0)
        self.nodes.append(node)
        return node

    async def client(self, name: str) -> RendezvousClient:
        """A new socket, and a connection to the rendezvous over it."""
        node = await self.node(name)
        return await RendezvousClient.connect(node, self.rendezvous.address, self.rendezvous.key)
