"""QUIC as Kafila uses it, over aioquic's sans-IO connection: the one module that knows aioquic.

Another engine with the same wire protocol belongs here, behind `Engine` and `Quic`. A client trusts
exactly one certificate, the one it was given; a server asks for none (who the client is, the
handshake above proves in-band). No socket, no clock, no asyncio.
"""

import contextlib
import dataclasses
import hmac
import itertools
import logging
import os
import struct
from collections.abc import Hashable, Iterator
from enum import Enum
from typing import Final, NamedTuple

from aioquic.buffer import Buffer  # type: ignore[attr-defined]  # a re-export
from aioquic.quic import events
from aioquic.quic.configuration import QuicConfiguration
from aioquic.quic.connection import QuicConnection
from aioquic.quic.packet import (
    QuicErrorCode,
    QuicPacketType,
    QuicProtocolVersion,
    encode_quic_retry,
    pull_quic_header,
)
from aioquic.tls import AlertDescription

from kafila.address import Address
from kafila.defaults import HANDSHAKE_TIMEOUT, PATH_SIZES
from kafila.net import recovery
from kafila.net.certificate import SERVER_NAME, pem
from kafila.net.identity import Identity

logging.getLogger("quic").addHandler(logging.NullHandler())  # its warnings are our errors

_CID_LENGTH: Final = 8
_VERSIONS: Final = (QuicProtocolVersion.VERSION_1, QuicProtocolVersion.VERSION_2)
HANDSHAKE_STREAM: Final = 0
"""The client's first bidirectional stream (RFC 9000 section 2.1)."""


class Opened(NamedTuple):
    """The TLS handshake is complete: the client now knows the server, but not yet the reverse."""

    alpn: str


class Received(NamedTuple):
    """Bytes of a stream in order; `end`: there will be no more."""

    stream: int
    data: bytes
    end: bool


class Reset(NamedTuple):
    """The peer abandoned a stream."""

    stream: int


class Routed(NamedTuple):
    """Datagrams to this connection id are for this connection from now on."""

    cid: bytes


class Unrouted(NamedTuple):
    """This connection id is retired."""

    cid: bytes


class Cause(Enum):
    """Why a connection ended."""

    SILENCE = "silence"
    TLS = "tls"
    ALPN = "alpn"
    CLOSED = "closed"


class Terminated(NamedTuple):
    """The connection is over. `reason` is the peer's and not to be trusted with a terminal."""

    cause: Cause
    reason: str


Event = Opened | Received | Reset | Routed | Unrouted | Terminated


class Destination(NamedTuple):
    """Where a QUIC datagram wants to go. `opens`: it may open a new connection."""

    cid: bytes
    opens: bool
    version: int
    source_cid: bytes
    token: bytes
    """What a Retry gave the client."""


def destination(datagram: bytes) -> Destination:
    """Read a datagram's connection id (RFC 9000 section 17); raises ValueError for garbage."""
    header = pull_quic_header(Buffer(data=datagram), host_cid_length=_CID_LENGTH)
    opens = (
        header.packet_type is QuicPacketType.INITIAL
        and header.version in _VERSIONS
        and len(datagram) >= PATH_SIZES[0]
    )
    return Destination(
        header.destination_cid, opens, header.version or 0, header.source_cid, header.token
    )


class Retries:
    """Has a client prove that it receives at its address, and keeps no state for it (RFC 9000
    section 8.1.2). A token is the time in ms (8 bytes), a tag (16) and the client's first
    connection id."""

    def __init__(self) -> None:
        self._key = os.urandom(32)

    def datagram(self, to: Destination, address: Address, now: float) -> bytes:
        """Return the Retry for a client's first datagram; never larger than that."""
        cid = os.urandom(_CID_LENGTH)
        issued = _ISSUED.pack(int(now * 1000))
        token = issued + self._tag(issued, cid, to.cid, address) + to.cid
        return encode_quic_retry(
            version=to.version,
            source_cid=cid,
            destination_cid=to.source_cid,
            original_destination_cid=to.cid,
            retry_token=token,
        )

    def first_cid(self, to: Destination, address: Address, now: float) -> bytes | None:
        """Return the connection id that the client used before its Retry; None: its token is
        forged, another's, or as old as a client that has given up."""
        issued, tag = to.token[: _ISSUED.size], to.token[_ISSUED.size : _ISSUED.size + _TAG_SIZE]
        cid = to.token[_ISSUED.size + _TAG_SIZE :]
        if len(tag) < _TAG_SIZE or len(cid) > _LONGEST_CID:
            return None
        if not hmac.compare_digest(tag, self._tag(issued, to.cid, cid, address)):
            return None
        (ms,) = _ISSUED.unpack(issued)
        return cid if now - ms / 1000 <= HANDSHAKE_TIMEOUT else None

    def _tag(self, issued: bytes, cid: bytes, first: bytes, address: Address) -> bytes:
        place = f"{address[0]} {address[1]}".encode()
        parts = b"".join(bytes([len(part)]) + part for part in (issued, cid, first, place))
        return hmac.digest(self._key, parts, "sha256")[:_TAG_SIZE]


_ISSUED: Final = struct.Struct("!Q")
_TAG_SIZE: Final = 16
_LONGEST_CID: Final = 20


class Quic:
    """One QUIC connection: bytes, events and `now` in, datagrams and events out."""

    def __init__(self, connection: QuicConnection, cids: list[bytes], window: int) -> None:
        recovery.prepare(connection)
        self._connection = connection
        self._window = window
        self._delivered = 0
        self.cids = cids
        """The connection ids datagrams for this connection carry at first."""

    def receive(self, datagram: bytes, address: Hashable, now: float) -> None:
        """Take a datagram; `address` is any value that is the same as long as the peer's is."""
        self._connection.receive_datagram(datagram, address, now)

    def events(self) -> Iterator[Event]:
        """Yield what has happened. Raises ValueError for a peer that sends on behind a gap.

        The engine keeps room for all up to the furthest byte, and lets the peer go further the
        further it went: a few bytes, each at the end of the window, would take all memory.
        """
        happened = iter(self._connection.next_event, None)
        for stream, group in itertools.groupby(happened, _stream):
            if stream is None:
                yield from filter(None, map(_event, group))
            else:  # a burst of pieces is one to whoever puts messages together
                pieces = [piece for piece in group if isinstance(piece, events.StreamDataReceived)]
                data = b"".join(piece.data for piece in pieces)
                self._delivered += len(data)
                yield Received(stream, data, pieces[-1].end_stream)
        ahead = self._connection._local_max_data.used - self._delivered  # nothing public tells
        if ahead > 2 * self._window:
            raise ValueError(f"it sent {ahead} bytes behind a gap")

    def open_stream(self, data: bytes) -> int:
        """Open a unidirectional stream with its first bytes; return its number."""
        stream = self._connection.get_next_available_stream_id(is_unidirectional=True)
        self.send(stream, data)
        return stream

    def send(self, stream: int, data: bytes, *, end: bool = False) -> None:
        """Queue bytes on a stream."""
        with contextlib.suppress(RuntimeError):  # the peer abandoned it: `Reset` follows
            self._connection.send_stream_data(stream, data, end_stream=end)

    def ping(self) -> None:
        """Ask for a sign of life."""
        self._connection.send_ping(0)

    def resize(self, size: int) -> None:
        """Make datagrams of at most `size` bytes (from 1200) from now on."""
        recovery.resize(self._connection, size)

    def moved(self, size: int, rtt: float, now: float) -> None:
        """Datagrams take another path from now on, of this largest size and round trip in s.

        What was learnt of the old path does not hold: its round trip, its window and, after it
        died, seconds of back-off (RFC 9000 section 9.4). What is on its way there goes again at
        once, and so does a ping.
        """
        recovery.move(self._connection, size, rtt, now)
        self.ping()

    def close(self, reason: str) -> None:
        """End the connection now; what the peer has not received is lost."""
        self._connection.close(reason_phrase=reason)

    def datagrams(self, now: float) -> Iterator[list[tuple[bytes, Hashable]]]:
        """Yield the datagrams to send now, each with the peer's address as it was given.

        They come in portions: send one before you ask for the next.
        """
        if self._connection.get_peer_address() is None:
            return iter(())  # a server that has understood nothing yet
        return recovery.portions(self._connection, now)

    def timer(self) -> float | None:
        """Return when `handle_timer` is due."""
        return self._connection.get_timer()

    def handle_timer(self, now: float) -> None:
        """Act on a due timer: retransmit, or give the connection up."""
        self._connection.handle_timer(now)


def _stream(event: events.QuicEvent) -> int | None:
    """Which stream an event brings bytes of."""
    return event.stream_id if isinstance(event, events.StreamDataReceived) else None


def _event(event: events.QuicEvent) -> Event | None:
    match event:
        case events.ConnectionIdIssued():
            return Routed(event.connection_id)
        case events.ConnectionIdRetired():
            return Unrouted(event.connection_id)
        case events.HandshakeCompleted():
            return Opened(event.alpn_protocol or "")
        case events.StreamReset() | events.StopSendingReceived():
            return Reset(event.stream_id)
        case events.ConnectionTerminated():
            return Terminated(_cause(event), event.reason_phrase)
    return None


def _cause(event: events.ConnectionTerminated) -> Cause:
    crypto = QuicErrorCode.CRYPTO_ERROR
    if event.error_code == crypto + AlertDescription.no_application_protocol:
        return Cause.ALPN
    if crypto <= event.error_code < crypto + 0x100:  # a TLS alert (RFC 9001 section 4.8)
        return Cause.TLS
    if event.error_code == QuicErrorCode.INTERNAL_ERROR and event.reason_phrase == "Idle timeout":
        return Cause.SILENCE
    return Cause.CLOSED


class Engine:
    """Makes a node's QUIC connections, all with its identity and idle time-out (seconds)."""

    def __init__(self, identity: Identity, idle_timeout: float) -> None:
        self._client = QuicConfiguration(
            supported_versions=list(_VERSIONS),
            connection_id_length=_CID_LENGTH,
            congestion_control_algorithm=recovery.ALGORITHM,
            idle_timeout=idle_timeout,
            server_name=SERVER_NAME,
        )
        self._server = dataclasses.replace(self._client, is_client=False, server_name=None)
        self._server.load_cert_chain(identity.certificate_file, identity.key_file)

    def connect(
        self,
        address: Hashable,
        *,
        alpn: str,
        certificate: bytes,
        size: int,
        window: int,
        now: float,
    ) -> Quic:
        """Open a connection to the server with this certificate (DER), and to no other.

        `size` is the largest datagram, `window` what the peer may send ahead, in bytes.
        """
        configuration = dataclasses.replace(
            self._client,
            alpn_protocols=[alpn],
            max_datagram_size=size,
            max_data=window,
            max_stream_data=window,
        )
        anchor = pem(certificate)
        configuration.load_verify_locations(cadata=anchor)
        connection = QuicConnection(configuration=configuration)
        connection.connect(address, now)
        return Quic(connection, [connection.host_cid], window)

    def accept(self, cid: bytes, *, first: bytes, alpns: list[str], size: int, window: int) -> Quic:
        """Make the server's end for a client's datagram, sent to connection id `cid`; `first` is
        the one it used at first, another if it was sent a Retry."""
        configuration = dataclasses.replace(
            self._server,
            alpn_protocols=alpns,
            max_datagram_size=size,
            max_data=window,
            max_stream_data=window,
        )
        connection = QuicConnection(
            configuration=configuration,
            original_destination_connection_id=first,
            retry_source_connection_id=None if first == cid else cid,
        )
        return Quic(connection, [cid, connection.host_cid], window)
