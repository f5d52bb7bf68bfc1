"""What relaying costs: a rendezvous in a process of its own, flooded from another, on loopback.

Frames with datagrams of the smallest and the Ethernet path size go from one bound end to the other,
as many as there is time for. Beside it, in the same run, the same lookup under an asyncio
DatagramProtocol. A frame forwarded counts once; CPU is that of the relay's process, user and
system.

    python -m tools.bench.relay
"""

import asyncio
import contextlib
import json
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from kafila import defaults as d
from kafila.address import Address
from kafila.net import relaying
from kafila.net.identity import Identity
from kafila.net.relaying import FRAME_HEAD, Bind, Challenge, decode_binding, frame_head
from kafila.rendezvous.relay import Relay, relay_secret
from kafila.rendezvous.server import Rendezvous, Rules

SECONDS = 5.0
LIMITLESS = 1e6
SESSION, ANNA, BERT = b"s" * 32, b"a" * 32, b"b" * 32


class Stock(asyncio.DatagramProtocol):
    """The same relay as asyncio would have it: a callback and a `sendto` a datagram."""

    def __init__(self, relay: Relay) -> None:
        self._relay = relay

    def connection_made(self, transport: Any) -> None:
        self._transport = transport

    def send(self, datagram: bytes, address: Address, ttl: int | None = None) -> None:
        self._transport.sendto(datagram, address)

    def send_all(self, datagrams: Any, address: Address) -> None:
        raise NotImplementedError

    def datagram_received(self, datagram: bytes, source: Any) -> None:
        now = time.monotonic()
        if datagram[0] == 0x0B:
            end = self._relay.forward(datagram, source, now)
            if end is not None:
                self._transport.sendto(datagram, end.source)
        elif answer := self._relay.binding(datagram, self, source, now):
            self.send(answer, source)


async def serve(kind: str, home: Path) -> None:
    """Relay; answer each line on stdin with what was forwarded and the CPU seconds so far."""
    identity = Identity.load_or_create(home)
    if kind == "kafila":
        rules = Rules(relay_rate=LIMITLESS, relay_budget=LIMITLESS)
        rendezvous = await Rendezvous.open(identity, "127.0.0.1", 0, rules=rules)
        relay, port = rendezvous.relay, rendezvous.address[1]
    else:
        relay = Relay(relay_secret(identity), rate=LIMITLESS, budget=LIMITLESS)
        udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        for option in (socket.SO_RCVBUF, socket.SO_SNDBUF):
            udp.setsockopt(socket.SOL_SOCKET, option, d.SOCKET_BUFFER)
        udp.bind(("127.0.0.1", 0))
        port = udp.getsockname()[1]
        await asyncio.get_running_loop().create_datagram_endpoint(lambda: Stock(relay), sock=udp)
    print(port, flush=True)

    def tell() -> None:
        sys.stdin.readline()
        print(json.dumps([relay.datagrams, time.process_time()]), flush=True)

    asyncio.get_running_loop().add_reader(sys.stdin, tell)
    await asyncio.Event().wait()  # it is killed


def bind(udp: socket.socket, relay: Address, secret: bytes, own: bytes, other: bytes) -> bytes:
    """Bind this socket as `own`'s end of the flow with `other`; the head of its frames."""
    grant = Relay(secret).grant(SESSION, own, other)
    udp.sendto(Bind(grant.flow, grant.side, bytes(8)).encode(), relay)
    challenge = decode_binding(udp.recv(d.MAX_DATAGRAM))
    assert isinstance(challenge, Challenge)
    udp.sendto(relaying.answer(grant, bytes(8), challenge.cookie).encode(), relay)
    udp.recv(d.MAX_DATAGRAM)
    return frame_head(grant.flow)


def flood(kind: str, size: int) -> dict[str, float]:
    """Flood one relay with datagrams of `size` bytes for SECONDS."""
    with tempfile.TemporaryDirectory() as folder:
        process = subprocess.Popen(
            [sys.executable, "-m", "tools.bench.relay", kind, folder],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        with process, contextlib.ExitStack() as opened:
            opened.callback(process.kill)
            asked, said = process.stdin, process.stdout
            assert asked is not None
            assert said is not None

            def now() -> tuple[int, float, float]:
                print(file=asked, flush=True)
                datagrams, cpu = json.loads(said.readline())
                return datagrams, cpu, time.perf_counter()

            relay = ("127.0.0.1", int(said.readline()))
            secret = relay_secret(Identity.load_or_create(Path(folder)))
            anna, bert = (
                opened.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
                for _ in range(2)
            )
            for udp in (anna, bert):
                udp.settimeout(5)
                udp.bind(("127.0.0.1", 0))
            bind(bert, relay, secret, BERT, ANNA)
            frame = bind(anna, relay, secret, ANNA, BERT) + bytes(size)
            before = now()
            while time.perf_counter() < before[2] + SECONDS:
                for _ in range(d.DRAIN):
                    anna.sendto(frame, relay)
            after = now()
    frames, cpu, wall = (later - earlier for later, earlier in zip(after, before, strict=True))
    gbit = frames * size * 8 / 1e9
    return {
        "frames_per_cpu_s": round(frames / cpu),
        "cpu_s_per_gbit": round(cpu / gbit, 3),
        "gbit_per_s": round(gbit / wall, 2),
        "busy": round(cpu / wall, 2),
    }


def main() -> None:
    """Print a line for each measurement, and all of them as JSON at the end."""
    figures: dict[str, dict[str, float]] = {}
    for size in d.PATH_SIZES[:2]:
        for kind in ("kafila", "asyncio"):
            figures[f"{kind}_{size}"] = figure = flood(kind, size)
            print(f"{kind:8} {size} bytes: {figure}")
    print(json.dumps({"frame_head_bytes": FRAME_HEAD, **figures}))


if __name__ == "__main__":
    if len(sys.argv) > 1:
        # What is measured is the relay, not the bounds that protect its control connections.
        d.RELAY_TOTAL_MBIT_PER_S = LIMITLESS  # type: ignore[misc]
        asyncio.run(serve(sys.argv[1], Path(sys.argv[2])))
    else:
        main()
