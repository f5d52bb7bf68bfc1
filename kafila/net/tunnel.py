"""Datagrams inside TLS on TCP, for members that no UDP reaches: `length u16 | datagram`.

Inside goes what would go over UDP to a rendezvous, QUIC and relay frames, unchanged. TLS is only
there to pass firewalls: the client does not look at the certificate, since who the rendezvous is,
the QUIC inside proves.
"""

import asyncio
import contextlib
import itertools
import socket
import ssl
import struct
from collections.abc import Iterable, Sequence
from typing import Final, Protocol

from kafila.address import Address
from kafila.defaults import (
    CLOSE_TIMEOUT,
    HANDSHAKE_TIMEOUT,
    MAX_DATAGRAM,
    TUNNEL_BUFFER,
    TUNNEL_IDLE,
    TUNNELS,
    TUNNELS_PER_ADDRESS,
)
from kafila.errors import NetworkProblem
from kafila.net.carrier import Carrier, tunnel_address
from kafila.net.identity import Identity
from kafila.net.limits import site


class Owner(Protocol):
    """What a tunnel needs of the node around it."""

    def take(self, carrier: Carrier, datagrams: Iterable[tuple[bytes, Address]]) -> None:
        """Take what came over a carrier: datagrams, each with its source."""

    def tunnel_opened(self, tunnel: "Tunnel") -> None:
        """Know a new tunnel."""

    def tunnel_closed(self, tunnel: "Tunnel") -> None:
        """Forget it: nothing comes or goes any more."""


_LENGTH: Final = struct.Struct("!H")
_ENDS: Final = itertools.count()
_UNSENT_IN_KERNEL: Final = getattr(socket, "TCP_NOTSENT_LOWAT", None)


class Frames:
    """Cuts a stream of bytes into datagrams; keeps less than one of them."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> list[bytes]:
        """Take the next bytes; raises ValueError for a length that no datagram has."""
        data = self._rest + data
        datagrams = []
        start = 0
        while len(data) >= start + _LENGTH.size:
            (length,) = _LENGTH.unpack_from(data, start)
            if not 0 < length <= MAX_DATAGRAM:
                raise ValueError(f"a datagram of {length} bytes")
            end = start + _LENGTH.size + length
            if end > len(data):
                break
            datagrams.append(data[start + _LENGTH.size : end])
            start = end
        self._rest = data[start:]
        return datagrams


class Tunnel(asyncio.Protocol):
    """One end of a tunnel: a carrier to whoever is at the other end, whatever the address."""

    def __init__(self, owner: Owner) -> None:
        self.address: Address = ("", 0)
        """What stands for the peer as an address, once it is connected."""
        self.over = asyncio.Event()
        """Set when the connection is gone."""
        self._owner = owner
        self._frames = Frames()
        self._transport: asyncio.Transport | None = None
        self._idle: asyncio.TimerHandle | None = None
        self._heard = False

    def send(self, datagram: bytes, address: Address, ttl: int | None = None) -> None:
        """Send a datagram; it is lost if too much waits already, or where `ttl` would lose it."""
        transport = self._transport
        if transport is None or ttl is not None or len(datagram) > MAX_DATAGRAM:
            return
        if transport.get_write_buffer_size() <= TUNNEL_BUFFER:
            transport.write(_LENGTH.pack(len(datagram)) + datagram)

    def send_all(self, datagrams: Sequence[bytes], address: Address) -> None:
        """Send several datagrams."""
        for datagram in datagrams:
            self.send(datagram, address)

    async def close(self) -> None:
        """Close it and wait until it is gone; again: nothing."""
        if self._transport is not None:
            self._transport.abort()
            await self.over.wait()

    # --- what asyncio calls ------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """TLS is up."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self.address = tunnel_address(transport.get_extra_info("peername")[:2], next(_ENDS))
        wire = transport.get_extra_info("socket")
        if _UNSENT_IN_KERNEL is not None:  # what waits there is delay too
            with contextlib.suppress(OSError):
                wire.setsockopt(socket.IPPROTO_TCP, _UNSENT_IN_KERNEL, TUNNEL_BUFFER)
        self._owner.tunnel_opened(self)
        self._watch()

    def data_received(self, data: bytes) -> None:
        """Take bytes; whoever sends nonsense is cut off."""
        self._heard = True
        try:
            datagrams = self._frames.feed(data)
        except ValueError:
            if self._transport is not None:
                self._transport.abort()
            return
        self._owner.take(self, [(datagram, self.address) for datagram in datagrams])

    def connection_lost(self, error: Exception | None) -> None:
        """The connection is gone, for whatever reason."""
        self._transport = None
        if self._idle is not None:
            self._idle.cancel()
        self.over.set()
        self._owner.tunnel_closed(self)

    def _watch(self) -> None:
        """Close it once nothing came for TUNNEL_IDLE seconds (up to twice that)."""
        self._heard = False
        self._idle = asyncio.get_running_loop().call_later(TUNNEL_IDLE, self._look)

    def _look(self) -> None:
        if self._heard:
            self._watch()
        elif self._transport is not None:
            self._transport.abort()


async def open_tunnel(owner: Owner, address: Address, host: str) -> Tunnel:
    """Connect to a rendezvous at an IP address and port; `host` is its name, for firewalls to see.

    Raises OSError if TCP or TLS fails.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    _, tunnel = await asyncio.get_running_loop().create_connection(
        lambda: Tunnel(owner),
        *address,
        ssl=context,
        server_hostname=host,
        ssl_handshake_timeout=HANDSHAKE_TIMEOUT,
        ssl_shutdown_timeout=CLOSE_TIMEOUT,
    )
    return tunnel


class TunnelServer:
    """Accepts tunnels, within bounds: who is over one is closed at once."""

    def __init__(self, owner: Owner, identity: Identity) -> None:
        self._owner = owner
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.load_cert_chain(identity.certificate_file, identity.key_file)
        self._accepting: dict[asyncio.Task[None], socket.socket] = {}
        self._guests: dict[asyncio.Task[None], str] = {}

    def listen(self, address: Address) -> None:
        """Listen at an address (port 0 is none). Raises NetworkProblem if it cannot be had."""
        host, port = address
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        try:
            listener = socket.create_server(address, family=family, backlog=TUNNELS_PER_ADDRESS)
        except OSError as error:
            raise NetworkProblem(
                f"cannot open TCP port {port} on {host}: {error.strerror}. Members that no UDP "
                "reaches come over it; stop its user or take another port."
            ) from error
        listener.setblocking(False)
        self._accepting[asyncio.create_task(self._accept(listener))] = listener

    async def close(self) -> None:
        """Stop listening and close every tunnel; again: nothing."""
        tasks = [*self._accepting, *self._guests]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for listener in self._accepting.values():
            listener.close()
        self._accepting.clear()

    async def _accept(self, listener: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                wire, peer = await loop.sock_accept(listener)
            except OSError:  # who came has gone, or no descriptor is free: some will be
                await asyncio.sleep(CLOSE_TIMEOUT)
                continue
            host = site(peer[0])
            crowd = sum(each == host for each in self._guests.values())
            if len(self._guests) >= TUNNELS or crowd >= TUNNELS_PER_ADDRESS:
                wire.close()
                continue
            task = asyncio.create_task(self._welcome(wire))
            self._guests[task] = host
            task.add_done_callback(self._guests.pop)

    async def _welcome(self, wire: socket.socket) -> None:
        """Keep one tunnel from TCP's first byte to its last."""
        tunnel = Tunnel(self._owner)
        try:
            await asyncio.get_running_loop().connect_accepted_socket(
                lambda: tunnel,
                wire,
                ssl=self._context,
                ssl_handshake_timeout=HANDSHAKE_TIMEOUT,
                ssl_shutdown_timeout=CLOSE_TIMEOUT,
            )
            await tunnel.over.wait()
        except OSError:  # it speaks no TLS, or not in time
            return
        finally:
            await tunnel.close()
