"""QUIC over paths that change beneath it: two real engines, a network in virtual time."""

import heapq
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path

import pytest

from kafila.net.identity import Identity
from kafila.net.quic import Engine, Opened, Quic, Received, Terminated, destination

PEER = "the peer"
RELAY, DIRECT = 0.080, 0.001
"""One-way delays in seconds."""


@dataclass(eq=False)
class End:
    """One end: how long its datagrams take (None: they vanish), and what has come to it."""

    quic: Quic
    delay: float | None = RELAY
    sent: list[int] = field(default_factory=list)
    """Bytes of its datagrams."""
    received: bytes = b""
    arrived: float = 0.0
    """When the last of these came."""
    opened: bool = False


class Network:
    """Two connected ends, and the time."""

    def __init__(self, client: Engine, server: Engine, certificate: bytes, size: int) -> None:
        self.now = 100.0
        self._arriving: list[tuple[float, int, End, bytes]] = []
        self._number = 0
        quic = client.connect(
            PEER, alpn="test", certificate=certificate, size=size, window=1 << 24, now=self.now
        )
        self.client = End(quic)
        [[(first, _)]] = quic.datagrams(self.now)
        to = destination(first)
        accepted = server.accept(to.cid, first=to.cid, alpns=["test"], size=size, window=1 << 24)
        self.server = End(accepted)
        accepted.receive(first, PEER, self.now)
        self.run(2.0)
        assert self.client.opened
        assert self.server.opened

    def run(self, seconds: float) -> None:
        """Let so much time pass."""
        until = self.now + seconds
        for end in (self.client, self.server):
            self._send(end)
        while True:
            times = [
                (when, end) for end in (self.client, self.server) if (when := end.quic.timer())
            ]
            due, whose = min(times, key=lambda each: each[0])
            if self._arriving and self._arriving[0][0] <= due:
                if self._arriving[0][0] > until:
                    break
                self.now, _, whose, datagram = heapq.heappop(self._arriving)
                whose.quic.receive(datagram, PEER, self.now)
            else:
                if due > until:
                    break
                self.now = max(due, self.now)
                whose.quic.handle_timer(self.now)
            for event in whose.quic.events():
                assert not isinstance(event, Terminated)
                whose.opened = whose.opened or isinstance(event, Opened)
                if isinstance(event, Received) and event.data:
                    whose.received += event.data
                    whose.arrived = self.now
            self._send(whose)
        self.now = until

    def move(self, delay: float, size: int = 1200) -> None:
        """Both ends take a path of this delay from now on."""
        for end in (self.client, self.server):
            end.delay = delay
            end.quic.moved(size, 2 * delay, self.now)

    def die(self) -> None:
        """What is sent from now on is lost."""
        self.client.delay = self.server.delay = None

    def _send(self, end: End) -> None:
        other = self.server if end is self.client else self.client
        for datagram, address in chain.from_iterable(end.quic.datagrams(self.now)):
            assert address == PEER
            end.sent.append(len(datagram))
            if end.delay is not None:
                self._push(other, datagram, end.delay)

    def _push(self, end: End, datagram: bytes, delay: float) -> None:
        self._number += 1
        heapq.heappush(self._arriving, (self.now + delay, self._number, end, datagram))


@pytest.fixture
def network(tmp_path: Path) -> Callable[..., Network]:
    """Connect two ends over the relay."""
    client, server = (Identity.load_or_create(tmp_path / name) for name in ("client", "server"))

    def make(size: int = 1200) -> Network:
        engines = Engine(client, 60.0), Engine(server, 60.0)
        return Network(*engines, server.certificate, size)

    return make


Make = Callable[..., Network]


def test_datagrams_take_a_new_size_at_once(network: Make) -> None:
    net = network(size=1200)
    stream = net.client.quic.open_stream(b"x" * 20_000)
    net.run(1)
    assert max(net.client.sent) == 1200
    for size in (8900, 1452, 1200):
        net.client.sent.clear()
        net.client.quic.resize(size)
        net.client.quic.send(stream, b"x" * 20_000)
        net.run(1)
        assert max(net.client.sent) == size
    assert len(net.server.received) == 80_000


@pytest.mark.parametrize("dead", [0.0, 0.3, 2.0, 6.5])
def test_what_was_on_a_path_that_died_comes_over_the_next_within_a_round_trip(
    network: Make, dead: float
) -> None:
    """However far the probes of the dead path had backed off."""
    net = network()
    stream = net.client.quic.open_stream(b"over the relay")
    net.run(1)
    net.move(DIRECT, size=1452)
    net.client.quic.send(stream, b"directly" * 1000)
    net.run(1)
    net.die()
    net.client.quic.send(stream, b"into the void")
    net.run(0.05)
    net.client.quic.send(stream, b"and on" * 1000)
    net.run(dead)
    before = net.now
    net.move(RELAY)
    net.run(1)
    assert net.server.arrived - before <= 2 * RELAY
    sent = [b"over the relay", b"directly" * 1000, b"into the void", b"and on" * 1000]
    assert net.server.received == b"".join(sent)


def test_a_move_to_a_faster_path_does_not_wait_for_the_slower_one(network: Make) -> None:
    net = network()
    stream = net.client.quic.open_stream(b"x")
    net.run(1)
    net.client.quic.send(stream, b"y" * 8192)
    net.run(RELAY / 4)  # on its way over the relay
    before = net.now
    net.move(DIRECT, size=1452)
    net.run(1)
    assert net.server.received == b"x" + b"y" * 8192
    assert net.server.arrived - before <= 4 * DIRECT


def test_a_bulk_transfer_keeps_its_pace_over_every_move(network: Make) -> None:
    """Its window is neither the old path's nor cut by what the old path lost."""
    net = network()
    stream = net.client.quic.open_stream(b"")
    sent = b""
    for number, delay in enumerate((DIRECT, RELAY, DIRECT, RELAY)):
        message = bytes([number]) * 1_000_000
        net.client.quic.send(stream, message)
        sent += message
        net.run(2 * DIRECT)
        net.die()
        net.run(1)
        before = net.now
        net.move(delay)
        net.run(5)
        assert net.server.received == sent
        # the window doubles each round trip, from ten datagrams: seven, and acknowledging
        assert net.server.arrived - before <= 15 * 2 * delay


def test_a_move_during_the_handshake_starts_it_over_at_once(tmp_path: Path) -> None:
    client, server = (Identity.load_or_create(tmp_path / name) for name in ("client", "server"))
    engine = Engine(client, 60.0)
    quic = engine.connect(
        PEER, alpn="test", certificate=server.certificate, size=1200, window=1 << 24, now=1.0
    )
    [[(first, _)]] = quic.datagrams(1.0)
    assert not list(quic.datagrams(1.01))
    quic.moved(1200, 2 * RELAY, 1.02)
    [[(again, _)]] = quic.datagrams(1.02)
    assert destination(again).opens
    assert destination(again).cid == destination(first).cid


@pytest.mark.parametrize(
    ("size", "portions"),
    [(100, [1]), (2 * 1100, [2]), (8192, [2, 6]), (50_000, [2, 8])],  # ten: its window,
)
def test_the_first_of_a_burst_leave_before_the_rest_is_made(
    network: Make, size: int, portions: list[int]
) -> None:
    net = network(1200)
    net.client.quic.send(net.client.quic.open_stream(b""), bytes(size))
    assert [len(each) for each in net.client.quic.datagrams(net.now)] == portions


def test_an_hour_of_decoding_does_not_let_a_prefill_out_in_one_blow(network: Make) -> None:
    net = network()
    stream = net.client.quic.open_stream(b"")
    for _ in range(500):
        net.client.quic.send(stream, b"x" * 8192)
        net.run(0.2)
    net.client.sent.clear()
    net.client.quic.send(stream, b"y" * 1_000_000)
    net.run(RELAY / 2)
    assert sum(net.client.sent) < 64 << 10
    net.run(5)
    assert net.server.received.count(b"y") == 1_000_000


def test_the_frame_of_a_decode_step_waits_for_no_timer(network: Make) -> None:
    """However slow the path, and thus the pace."""
    net = network()
    stream = net.client.quic.open_stream(b"")
    for _ in range(5):
        net.client.quic.send(stream, b"x" * 40_000)
        net.run(1)
    before = net.now
    net.client.quic.send(stream, b"y" * 40_000)
    net.run(1)
    assert net.server.received.endswith(b"y" * 40_000)
    assert net.server.arrived - before == pytest.approx(RELAY)
