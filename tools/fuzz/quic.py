"""QUIC itself: datagrams of strangers, and frames of a peer that holds the keys.

Who holds the keys can seal anything. Of a first datagram everybody does, since its keys follow from
the connection id in it (RFC 9001 section 5.2): no proof stands between the engine and a stranger.
"""

from itertools import chain

from aioquic.buffer import Buffer  # type: ignore[attr-defined]  # a re-export
from aioquic.quic.crypto import CryptoPair
from aioquic.quic.packet import QuicPacketType, QuicProtocolVersion
from aioquic.quic.packet_builder import QuicPacketBuilder
from aioquic.tls import Epoch

from kafila.net.quic import HANDSHAKE_STREAM, Quic, destination
from tools.fuzz.target import Reader, Target
from tools.fuzz.world import ADDRESS, ALPN, BERT, ENGINE_OF_ANNA, ENGINE_OF_BERT, initial


def _server(first: bytes) -> Quic:
    to = destination(first)
    return ENGINE_OF_BERT.accept(to.cid, first=to.cid, alpns=[ALPN], size=1200, window=1 << 17)


def _drain(quic: Quic, now: float) -> None:
    """What a node does after a datagram."""
    list(quic.events())
    list(quic.datagrams(now))
    quic.timer()


def _stranger() -> Reader:
    """A server that a client has begun to talk to."""
    quic = _server(initial())

    def read(data: bytes) -> None:
        quic.receive(data, ADDRESS, 1.0)
        _drain(quic, 1.0)

    return read


def _first_frames() -> Reader:
    """Frames in a first datagram, sealed as everybody can."""

    def read(frames: bytes) -> None:
        cid = bytes(8)
        keys = CryptoPair()
        keys.setup_initial(cid, is_client=True, version=QuicProtocolVersion.VERSION_1)
        builder = QuicPacketBuilder(
            host_cid=b"stranger",
            peer_cid=cid,
            version=QuicProtocolVersion.VERSION_1,
            is_client=True,
            max_datagram_size=1452,
        )
        quic = ENGINE_OF_BERT.accept(cid, first=cid, alpns=[ALPN], size=1200, window=1 << 17)
        quic.receive(_sealed(builder, QuicPacketType.INITIAL, keys, frames), ADDRESS, 1.0)
        _drain(quic, 1.0)

    return read


class _Pair:
    """Two ends whose handshake is complete."""

    def __init__(self) -> None:
        self.client = ENGINE_OF_ANNA.connect(
            ADDRESS, alpn=ALPN, certificate=BERT.certificate, size=1200, window=1 << 17, now=0.0
        )
        [[(first, _)]] = self.client.datagrams(0.0)
        self.server = _server(first)
        self.server.receive(first, ADDRESS, 0.0)
        for turn in range(1, 8):
            now = turn / 100
            for near, far in ((self.server, self.client), (self.client, self.server)):
                list(near.events())
                for datagram, _ in chain.from_iterable(near.datagrams(now)):
                    far.receive(datagram, ADDRESS, now)
        self.client.open_stream(b"x")

    def sealed(self, end: Quic, frames: bytes) -> bytes:
        """A datagram with these frames that the other end will take for genuine."""
        connection = end._connection
        builder = QuicPacketBuilder(
            host_cid=connection.host_cid,
            peer_cid=connection._peer_cid.cid,
            version=QuicProtocolVersion.VERSION_1,
            is_client=end is self.client,
            max_datagram_size=1452,
            packet_number=connection._packet_number,
        )
        connection._packet_number += 1
        keys = connection._cryptos[Epoch.ONE_RTT]
        return _sealed(builder, QuicPacketType.ONE_RTT, keys, frames)


def _sealed(
    builder: QuicPacketBuilder, kind: QuicPacketType, keys: CryptoPair, frames: bytes
) -> bytes:
    builder.start_packet(kind, keys)
    buffer: Buffer = builder.start_frame(1)  # a PING comes first, that it be answered
    buffer.push_bytes(frames[:1100])
    datagrams, _ = builder.flush()
    return datagrams[0]


def _frames_to_server() -> Reader:
    pair = _Pair()

    def read(frames: bytes) -> None:
        pair.server.receive(pair.sealed(pair.client, frames), ADDRESS, 1.0)
        _drain(pair.server, 1.0)

    return read


def _frames_to_client() -> Reader:
    pair = _Pair()

    def read(frames: bytes) -> None:
        pair.client.receive(pair.sealed(pair.server, frames), ADDRESS, 1.0)
        _drain(pair.client, 1.0)

    return read


def _varint(value: int) -> bytes:
    return (
        (value | 0x40000000_00000000 * 3).to_bytes(8)
        if value >> 30
        else ((value | 0x80000000).to_bytes(4))
    )


_FRAMES = [
    b"\x02\x05\x00\x00\x00",  # ACK
    b"\x04\x00\x00\x00",  # RESET_STREAM
    b"\x05\x00\x00",  # STOP_SENDING
    b"\x06\x00\x04\x01\x00\x00\x00",  # CRYPTO: the head of a ClientHello
    b"\x07\x04toke",  # NEW_TOKEN
    bytes([0x0A, HANDSHAKE_STREAM, 0x05]) + b"hello",  # STREAM with a length
    b"\x0e\x02" + _varint(1 << 20) + b"\x05hello",  # STREAM far ahead
    b"\x0e\x02" + _varint((1 << 62) - 1) + b"\x05hello",
    b"\x10" + _varint(1 << 40),  # MAX_DATA
    b"\x11\x02" + _varint(1 << 40),  # MAX_STREAM_DATA
    b"\x12" + _varint(1 << 40),  # MAX_STREAMS
    b"\x14\x05",  # DATA_BLOCKED
    b"\x15\x02\x05",  # STREAM_DATA_BLOCKED
    b"\x16\x05",  # STREAMS_BLOCKED
    b"\x18\x02\x00\x08" + b"c" * 8 + b"t" * 16,  # NEW_CONNECTION_ID
    b"\x19\x00",  # RETIRE_CONNECTION_ID
    b"\x1a" + b"p" * 8,  # PATH_CHALLENGE
    b"\x1b" + b"p" * 8,  # PATH_RESPONSE
    b"\x1c\x00\x00\x03bye",  # CONNECTION_CLOSE
    b"\x1d\x00\x03bye",
    b"\x1e",  # HANDSHAKE_DONE
    b"\x30data",  # DATAGRAM
]

TARGETS = (
    Target("QUIC of a stranger", (initial(), initial()), _stranger),
    Target("frames of a first datagram", _FRAMES, _first_frames),
    Target("frames to a server", _FRAMES, _frames_to_server),
    Target("frames to a client", _FRAMES, _frames_to_client),
)
