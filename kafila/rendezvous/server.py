"""The rendezvous as a process: a node that listens, the registry, the relay, and their clock."""

import asyncio
import contextlib
import time
from collections.abc import Callable
from dataclasses import dataclass

from kafila import defaults as d
from kafila.address import Address, format_address
from kafila.errors import NetworkProblem
from kafila.net.connection import Connection
from kafila.net.identity import Identity
from kafila.net.node import Node
from kafila.net.udp import Udp
from kafila.rendezvous.actions import Action, Close, Log, Send
from kafila.rendezvous.allowed import Allowed
from kafila.rendezvous.datapath import Datapath
from kafila.rendezvous.messages import ALPN, CONTROL
from kafila.rendezvous.mirror import Mirror
from kafila.rendezvous.registry import Registry
from kafila.rendezvous.relay import Relay, relay_secret


@dataclass(frozen=True)
class Rules:
    """What its keeper decides. `relay_rate` is an edge's in Mbit/s, `relay_budget` a session's in
    GiB a day; `allowed` are those who are served, None: everybody; `stun` are servers that members
    may ask to classify their NAT."""

    relay_rate: float = d.RELAY_MBIT_PER_S
    relay_budget: float = d.RELAY_BUDGET_GIB
    allowed: Allowed | None = None
    stun: tuple[Address, ...] = ()


class Rendezvous:
    """Serves until closed. `log` gets one line per thing worth telling its keeper."""

    def __init__(
        self, node: Node, second: dict[Udp, Udp], rules: Rules, log: Callable[[str], None]
    ) -> None:
        """`second` has for each main socket of `node` one at another port of the same address."""
        self.node = node
        self.key = node.identity.key
        self.second = second
        self.relay = Relay(
            relay_secret(node.identity), rate=rules.relay_rate, budget=rules.relay_budget
        )
        self.registry = Registry(self.key, self.relay, rules.allowed)
        self.handshakes = 0
        """Connections that proved a key, in all."""
        self._log = log
        self._connections: dict[int, Connection] = {}
        self._closing: set[asyncio.Task[None]] = set()
        Datapath(node, self.relay)
        Mirror(node, second, self.registry.reflection)
        self.registry.reflection.stun = tuple(
            format_address(each) for each in rules.stun[: d.STUN_SERVERS]
        )
        node.listen(ALPN, self._accept)
        self._ticking = asyncio.create_task(self._tick())

    @classmethod
    async def open(
        cls,
        identity: Identity,
        host: str = "0.0.0.0",  # a rendezvous is there to be reached
        port: int = d.RENDEZVOUS_PORT,
        log: Callable[[str], None] = lambda line: None,
        *,
        second_port: int | None = None,
        rules: Rules = Rules(),
    ) -> "Rendezvous":
        """Listen on UDP and TCP at `port`, on UDP at `second_port` too (None: the next one).

        Port 0 is any that is free. Raises NetworkProblem when a port is in use.
        """
        if second_port is None:
            second_port = port + 1 if port else 0
        tries = d.FREE_PORT_TRIES if port == 0 else 1
        while True:
            node = await Node.open(identity, host, port)
            try:
                node.accept_tunnels()
                return cls(node, _second(node, second_port), rules, log)
            except NetworkProblem:
                await node.close()
                tries -= 1
                if not tries:
                    raise

    @property
    def address(self) -> Address:
        return self.node.address

    async def close(self) -> None:
        self._ticking.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._ticking
        await self.node.close()

    def _accept(self, connection: Connection) -> None:
        self.handshakes += 1
        number = self.handshakes
        self._connections[number] = connection
        connection.on_message = lambda _, data: self._message(number, data)
        connection.on_closed = lambda reason: self._closed(number, reason)
        now = time.monotonic()
        self._perform(
            self.registry.connected(number, connection.peer_key, connection.address[0], now)
        )

    def _message(self, number: int, data: bytes) -> None:
        self._perform(self.registry.received(number, data, time.monotonic()))

    def _closed(self, number: int, reason: str) -> None:
        self._connections.pop(number, None)
        self._perform(self.registry.disconnected(number, time.monotonic(), reason))

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(1)
            now = time.monotonic()
            self._perform(self.registry.tick(now) + self.relay.tick(now))

    def _perform(self, actions: list[Action]) -> None:
        for action in actions:
            match action:
                case Log():
                    self._log(action.line)
                case Send():
                    self._send(action)
                case Close():
                    self._close(action.connection, action.reason)

    def _send(self, action: Send) -> None:
        connection = self._connections.get(action.connection)
        if connection is None or connection.closed:
            return
        if connection.unsent > d.UNSENT_LIMIT:
            self._close(action.connection, "too much is waiting to be read")
        else:
            connection.send(CONTROL, action.message.encode())

    def _close(self, number: int, reason: str) -> None:
        connection = self._connections.get(number)
        if connection is None:
            return
        task = asyncio.create_task(connection.close(reason))
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)
        self._closed(number, reason)  # a connection does not report that we closed it


def _second(node: Node, port: int) -> dict[Udp, Udp]:
    """Open a socket at another port beside each main one of `node`, all at the same port."""
    opened: dict[Udp, Udp] = {}
    for udp in (node.udp, node.udp6):
        if udp is not None and udp not in opened:
            try:
                opened[udp] = node.open_socket(ipv6=udp.ipv6, port=port)
            except NetworkProblem as problem:
                raise NetworkProblem(f"the second port: {problem} See --second-port.") from problem
            port = opened[udp].address[1]
    return opened
