"""The first contact with a rendezvous: who answers at an address, and is it who it should be?

All its addresses are asked over UDP at once. If they stay silent, so may UDP be here: then TCP is
tried beside them, and the first answer of all decides.
"""

import asyncio
from typing import Final, Protocol

from kafila.address import Address, format_address
from kafila.defaults import (
    CONTROL_WINDOW,
    MESSAGE_LIMIT,
    NEXT_ADDRESS,
    PATH_SIZES,
    TUNNEL_AFTER,
    TUNNEL_AGAIN,
)
from kafila.errors import IdentityProblem, KafilaError, NetworkProblem
from kafila.net.carrier import on_the_wire
from kafila.net.certificate import key_of
from kafila.net.connection import Connection, Shell, forsake
from kafila.net.handshake import ClientHandshake, Terms
from kafila.net.identity import Identity
from kafila.net.queries import Found, Queries
from kafila.net.quic import Engine
from kafila.net.sockets import Sockets
from kafila.net.tunnel import Tunnel, open_tunnel
from kafila.net.udp import resolve
from kafila.words import short


class Node(Shell, Protocol):
    """What is needed of the node."""

    identity: Identity
    protocol: int


class Dial:
    """One attempt to connect with a listening node."""

    def __init__(
        self,
        node: Node,
        sockets: Sockets,
        queries: Queries,
        engine: Engine,
        address: Address,
        alpn: str,
        idle_timeout: float,
    ) -> None:
        """`address` may name a host."""
        self._node = node
        self._sockets = sockets
        self._queries = queries
        self._engine = engine
        self._address = address
        self._alpn = alpn
        self._idle_timeout = idle_timeout
        self._label = format_address(address)
        self._doubt = _UDP
        self._opened: list[Tunnel] = []

    async def connection(self, server_key: bytes | None, timeout: float) -> Connection:
        """See `Node.dial`."""
        opened: asyncio.Future[Connection] = asyncio.get_running_loop().create_future()

        def on_opened(connection: Connection, problem: KafilaError | None) -> None:
            if not opened.done():
                opened.set_exception(problem) if problem else opened.set_result(connection)

        made: Connection | None = None
        connection: Connection | None = None
        try:
            async with asyncio.timeout(timeout):
                found = await self._found()
                key = key_of(found.certificate)
                if server_key is not None and key != server_key:
                    raise IdentityProblem(
                        f"{self._label} has key {short(key)}, not the expected "
                        f"{short(server_key)}: another machine, or its keys were made anew."
                    )
                quic = self._engine.connect(
                    found.address,
                    alpn=self._alpn,
                    certificate=found.certificate,
                    size=PATH_SIZES[0],
                    window=CONTROL_WINDOW,
                    now=asyncio.get_running_loop().time(),
                )
                made = Connection(
                    self._node,
                    quic,
                    ClientHandshake(self._node.identity, key, Terms(self._node.protocol)),
                    label=self._label,
                    address=found.address,
                    limit=MESSAGE_LIMIT,
                    channels=1,
                    idle_timeout=self._idle_timeout,
                    on_opened=on_opened,
                )
                connection = await opened
            return connection
        except TimeoutError:
            raise NetworkProblem(
                f"{self._label} does not answer after {timeout:g} s: is `kafila rendezvous` "
                f"running there, and {self._doubt}"
            ) from None
        finally:
            if connection is None:
                forsake(opened)
                if made is not None:
                    made.abort("")

    async def _found(self) -> Found:
        """Return who answers first; takes as long as nobody does.

        Raises NetworkProblem for an unknown host.
        """
        addresses = await resolve(self._address)
        places = [(self._sockets.towards(address), address) for address in addresses]
        places += [
            (tunnel, tunnel.address)
            for tunnel in self._sockets.tunnels.values()
            if on_the_wire(tunnel.address) in addresses
        ]
        attempts: list[asyncio.Task[Found]] = [
            asyncio.create_task(self._queries.first(places)),
            *(
                asyncio.create_task(self._over_tcp(address, TUNNEL_AFTER + number * NEXT_ADDRESS))
                for number, address in enumerate(addresses)
            ),
        ]
        found: Found | None = None
        try:
            done, _ = await asyncio.wait(attempts, return_when=asyncio.FIRST_COMPLETED)
            found = next(task for task in attempts if task in done).result()  # UDP, if both do
            return found
        finally:
            for task in attempts:
                task.cancel()
            await asyncio.gather(*attempts, return_exceptions=True)
            for tunnel in self._opened:
                if found is None or tunnel is not found.carrier:
                    await tunnel.close()

    async def _over_tcp(self, address: Address, after: float) -> Found:
        """Open a tunnel after so many seconds, as soon as it can be had, and ask there."""
        await asyncio.sleep(after)
        if self._doubt == _UDP:
            self._doubt = _NEITHER
        while True:
            try:
                tunnel = await open_tunnel(self._sockets, address, self._address[0])
                break
            except OSError:  # a rendezvous that is being started again refuses for some seconds
                await asyncio.sleep(TUNNEL_AGAIN)
        self._opened.append(tunnel)
        self._doubt = _SOMETHING
        return await self._queries.first([(tunnel, tunnel.address)])


_UDP: Final = "does UDP reach it?"
_NEITHER: Final = "is it the right port? Neither UDP nor TCP reaches it."
_SOMETHING: Final = "is it the right port? Something else answers there over TCP."
"""What may be wrong while nobody answers."""
