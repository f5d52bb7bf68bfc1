"""Members of a plan that meet through a real rendezvous on loopback and form its edges."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from types import TracebackType

import pytest

from kafila.address import Address
from kafila.errors import KafilaError
from kafila.net.edge import Edge, Peer
from kafila.net.node import Node
from kafila.planfile import PlanFile
from kafila.rendezvous.server import Rendezvous
from kafila.session.edges import form_edges, neighbours, part
from kafila.session.events import Event, OnEvent
from kafila.session.presence import Presence
from tests.rendezvous.lan import LOOPBACK, Lan
from tests.session.samples import plan

NAMES = ("anna", "bert", "cleo", "dora", "emil")
Ends = tuple[Edge | None, Edge | None]
NOWHERE = ("192.0.2.1", 4711)
"""Nobody answers there (RFC 5737)."""


def unheard(_: Event) -> None:
    """Nobody is told."""


class Town(Lan):
    """A rendezvous, and members that stay registered until the end."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.address = (LOOPBACK, 0)
        """Where members look for a rendezvous, and whose key they expect there."""
        self.key: bytes | None = None
        self._presences: list[Presence] = []
        self._keeping: list[asyncio.Task[None]] = []
        self._edges: list[Edge] = []

    async def __aenter__(self) -> "Town":
        await super().__aenter__()
        self.address, self.key = self.rendezvous.address, self.rendezvous.key
        return self

    async def start(self, who: str = "rendezvous") -> None:
        """Start a rendezvous where the last one was."""
        self._rendezvous = await Rendezvous.open(
            self.identity(who), *self.address, self.log.append, second_port=0
        )

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        for task in self._keeping:
            task.cancel()
        await asyncio.gather(*self._keeping, return_exceptions=True)
        await part(self._edges)
        await asyncio.gather(*(presence.close() for presence in self._presences))
        await super().__aexit__(kind, error, at)

    def plan(self, size: int, context: int = 512) -> PlanFile:
        return plan([(name, self.identity(name)) for name in NAMES[:size]], context)

    async def presence(
        self, made: PlanFile, me: int, on_event: OnEvent = unheard, node: Node | None = None
    ) -> Presence:
        """A member that is about to register."""
        name = made.ring[me].name
        presence = Presence(
            node or await self.node(name),
            self.identity(name),
            made,
            me,
            self.address,
            self.key,
            on_event,
        )
        self._presences.append(presence)
        return presence

    def keep(self, presence: Presence) -> None:
        """Stay registered from now on."""
        self._keeping.append(asyncio.create_task(presence.keep()))

    async def member(
        self, made: PlanFile, me: int, *, timeout: float = 20, on_event: OnEvent = unheard
    ) -> Ends:
        """What `kafila serve` does before it loads a weight."""
        node = await self.node(made.ring[me].name)
        presence = await self.presence(made, me, on_event, node)
        peers = await presence.meet(timeout)
        self.keep(presence)
        return await self.edges(node, presence, made, me, peers)

    async def edges(
        self, node: Node, presence: Presence, made: PlanFile, me: int, peers: dict[int, Peer]
    ) -> Ends:
        """Form the edges of a member that has met the others, or raise why not."""
        outcomes = await form_edges(
            node, made, me, peers, relays=presence.relays, servers=presence.servers
        )
        for outcome in outcomes.values():
            if isinstance(outcome, KafilaError):
                await part(outcomes.values())
                raise outcome
        edges = {other: each for other, each in outcomes.items() if isinstance(each, Edge)}
        self._edges += edges.values()
        presence.attend(edges)
        pair = neighbours(len(made.ring), me)
        return (edges[pair[0]], edges[pair[1]]) if pair else (None, None)


def misplace(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    """From now on this member says that it is where it is not."""

    def candidates(*_: object) -> list[Address]:
        return [NOWHERE]

    monkeypatch.setattr(node, "local_candidates", candidates)


class Pair:
    """Two members that have met; what they were told is in `events`."""

    def __init__(self, town: Town) -> None:
        self.plan = town.plan(2)
        self.events: list[Event] = []
        self.nodes: list[Node] = []
        self.presences: list[Presence] = []
        self.edges: list[Edge] = []
        self._town = town
        self._told = asyncio.Event()

    async def open(self, prepare: Callable[[Node], None] = lambda node: None) -> None:
        for member in self.plan.ring:
            self.nodes.append(await self._town.node(member.name))
            prepare(self.nodes[-1])
        for me, node in enumerate(self.nodes):
            self.presences.append(await self._town.presence(self.plan, me, self._hear, node))
        peers = await asyncio.gather(*(presence.meet(20) for presence in self.presences))
        for presence in self.presences:
            self._town.keep(presence)
        ends = await asyncio.gather(
            *(
                self._town.edges(self.nodes[me], self.presences[me], self.plan, me, peers[me])
                for me in (0, 1)
            )
        )
        for previous, _ in ends:
            assert previous is not None
            self.edges.append(previous)

    def _hear(self, event: Event) -> None:
        self.events.append(event)
        self._told.set()

    def count(self, kind: type[Event]) -> int:
        return sum(isinstance(event, kind) for event in self.events)

    async def told(self, kind: type[Event], times: int) -> None:
        """Wait until the members were told so many of these."""
        async with asyncio.timeout(30):
            while self.count(kind) < times:
                self._told.clear()
                await self._told.wait()

    async def exchange(self, message: bytes) -> None:
        """A message to the other end and back."""
        there, back = self.edges
        home = asyncio.Event()
        back.on_message = back.send
        there.on_message = lambda _, echo: home.set() if echo == message else None
        there.send(1, message)
        async with asyncio.timeout(30):
            await home.wait()

    async def until(self, kind: str) -> None:
        """Wait until both ends use such a path."""
        async with asyncio.timeout(30):
            while any(edge.path.kind != kind for edge in self.edges):  # noqa: ASYNC110
                await asyncio.sleep(0.02)
