"""The fresh sockets of one edge: opened, asked how they are seen from outside, closed at its end.

Knows nothing of paths.
"""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Final, Protocol

from kafila.address import Address
from kafila.defaults import GATHER_SECONDS
from kafila.errors import NetworkProblem
from kafila.net.udp import Udp

_AT_ONCE: Final = 16
"""Sockets opened before the loop turns again."""


class Home(Protocol):
    """What this needs of a node."""

    def open_socket(self) -> Udp:
        """Open a fresh IPv4 socket, read by the node. Raises NetworkProblem."""

    def close_socket(self, udp: Udp) -> None:
        """Close one of these."""

    async def reflexive(self, server: Address, *, udp: Udp, timeout: float) -> Address | None:
        """Return how a server sees a socket; None if it does not say."""

    def local_candidates(
        self, reflexive: Sequence[Address] = (), udp: Udp | None = None
    ) -> list[Address]:
        """Return where `udp` and the main IPv6 socket might be reached, best first."""


class FreshSockets:
    """Sockets that one edge opened."""

    def __init__(self, node: Home, servers: Sequence[Address]) -> None:
        """`servers` tell a socket how they see it; the first that answers is believed."""
        self._node = node
        self._servers = tuple(servers)
        self._open: set[Udp] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    def fresh(self, got: Callable[[Udp | None, Sequence[Address]], None]) -> None:
        """Open one; call `got` with it and the addresses at which this node might be reached then.

        None: there is none to be had, as without IPv4.
        """
        self._spawn(self._fresh(got))

    def many(self, number: int, got: Callable[[Sequence[Udp]], None]) -> None:
        """Open many, as many as there can be."""
        self._spawn(self._many(number, got))

    def forget(self, udp: Udp) -> None:
        """Close one."""
        self._open.discard(udp)
        self._node.close_socket(udp)

    def close(self) -> None:
        """Close them all; who still waits for one waits no more."""
        for task in self._tasks:
            task.cancel()
        for udp in list(self._open):
            self.forget(udp)

    async def _fresh(self, got: Callable[[Udp | None, Sequence[Address]], None]) -> None:
        udp = self._one()
        if udp is None:
            got(None, self._node.local_candidates())
            return
        seen: Address | None = None
        for server in self._servers:
            try:
                seen = await self._node.reflexive(server, udp=udp, timeout=GATHER_SECONDS)
            except NetworkProblem:
                continue
            if seen is not None:
                break
        got(udp, self._node.local_candidates([seen] if seen else [], udp))

    async def _many(self, number: int, got: Callable[[Sequence[Udp]], None]) -> None:
        sockets: list[Udp] = []
        while len(sockets) < number:
            udp = self._one()
            if udp is None:
                break
            sockets.append(udp)
            if len(sockets) % _AT_ONCE == 0:
                await asyncio.sleep(0)
        got(sockets)

    def _one(self) -> Udp | None:
        try:
            udp = self._node.open_socket()
        except NetworkProblem:  # no more to be had: it goes without
            return None
        self._open.add(udp)
        return udp

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
