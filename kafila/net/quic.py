"""QUIC as Kafila uses it, over aioquic's sans-IO connection: the one module that knows aioquic.

Another engine with the same wire protocol belongs here, behind `Engine` and `Quic`. A client trusts
exactly one certificate, the one it was given; a server asks for none (who the client is, the
handshake above proves in-band). No socket, no clock, no asyncio.
"""

import contextlib
import dataclasses
import logging
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
    pull_quic_header,
)
from aioquic.tls import AlertDescription

from kafila.defaults import PATH_SIZES
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


class Ponged(NamedTuple):
    """A ping was acknowledged."""

    uid: int


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


Event = Opened | Received | Reset | Ponged | Routed | Unrouted | Terminated


class Destination(NamedTuple):
    """Where a QUIC datagram wants to go. `opens`: it may open a new connection."""

    cid: bytes
    opens: bool


def destination(datagram: bytes) -> Destination:
    """Read a datagram's connection id (RFC 9000 section 17); raises ValueError for garbage."""
    header = pull_quic_header(Buffer(data=datagram), host_cid_length=_CID_LENGTH)
    opens = (
        header.packet_type is QuicPacketType.INITIAL
        and header.version in _VERSIONS
        and len(datagram) >= PATH_SIZES[0]
    )
    return Destination(header.destination_cid, opens)


class Quic:
    """One QUIC connection: bytes, events and `now` in, datagrams and events out."""

    def __init__(self, connection: QuicConnection, cids: list[bytes]) -> None:
        self._connection = connection
        self.cids = cids
        """The connection ids datagrams for this connection carry at first."""

    def receive(self, datagram: bytes, address: Hashable, now: float) -> None:
        """Take a datagram; `address` is any value that is the same as long as the peer's is."""
        self._connection.receive_datagram(datagram, address, now)

    def events(self) -> Iterator[Event]:
        """Yield what has happened."""
        while (event := self._connection.next_event()) is not None:
            match event:
                case events.StreamDataReceived():
                    yield Received(event.stream_id, event.data, event.end_stream)
                case events.PingAcknowledged():
                    yield Ponged(event.uid)
                case events.ConnectionIdIssued():
                    yield Routed(event.connection_id)
                case events.ConnectionIdRetired():
                    yield Unrouted(event.connection_id)
                case events.HandshakeCompleted():
                    yield Opened(event.alpn_protocol or "")
                case events.StreamReset() | events.StopSendingReceived():
                    yield Reset(event.stream_id)
                case events.ConnectionTerminated():
                    yield Terminated(_cause(event), event.reason_phrase)

    def open_stream(self, data: bytes) -> int:
        """Open a unidirectional stream with its first bytes; return its number."""
        stream = self._connection.get_next_available_stream_id(is_unidirectional=True)
        self.send(stream, data)
        return stream

    def send(self, stream: int, data: bytes, *, end: bool = False) -> None:
        """Queue bytes on a stream."""
        with contextlib.suppress(RuntimeError):  # the peer abandoned it: `Reset` follows
            self._connection.send_stream_data(stream, data, end_stream=end)

    def ping(self, uid: int) -> None:
        """Ask for a sign of life; `Ponged` answers it."""
        self._connection.send_ping(uid)

    def close(self, reason: str) -> None:
        """End the connection now; what the peer has not received is lost."""
        self._connection.close(reason_phrase=reason)

    def datagrams(self, now: float) -> list[tuple[bytes, Hashable]]:
        """Return the datagrams to send now, each with the peer's address as it was given."""
        return self._connection.datagrams_to_send(now)

    def timer(self) -> float | None:
        """Return when `handle_timer` is due."""
        return self._connection.get_timer()

    def handle_timer(self, now: float) -> None:
        """Act on a due timer: retransmit, or give the connection up."""
        self._connection.handle_timer(now)


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
            congestion_control_algorithm="cubic",
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
        return Quic(connection, [connection.host_cid])

    def accept(self, cid: bytes, *, alpns: list[str], size: int, window: int) -> Quic:
        """Make the server's end for a client's first datagram, sent to connection id `cid`."""
        configuration = dataclasses.replace(
            self._server,
            alpn_protocols=alpns,
            max_datagram_size=size,
            max_data=window,
            max_stream_data=window,
        )
        connection = QuicConnection(
            configuration=configuration, original_destination_connection_id=cid
        )
        return Quic(connection, [cid, connection.host_cid])
