"""What an edge costs: two processes on loopback, real sockets, real QUIC.

An 8 KB message (a decode step's hidden state) goes there and back with a pause between, and one
after the other without; a 2.6 MB message (a prefill chunk of 256 x 5120 bf16) goes one way. CPU is
that of both processes together. Measured at the datagram size loopback allows and at Ethernet's.

    python -m tools.bench.net
"""

import asyncio
import json
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path
from unittest.mock import patch

from kafila.defaults import PATH_SIZES
from kafila.net import paths
from kafila.net.edge import Edge, Peer
from kafila.net.identity import Identity
from kafila.net.node import Node

SMALL = 8192
LARGE = 256 * 5120 * 2
ECHO, SWALLOW, CPU = 0, 1, 2
SESSION = DIGEST = bytes(32)


async def connect(home: Path, client: bool, size: int) -> tuple[Node, Edge]:
    """Join the other process; the two find each other's port in the folder `home`."""
    me, other = ("client", "server") if client else ("server", "client")
    identity = Identity.load_or_create(home / me)
    whom = Identity.load_or_create(home / other)
    node = await Node.open(identity, "127.0.0.1")
    (home / f"{me}.tmp").write_text(str(node.address[1]))
    (home / f"{me}.tmp").rename(home / f"{me}.port")
    while not (home / f"{other}.port").exists():  # noqa: ASYNC110 (another process)
        await asyncio.sleep(0.01)
    address = ("127.0.0.1", int((home / f"{other}.port").read_text()))
    peer = Peer(other, whom.key, whom.exchange_key, whom.certificate, [address])
    sizes = tuple(each for each in PATH_SIZES if each <= size)
    with patch.object(paths, "PATH_SIZES", sizes):
        edge = await node.edge(peer, client=client, session=SESSION, digest=DIGEST)
    return node, edge


async def serve(home: Path, size: int) -> None:
    """Answer until the client goes."""
    node, edge = await connect(home, False, size)
    gone = asyncio.Event()
    edge.on_closed = lambda reason: gone.set()

    def answer(channel: int, message: bytes) -> None:
        cpu = str(time.process_time()).encode()
        edge.send(channel, {ECHO: message, SWALLOW: b"", CPU: cpu}[channel])

    edge.on_message = answer
    await gone.wait()
    await node.close()


async def measure(home: Path, size: int) -> dict[str, float]:
    """Measure the edge from the client's end."""
    node, edge = await connect(home, True, size)
    answered: asyncio.Queue[bytes] = asyncio.Queue()
    edge.on_message = lambda channel, message: answered.put_nowait(message)

    async def ask(channel: int, message: bytes) -> float:
        began = time.perf_counter()
        edge.send(channel, message)
        await answered.get()
        return time.perf_counter() - began

    async def cpu() -> float:
        edge.send(CPU, b"")
        return float(await answered.get()) + time.process_time()

    async def series(channel: int, message: bytes, count: int, pause: float) -> tuple[float, float]:
        """Median seconds of an exchange, and its CPU seconds."""
        for _ in range(count // 4):
            await ask(channel, message)
        times, before = [], await cpu()
        for _ in range(count):
            times.append(await ask(channel, message))
            if pause:
                await asyncio.sleep(pause)
        return statistics.median(times), (await cpu() - before) / count

    small, large = os.urandom(SMALL), os.urandom(LARGE)
    paused, paused_cpu = await series(ECHO, small, 200, 0.005)
    busy, busy_cpu = await series(ECHO, small, 500, 0)
    bulk, bulk_cpu = await series(SWALLOW, large, 12, 0)
    result = {
        "datagram_bytes": edge.path.size,
        "8k_one_way_ms": round(paused / 2 * 1e3, 3),
        "8k_one_way_cpu_ms": round(paused_cpu / 2 * 1e3, 3),
        "8k_back_to_back_one_way_ms": round(busy / 2 * 1e3, 3),
        "8k_back_to_back_one_way_cpu_ms": round(busy_cpu / 2 * 1e3, 3),
        "2.6m_one_way_ms": round(bulk * 1e3, 1),
        "2.6m_mbit_per_s": round(LARGE * 8 / bulk / 1e6),
        "2.6m_mbit_per_cpu_s": round(LARGE * 8 / bulk_cpu / 1e6),
    }
    await node.close()
    return result


async def run(size: int) -> dict[str, float]:
    """Measure with datagrams of at most `size` bytes."""
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        for name in ("client", "server"):
            Identity.load_or_create(home / name)
        server = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "tools.bench.net", folder, str(size)
        )
        try:
            async with asyncio.timeout(120):
                result = await measure(home, size)
                await server.wait()
        finally:
            if server.returncode is None:
                server.kill()
                await server.wait()
    for name, value in result.items():
        print(f"{name:>32} {value}")
    return result


def main() -> None:
    if len(sys.argv) == 3:  # the other process
        asyncio.run(serve(Path(sys.argv[1]), int(sys.argv[2])))
        return
    results = [asyncio.run(run(size)) for size in PATH_SIZES[1:]]
    print(json.dumps({"bench": "net", "edges": results}))


if __name__ == "__main__":
    main()
