"""A member without a model: its edges are those of `kafila serve`, its work is to pass a number on.

`python -m tools.natlab.member PLAN HOME` registers, meets the others and forms its edges with the
program's own code. The head sends number 0 round the ring, and the next one when it is back; each
frame is as large as a hidden state. What happens is told in lines of JSON on stderr, each with the
machine's monotonic time. It ends by SIGTERM, or with an error when an edge does.
"""

import asyncio
import json
import signal
import sys
import time
from pathlib import Path
from typing import Any, Final

from kafila.address import parse_address
from kafila.errors import KafilaError, NetworkProblem
from kafila.net.edge import Edge
from kafila.net.identity import Identity
from kafila.net.node import Node
from kafila.planfile import PlanFile, read
from kafila.processes import end_with_parent
from kafila.session.edges import form_edges, neighbours
from kafila.session.meet import ring_index
from kafila.session.presence import Presence

FRAME: Final = 8192
_CHANNEL: Final = 1


def tell(event: str, **facts: Any) -> None:
    """Say a line."""
    line = json.dumps({"event": event, "at": time.monotonic(), **facts})
    print(line, file=sys.stderr, flush=True)


class Passing:
    """Numbers that go round the ring; whatever is lost, repeated or out of order ends it."""

    def __init__(self, head: bool, before: Edge, after: Edge) -> None:
        self.failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._head = head
        self._after = after
        self._next = 0
        before.on_message = self._take
        for edge in {before, after}:
            edge.on_closed = self._closed
        if head:
            self._send(0)

    def _take(self, _channel: int, message: bytes) -> None:
        number = int.from_bytes(message[:8])
        if number != self._next or len(message) != FRAME:
            self._end(f"number {number} came instead of {self._next}")
            return
        self._next += 1
        tell("frame", number=number)
        self._send(self._next if self._head else number)

    def _send(self, number: int) -> None:
        if not self._after.closed:
            self._after.send(_CHANNEL, number.to_bytes(8) + bytes(FRAME - 8))

    def _closed(self, reason: str) -> None:
        self._end(f"an edge ended: {reason}")

    def _end(self, why: str) -> None:
        if not self.failed.done():
            self.failed.set_exception(NetworkProblem(why))


async def _live(plan: PlanFile, identity: Identity) -> None:
    me = ring_index(plan, identity.key)
    pair = neighbours(len(plan.ring), me)
    if pair is None or plan.session.rendezvous is None:
        raise NetworkProblem("a plan for the lab has two members at least, and a rendezvous")
    node = await Node.open(identity)
    key = bytes.fromhex(plan.session.rendezvous_key or "")
    rendezvous = parse_address(plan.session.rendezvous)
    presence = Presence(node, identity, plan, me, rendezvous, key or None)
    staying: asyncio.Task[None] | None = None
    try:
        peers = await presence.meet()
        tell("introduced")
        outcomes = await form_edges(
            node, plan, me, peers, relays=presence.relays, servers=presence.servers
        )
        edges: dict[int, Edge] = {}
        for other, outcome in outcomes.items():
            if isinstance(outcome, KafilaError):
                raise outcome
            edges[other] = outcome
            outcome.on_path = _told
            _told(outcome)
        presence.attend(edges)
        staying = asyncio.create_task(presence.keep())
        passing = Passing(me == 0, edges[pair[0]], edges[pair[1]])
        over = asyncio.ensure_future(_told_to_end())
        await asyncio.wait({over, passing.failed}, return_when=asyncio.FIRST_COMPLETED)
        if passing.failed.done() and not over.done():
            passing.failed.result()
        for edge in edges.values():
            tell("carried", to=edge.peer.name, sent=edge.sent, received=edge.received)
    finally:
        if staying:
            staying.cancel()
        await presence.close()
        await node.close()


def _told(edge: Edge) -> None:
    rtt_us = edge.path.rtt_us
    tell("path", to=edge.peer.name, path=edge.path.kind, why=edge.why, rtt_us=rtt_us)


async def _told_to_end() -> None:
    told = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, told.set)
    await told.wait()


def main() -> None:
    """Be the member whose keys are in HOME."""
    end_with_parent()
    plan, home = sys.argv[1:]
    try:
        asyncio.run(_live(read(plan), Identity.load_or_create(Path(home))))
    except KafilaError as problem:
        tell("failed", why=str(problem))
        sys.exit(problem.exit_code)


if __name__ == "__main__":
    main()
