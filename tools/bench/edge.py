"""What an edge costs, beside aioquic's own asyncio: two processes on loopback, real sockets.

An 8 KB message (a decode step's hidden state) goes there and back with a pause between, and one
after the other without; 16 MB (a prefill in chunks of 256 x 5120 bf16) go one way. CPU is that of
both processes together. Measured at the datagram size of Ethernet and at that of loopback, several
times in turn; medians, and the range of the runs. Each process has a core of its own, as two
machines have: on one core neither could work while the other does.

    python -m tools.bench.edge
"""

import asyncio
import contextlib
import json
import os
import ssl
import statistics
import struct
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Final
from unittest.mock import patch

from aioquic.asyncio.client import connect as stock_connect
from aioquic.asyncio.server import serve as stock_serve
from aioquic.quic.configuration import QuicConfiguration

from kafila.defaults import EDGE_WINDOW, PATH_SIZES
from kafila.net import path
from kafila.net.certificate import SERVER_NAME, pem
from kafila.net.edge import Edge, Peer
from kafila.net.identity import Identity
from kafila.net.node import Node

SMALL: Final = 8192
CHUNK: Final = 256 * 5120 * 2
CHUNKS: Final = 6
ECHO, SWALLOW, CPU = 0, 1, 2
RUNS: Final = 5
SESSION = DIGEST = bytes(32)

Say = Callable[[int, bytes], None]
"""Sends a message of a kind."""


class Answers:
    """What came back, in order."""

    def __init__(self) -> None:
        self._came: asyncio.Queue[bytes] = asyncio.Queue()

    def take(self, kind: int, message: bytes) -> None:
        self._came.put_nowait(message)

    async def next(self) -> bytes:
        return await self._came.get()


def answer(kind: int, message: bytes) -> bytes:
    """What the other process says to a message."""
    cpu = str(time.process_time()).encode()
    return {ECHO: message, SWALLOW: b"", CPU: cpu}[kind]


async def other(home: Path, name: str) -> list[str]:
    """Wait for what the other process wrote down."""
    place = home / name
    while not place.exists():  # noqa: ASYNC110 (another process)
        await asyncio.sleep(0.01)
    return place.read_text().split()


def write_down(home: Path, name: str, *words: object) -> None:
    (home / "new").write_text(" ".join(map(str, words)))
    (home / "new").rename(home / name)


# --- the edge ------------------------------------------------------------------------------------


@contextlib.asynccontextmanager
async def edge(home: Path, client: bool, size: int) -> AsyncIterator[Edge]:
    """Join the other process."""
    me, them = ("client", "server") if client else ("server", "client")
    identity, whom = (Identity.load_or_create(home / name) for name in (me, them))
    node = await Node.open(identity, "127.0.0.1")
    write_down(home, f"{me} is at", node.address[1], node.nonce.hex())
    port, nonce = await other(home, f"{them} is at")
    address = ("127.0.0.1", int(port))
    keys = whom.key, whom.exchange_key, whom.certificate
    peer = Peer(them, *keys, [address], bytes.fromhex(nonce))
    with patch.object(path, "PATH_SIZES", tuple(each for each in PATH_SIZES if each <= size)):
        made = await node.edge(peer, client=client, session=SESSION, digest=DIGEST)
        while made.path.size < size:  # noqa: ASYNC110 (found a moment later)
            await asyncio.sleep(0.01)
        yield made
    await node.close()


async def edge_server(home: Path, size: int) -> None:
    async with edge(home, False, size) as made:
        gone = asyncio.Event()
        made.on_closed = lambda reason: gone.set()
        made.on_message = lambda kind, message: made.send(kind, answer(kind, message))
        await gone.wait()


@contextlib.asynccontextmanager
async def edge_client(home: Path, size: int) -> AsyncIterator[tuple[Say, Answers]]:
    async with edge(home, True, size) as made:
        answers = Answers()
        made.on_message = answers.take
        yield made.send, answers


# --- aioquic's asyncio ---------------------------------------------------------------------------

_HEAD: Final = struct.Struct("!BI")


async def messages(reader: asyncio.StreamReader) -> AsyncIterator[tuple[int, bytes]]:
    with contextlib.suppress(asyncio.IncompleteReadError):
        while True:
            kind, length = _HEAD.unpack(await reader.readexactly(_HEAD.size))
            yield kind, await reader.readexactly(length)


def say(writer: asyncio.StreamWriter, kind: int, message: bytes) -> None:
    writer.write(_HEAD.pack(kind, len(message)) + message)


def configuration(size: int, *, client: bool) -> QuicConfiguration:
    return QuicConfiguration(
        is_client=client,
        alpn_protocols=["bench"],
        max_datagram_size=size,
        max_data=EDGE_WINDOW,
        max_stream_data=EDGE_WINDOW,
        congestion_control_algorithm="cubic",
        server_name=SERVER_NAME if client else None,
    )


async def stock_server(home: Path, size: int) -> None:
    identity = Identity.load_or_create(home / "server")
    server_side = configuration(size, client=False)
    server_side.load_cert_chain(identity.certificate_file, identity.key_file)
    over = asyncio.Event()
    serving: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        async for kind, message in messages(reader):
            say(writer, kind, answer(kind, message))
        over.set()

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        serving.add(asyncio.ensure_future(serve(reader, writer)))

    server = await stock_serve("127.0.0.1", 0, configuration=server_side, stream_handler=accept)
    assert server._transport is not None
    write_down(home, "server is at", server._transport.get_extra_info("sockname")[1])
    await over.wait()
    server.close()


@contextlib.asynccontextmanager
async def stock_client(home: Path, size: int) -> AsyncIterator[tuple[Say, Answers]]:
    client_side = configuration(size, client=True)
    anchor = pem(Identity.load_or_create(home / "server").certificate)
    client_side.load_verify_locations(cadata=anchor)
    client_side.verify_mode = ssl.CERT_REQUIRED
    (port,) = await other(home, "server is at")
    async with stock_connect("127.0.0.1", int(port), configuration=client_side) as protocol:
        reader, writer = await protocol.create_stream()
        answers = Answers()

        async def read() -> None:
            async for kind, message in messages(reader):
                answers.take(kind, message)

        reading = asyncio.create_task(read())
        yield lambda kind, message: say(writer, kind, message), answers
        writer.write_eof()
        await reading


# --- measuring -----------------------------------------------------------------------------------

Client = Callable[[Path, int], contextlib.AbstractAsyncContextManager[tuple[Say, Answers]]]
SERVERS: Final[dict[str, Callable[[Path, int], Awaitable[None]]]] = {
    "kafila": edge_server,
    "stock": stock_server,
}
CLIENTS: Final[dict[str, Client]] = {"kafila": edge_client, "stock": stock_client}


async def measure(send: Say, answers: Answers) -> dict[str, float]:
    async def cpu() -> float:
        send(CPU, b"")
        return float(await answers.next()) + time.process_time()

    async def exchanges(message: bytes, count: int, pause: float) -> tuple[float, float]:
        """Median milliseconds of half an exchange, and its CPU time."""
        times, before = [], 0.0
        for number in range(-count // 4, count):
            if number == 0:
                before = await cpu()
            began = time.perf_counter()
            send(ECHO, message)
            await answers.next()
            if number >= 0:
                times.append(time.perf_counter() - began)
            if pause:
                await asyncio.sleep(pause)
        half = 1e3 / 2
        return statistics.median(times) * half, (await cpu() - before) / count * half

    async def prefill(chunk: bytes) -> tuple[float, float]:
        """Mbit/s, and Mbit per CPU-second."""
        before, began = await cpu(), time.perf_counter()
        for _ in range(CHUNKS):
            send(SWALLOW, chunk)
        for _ in range(CHUNKS):
            await answers.next()
        took = time.perf_counter() - began
        megabits = CHUNKS * len(chunk) * 8 / 1e6
        return megabits / took, megabits / (await cpu() - before)

    small = os.urandom(SMALL)
    paused, paused_cpu = await exchanges(small, 200, 0.005)
    busy, busy_cpu = await exchanges(small, 400, 0)
    bulk, bulk_cpu = await prefill(os.urandom(CHUNK))
    return {
        "8k_one_way_ms": paused,
        "8k_one_way_cpu_ms": paused_cpu,
        "8k_back_to_back_ms": busy,
        "8k_back_to_back_cpu_ms": busy_cpu,
        "16m_mbit_per_s": bulk,
        "16m_mbit_per_cpu_s": bulk_cpu,
    }


def cores() -> list[int]:
    """The processor cores this process may use; none where the system does not say."""
    return sorted(os.sched_getaffinity(0)) if sys.platform == "linux" else []


def keep_to(core: str) -> None:
    """Run on this core only; "": on any."""
    if core:
        os.sched_setaffinity(0, {int(core)})


async def run(kind: str, size: int, core: str = "") -> dict[str, float]:
    """One run with datagrams of `size` bytes, the other process on this core."""
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        for name in ("client", "server"):
            Identity.load_or_create(home / name)
        words = "-m", "tools.bench.edge", kind, folder, str(size), core
        server = await asyncio.create_subprocess_exec(sys.executable, *words)
        try:
            async with asyncio.timeout(120), CLIENTS[kind](home, size) as (send, answers):
                result = await measure(send, answers)
            async with asyncio.timeout(20):
                await server.wait()
        finally:
            if server.returncode is None:
                server.kill()
                await server.wait()
    return result


def main() -> None:
    if len(sys.argv) == 5:  # the other process
        asyncio.run(_served(*sys.argv[1:]))
        return
    mine, its = map(str, cores()[:2]) if len(cores()) > 1 else ("", "")
    keep_to(mine)
    results = []
    for size in PATH_SIZES[1:]:
        runs: dict[str, list[dict[str, float]]] = {kind: [] for kind in CLIENTS}
        for _ in range(RUNS):
            for kind, done in runs.items():
                done.append(asyncio.run(run(kind, size, its)))
        for kind, done in runs.items():
            print(f"{kind}, datagrams of {size} bytes, {RUNS} runs")
            figures: dict[str, float] = {}
            for name in done[0]:
                values = [each[name] for each in done]
                figures[name] = round(statistics.median(values), 3)
                print(f"{name:>24} {figures[name]:9.3f}  ({min(values):.3f} to {max(values):.3f})")
            results.append({"kind": kind, "datagram_bytes": size, **figures})
    print(json.dumps({"bench": "edge", "runs": RUNS, "results": results}))


async def _served(kind: str, folder: str, size: str, core: str) -> None:
    keep_to(core)
    await SERVERS[kind](Path(folder), int(size))


if __name__ == "__main__":
    main()
