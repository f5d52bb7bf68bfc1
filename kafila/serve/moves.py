"""What a serving member says of its edges' moves between paths, and of what went over which.

`Moves` decides when (sans-IO), `Watch` says it.
"""

import asyncio
from collections.abc import Callable, Hashable, Mapping
from typing import Any

from kafila.defaults import MOVE_WORDS_SECONDS
from kafila.net.edge import Edge
from kafila.planfile import PlanFile
from kafila.serve.verify import traffic
from kafila.words import gib, ms


class Moves:
    """When to say how one edge stands: at once, but seldom; what has passed by then never is."""

    def __init__(self, state: Hashable) -> None:
        """`state` has been said."""
        self._said = self._state = state
        self._free = 0.0

    def moved(self, state: Hashable, now: float) -> bool:
        """It stands like this now; whether to say so."""
        self._state = state
        return self.poll(now)

    def poll(self, now: float) -> bool:
        """Whether to say how it stands."""
        if self._state == self._said or now < self._free:
            return False
        self._said, self._free = self._state, now + MOVE_WORDS_SECONDS
        return True

    def timer(self) -> float | None:
        """When to poll; None: there is nothing to say."""
        return None if self._state == self._said else self._free


class Watch:
    """Watches the edges of member `me` (by ring index) and says when one moves."""

    def __init__(
        self, plan: PlanFile, me: int, edges: Mapping[int, Edge], say: Callable[[str], None]
    ) -> None:
        self._plan = plan
        self._me = me
        self._edges = edges
        self._say = say
        self._loop = asyncio.get_running_loop()
        self._moves = {edge: Moves(_state(edge)) for edge in edges.values()}
        self._timers: dict[Edge, asyncio.TimerHandle] = {}
        for edge in edges.values():
            edge.on_path = self._moved

    def close(self) -> None:
        """Say nothing more."""
        for edge in self._edges.values():
            edge.on_path = None
        for timer in self._timers.values():
            timer.cancel()

    def health(self) -> list[dict[str, Any]]:
        """Every edge as it stands, for programs."""
        return [traffic(self._plan, self._me, *each) for each in self._edges.items()]

    def status(self) -> str:
        """Names the relayed edges, behind other words; empty where all are direct."""
        names = [edge.peer.name for edge in self._edges.values() if edge.path.kind != "direct"]
        return f"; relayed: {', '.join(names)}" if names else ""

    def account(self) -> list[str]:
        """What went over which path, a line an edge."""
        carried = map(_carried, self.health())
        return [
            f"{each}; in the end {_standing(edge)}"
            for each, edge in zip(carried, self._edges.values(), strict=True)
        ]

    def _moved(self, edge: Edge) -> None:
        self._consider(edge, self._moves[edge].moved(_state(edge), self._loop.time()))

    def _poll(self, edge: Edge) -> None:
        self._consider(edge, self._moves[edge].poll(self._loop.time()))

    def _consider(self, edge: Edge, due: bool) -> None:
        if due:
            self._say(words(edge))
        if edge in self._timers:
            self._timers.pop(edge).cancel()
        at = self._moves[edge].timer()
        if at is not None:
            self._timers[edge] = self._loop.call_at(at, self._poll, edge)


def _carried(edge: Mapping[str, Any]) -> str:
    direct, relayed = edge["direct_bytes"], edge["relayed_bytes"]
    if not relayed or not direct:
        only = "relayed" if relayed else "direct"
        return f"edge to {edge['to']}: {gib(direct + relayed)}, all {only}"
    share = f"{gib(relayed)} relayed ({edge['relayed_share']:.1%})"
    return f"edge to {edge['to']}: {gib(direct)} direct, {share}"


def words(edge: Edge) -> str:
    """How an edge stands, for a person."""
    return f"edge to {edge.peer.name} is now {_standing(edge)}"


def _standing(edge: Edge) -> str:
    path = edge.path
    at = f" ({path.address[0]})" if path.kind == "direct" else ""
    time = "" if path.rtt_us is None else f", {ms(path.rtt_us)} there and back"
    why = "" if path.kind == "direct" or not edge.why else f": {edge.why.rstrip('.')}"
    return f"{path.kind}{at}{time}{why}"


def _state(edge: Edge) -> Hashable:
    """Ports come and go with the sockets of a search; where the peer is tells a LAN from a NAT."""
    kind, host = edge.path.kind, edge.path.address[0]
    return kind, host if kind == "direct" else ""
