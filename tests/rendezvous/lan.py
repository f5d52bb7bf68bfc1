"""A rendezvous on loopback, and members with identities, sockets and connections of their own."""

from pathlib import Path
from types import TracebackType

from kafila.net.identity import Identity
from kafila.net.node import Node
from kafila.rendezvous.client import RendezvousClient
from kafila.rendezvous.server import Rendezvous, Rules

LOOPBACK = "127.0.0.1"


class Lan:
    """Closes everything that was opened in it."""

    def __init__(self, folder: Path, rules: Rules | None = None, host: str = LOOPBACK) -> None:
        self.log: list[str] = []
        self.nodes: list[Node] = []
        self._folder = folder
        self._rules = rules or Rules()
        self._host = host
        self._rendezvous: Rendezvous | None = None

    async def __aenter__(self) -> "Lan":
        await self._start(0)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        for node in list(self.nodes):
            await self.unplug(node)
        if self._rendezvous is not None:
            await self.stop()

    @property
    def rendezvous(self) -> Rendezvous:
        assert self._rendezvous is not None
        return self._rendezvous

    async def stop(self) -> None:
        """Stop the rendezvous."""
        stopping, self._rendezvous = self.rendezvous, None
        await stopping.close()

    async def restart(self) -> None:
        """Stop the rendezvous and start another one with the same keys at the same address."""
        port = self.rendezvous.address[1]
        await self.stop()
        await self._start(port)

    async def _start(self, port: int) -> None:
        self._rendezvous = await Rendezvous.open(
            self.identity("rendezvous"),
            self._host,
            port,
            self.log.append,
            second_port=0,
            rules=self._rules,
        )

    async def unplug(self, node: Node) -> None:
        """End this member's socket and connections."""
        self.nodes.remove(node)
        await node.close()

    def identity(self, name: str) -> Identity:
        """The same one for the same name."""
        return Identity.load_or_create(self._folder / name)

    async def node(self, name: str) -> Node:
        node = await Node.open(self.identity(name), self._host, 0)
        self.nodes.append(node)
        return node

    async def client(self, name: str) -> RendezvousClient:
        """A new socket, and a connection to the rendezvous over it."""
        return await self.dial(await self.node(name))

    async def dial(self, node: Node) -> RendezvousClient:
        return await RendezvousClient.connect(node, self.rendezvous.address, self.rendezvous.key)
