"""Whole rings in one process, over in-memory wires, for the tests."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from kafila.serve.compute import Compute
from kafila.serve.generation import Generation, Params
from kafila.serve.head import Head
from kafila.serve.member import Member, shape_of
from kafila.serve.ring import Ring
from kafila.serve.scheduler import chunks_under_way
from tests.serve.toy import Wire, wire


@dataclass
class Fleet:
    """All members of a ring that is ready."""

    head: Head
    members: list[Member]
    rings: list[Ring]
    wires: list[Wire]  # wires[i]: member i's end towards member i + 1


@asynccontextmanager
async def fleet(stages: Sequence[Any]) -> AsyncIterator[Fleet]:
    """A ring of these stages, the head's first; everyone loaded and ready."""
    m = len(stages)
    names = [f"m{i}" for i in range(m)]
    ends = [wire() for _ in range(m if m > 2 else m - 1)]
    following = [ends[i][0] if i < len(ends) else ends[0][1] for i in range(m)] if m > 1 else [None]
    previous = [ends[i - 1][1] if m > 2 or i else ends[0][0] for i in range(m)] if m > 1 else [None]
    rings = [Ring(names, i, previous[i], following[i]) for i in range(m)]
    computes = [Compute(bound=stage.groups + chunks_under_way(m)) for stage in stages]
    head = Head(rings[0], stages[0], computes[0])
    members = [Member(rings[i], stages[i], computes[i]) for i in range(1, m)]
    for ring, stage in zip(rings, stages, strict=True):
        ring.loaded(shape_of(stage))
    async with asyncio.timeout(10):
        for ring in rings:
            await ring.ready.wait()
    try:
        yield Fleet(head, members, rings, [end for end in following if end])
    finally:
        for compute in computes:
            assert await compute.stop(5)


async def read(generation: Generation) -> list[int]:
    """All tokens of a request."""
    async with asyncio.timeout(30):
        return [token async for token in generation]


async def ask(
    head: Head, prompt: Sequence[int], limit: int, params: Params | None = None
) -> list[int]:
    """Submit and read one request that only its limit ends."""
    return await read(head.submit(prompt, params or Params(), limit, frozenset()))


async def until(condition: Callable[[], bool]) -> None:
    """Let the loop run until something holds."""
    async with asyncio.timeout(10):
        while not condition():  # noqa: ASYNC110 - any state may be asked for
            await asyncio.sleep(0.001)
