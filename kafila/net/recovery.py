"""Loss recovery for edges: aioquic's, mended where decode steps and moving paths need it otherwise.

Beside `quic`, the only module that knows aioquic; this one knows its recovery, which nothing public
reaches.
"""

import math
from collections.abc import Iterator
from typing import Final

from aioquic.quic.congestion.base import K_GRANULARITY, register_congestion_control
from aioquic.quic.congestion.cubic import CubicCongestionControl
from aioquic.quic.connection import NetworkAddress, QuicConnection
from aioquic.quic.packet_builder import QuicSentPacket
from aioquic.quic.recovery import QuicPacketPacer

from kafila.defaults import BURST_BYTES, FIRST_PORTION

ALGORITHM: Final = "kafila"


class Window(CubicCongestionControl):
    """CUBIC that grows only while its window is in use (RFC 9002 section 7.8).

    A ring that decodes for an hour sends a few datagrams at a time. aioquic's window would take
    every acknowledgement as leave for more, and the next prefill would go out in one blow.
    """

    def __init__(self, *, max_datagram_size: int) -> None:
        self._filled = 0.0
        super().__init__(max_datagram_size=max_datagram_size)

    def resize(self, size: int) -> None:
        self._max_datagram_size = self.additive_increase_factor = size

    def on_packet_sent(self, *, packet: QuicSentPacket) -> None:
        super().on_packet_sent(packet=packet)
        if 2 * self.bytes_in_flight >= self.congestion_window:
            self._filled = packet.sent_time or 0.0

    def on_packet_acked(self, *, now: float, packet: QuicSentPacket) -> None:
        before = self.congestion_window
        super().on_packet_acked(now=now, packet=packet)
        if (packet.sent_time or 0.0) > self._filled:
            self.congestion_window = before


class Pacer(QuicPacketPacer):
    """Lets BURST_BYTES go at once, and as much as is due within a millisecond: a decode step's
    frame shall not wait for timers, which the loop keeps no better than that.

    At most `portion` packets go before it is set again.
    """

    portion = 0

    def next_send_time(self, now: float) -> float:
        return now if self.portion == 0 else super().next_send_time(now)

    def update_after_send(self, now: float) -> None:
        super().update_after_send(now)
        self.portion -= 1

    def resize(self, size: int) -> None:
        self._max_datagram_size = size

    def update_rate(self, congestion_window: int, smoothed_rtt: float) -> None:
        super().update_rate(congestion_window, smoothed_rtt)
        assert self.packet_time is not None
        burst = BURST_BYTES / self._max_datagram_size * self.packet_time
        self.bucket_max = max(self.bucket_max, burst, K_GRANULARITY)


register_congestion_control(ALGORITHM, Window)


def prepare(connection: QuicConnection) -> None:
    """Give a new connection its pacer."""
    connection._loss._pacer = Pacer(max_datagram_size=connection._max_datagram_size)


def portions(
    connection: QuicConnection, now: float
) -> Iterator[list[tuple[bytes, NetworkAddress]]]:
    """Yield the datagrams to send now: a few, then more and more of them.

    To make and to take one costs about the same. So the peer shall have the first while the rest is
    made, and a burst costs few system calls all the same.
    """
    portion = FIRST_PORTION
    while True:
        pacer = connection._loss._pacer
        assert isinstance(pacer, Pacer)
        pacer.portion = portion
        datagrams = connection.datagrams_to_send(now)
        if datagrams:
            yield datagrams
        if pacer.portion > 0:
            return
        portion *= 4


def resize(connection: QuicConnection, size: int) -> None:
    """Make datagrams of at most `size` bytes from now on."""
    window, pacer = connection._loss._cc, connection._loss._pacer
    assert isinstance(window, Window)
    assert isinstance(pacer, Pacer)
    window.resize(size)
    pacer.resize(size)
    connection._max_datagram_size = size


def move(connection: QuicConnection, size: int, rtt: float, now: float) -> None:
    """Begin anew on another path, of this size and round trip in seconds.

    What is in flight may never arrive and is queued again; that is no sign of congestion.
    """
    recovery = connection._loss
    for space in recovery.spaces:
        recovery._on_packets_lost(
            congestion_event=False,
            now=now,
            packets=list(space.sent_packets.values()),
            space=space,
        )
    recovery._cc = Window(max_datagram_size=size)
    recovery._pacer = Pacer(max_datagram_size=size)
    recovery._pto_count = 0
    recovery._rtt_initialized = False
    recovery._rtt_initial = rtt + recovery.max_ack_delay
    recovery._rtt_min = math.inf
    connection._max_datagram_size = size
