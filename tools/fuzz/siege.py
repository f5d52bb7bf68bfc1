"""Garbage at the sockets of running nodes, and what it leaves in their memory."""

import asyncio
import gc
import tracemalloc
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from random import Random
from typing import Any

from kafila.address import Address
from kafila.net.udp import Udp
from tools.fuzz.datagrams import TARGETS
from tools.fuzz.mutations import scrambled
from tools.fuzz.world import initial

SAMPLES: tuple[bytes, ...] = (
    *(sample for target in TARGETS for sample in target.samples if not target.breaks),
    initial(),
    initial(),
)
"""Datagrams of every family."""


def listen_in(udp: Udp) -> list[bytes]:
    """Keep what a socket sends from now on: genuine datagrams, to be scrambled and replayed."""
    heard: list[bytes] = []
    send, send_all = udp.send, udp.send_all

    def one(datagram: bytes, address: Address, ttl: int | None = None) -> None:
        heard.append(datagram)
        send(datagram, address, ttl)

    def several(datagrams: Sequence[bytes], address: Address) -> None:
        heard.extend(datagrams)
        send_all(datagrams, address)

    udp.send = one  # type: ignore[method-assign]
    udp.send_all = several  # type: ignore[method-assign]
    return heard


async def besiege(
    sends: Sequence[Callable[[bytes], None]], samples: Sequence[bytes], count: int, seed: int
) -> None:
    """Send so many scrambled datagrams by turns, as fast as they are read."""
    random = Random(seed)
    for number in range(count):
        sends[number % len(sends)](scrambled(samples, random))
        if number % 32 == 0:
            await asyncio.sleep(0.001)
    await asyncio.sleep(0.05)


async def growth(siege: Callable[[int], Any]) -> int:
    """Bytes that a second siege leaves behind, the first having filled what has a bound."""
    await siege(1)
    gc.collect()
    tracemalloc.start()
    try:
        await siege(2)
        gc.collect()
        return tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()


@asynccontextmanager
async def nothing_raised() -> AsyncIterator[None]:
    """Fail if a callback of the loop raised: a reader of a socket tells nobody else."""
    raised: list[dict[str, Any]] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: raised.append(context))
    try:
        yield
    finally:
        loop.set_exception_handler(None)
    for context in raised:
        raise AssertionError(context["message"]) from context.get("exception")
