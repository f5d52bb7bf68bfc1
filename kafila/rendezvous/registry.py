"""The rendezvous' memory: who is connected, and the limits all of them keep. Sans-IO.

Bytes, events and `now` (seconds, any monotonic clock) go in, actions come out. What sessions with
a code do is in sessions.py, what serving members do in rings.py; neither knows of limits.
"""

import ipaddress
from dataclasses import dataclass

from kafila import PROTOCOL
from kafila import defaults as d
from kafila.messages import Malformed, OtherVersion
from kafila.rendezvous.actions import Action, Close, Log, Send
from kafila.rendezvous.messages import (
    Drop,
    End,
    Enter,
    Join,
    Leave,
    Mail,
    Open,
    Ping,
    Pong,
    Refused,
    Request,
    Why,
    decode_request,
)
from kafila.rendezvous.rings import Rings
from kafila.rendezvous.sessions import Sessions
from kafila.words import short


@dataclass
class Bucket:
    """A token bucket: `rate` a second, `burst` at once."""

    rate: float
    burst: float
    level: float
    filled: float

    def take(self, now: float) -> bool:
        self.level = min(self.burst, self.level + (now - self.filled) * self.rate)
        self.filled = now
        if self.level < 1:
            return False
        self.level -= 1
        return True

    def full(self, now: float) -> bool:
        return self.level + (now - self.filled) * self.rate >= self.burst


@dataclass
class _Client:
    connection: int
    key: bytes
    address: str
    since: float
    requests: Bucket
    role: str | None = None  # "host", "joiner" or "member", once it has asked for something
    said: int = 0  # bytes, in all
    early: bytes | None = None  # its first message, if that came while its key was in doubt


@dataclass
class _Contest:
    """A second connection of a live key, waiting for the first to prove that it lives."""

    newcomer: _Client
    until: float


class Registry:
    """All state of a rendezvous. Connections are numbers that the caller chooses, never reused."""

    def __init__(self) -> None:
        self._clients: dict[int, _Client] = {}
        self._by_key: dict[bytes, _Client] = {}
        self._contests: dict[bytes, _Contest] = {}
        self._joins: dict[str, Bucket] = {}
        self._sessions = Sessions()
        self._rings = Rings()

    # --- events ------------------------------------------------------------------------------

    def connected(self, connection: int, key: bytes, host: str, now: float) -> list[Action]:
        """A client has connected from address `host` and proven `key`."""
        client = _Client(
            connection,
            key,
            prefix(host),
            now,
            Bucket(d.REQUESTS_PER_SECOND, d.REQUESTS_BURST, d.REQUESTS_BURST, now),
        )
        crowd = sum(other.address == client.address for other in self._clients.values())
        if len(self._clients) >= d.CLIENTS or crowd >= d.CLIENTS_PER_ADDRESS:
            return _refuse(connection, "busy", "too many connections; try again in a minute")
        first = self._by_key.get(key)
        if first is None:
            self._admit(client)
            return []
        if key in self._contests:
            return _copied(connection)
        self._clients[connection] = client
        self._contests[key] = _Contest(client, now + d.PROOF_OF_LIFE)
        return [Send(first.connection, Ping())]

    def received(self, connection: int, data: bytes, now: float) -> list[Action]:
        """A message came on the control channel of this connection."""
        client = self._clients.get(connection)
        if client is None:
            return []
        if not client.requests.take(now):
            return self._expel(client, "busy", "too many messages", now)
        client.said += len(data)
        if client.said > d.CLIENT_BYTES:
            return self._expel(client, "busy", "too much was sent on one connection", now)
        contest = self._contests.get(client.key)
        if contest is not None and contest.newcomer is client:
            if client.early is not None:  # every first request waits for its answer
                return self._expel(client, "malformed", "a second message out of turn", now)
            client.early = data
            return []
        return self._read(client, data, now)

    def disconnected(self, connection: int, now: float) -> list[Action]:
        """The connection is gone, whoever closed it."""
        client = self._clients.pop(connection, None)
        if client is None:
            return []
        contest = self._contests.get(client.key)
        if contest is not None and contest.newcomer is client:
            del self._contests[client.key]
            return []
        del self._by_key[client.key]
        actions = self._sessions.left(connection) + self._rings.left(connection)
        if contest is not None:
            del self._contests[client.key]
            actions += self._succeed(contest.newcomer, now)
        return actions

    def tick(self, now: float) -> list[Action]:
        """Time has passed; call about once a second."""
        actions = self._sessions.tick(now)
        for contest in [c for c in self._contests.values() if now >= c.until]:
            silent = self._by_key[contest.newcomer.key]
            actions += [Close(silent.connection, "replaced by a newer connection of the same key")]
            actions += self.disconnected(silent.connection, now)
        for client in list(self._clients.values()):
            if client.role is None and now - client.since >= d.IDLE_CLIENT:
                actions += self._expel(client, "busy", "nothing was asked for", now)
        self._joins = {a: bucket for a, bucket in self._joins.items() if not bucket.full(now)}
        return actions

    # --- inside ------------------------------------------------------------------------------

    def _admit(self, client: _Client) -> None:
        self._clients[client.connection] = client
        self._by_key[client.key] = client

    def _succeed(self, client: _Client, now: float) -> list[Action]:
        """The first connection of this key was dead: the newcomer is the client now."""
        self._admit(client)
        early, client.early = client.early, None
        return [] if early is None else self._read(client, early, now)

    def _read(self, client: _Client, data: bytes, now: float) -> list[Action]:
        """Act on a message of a client whose key is not in doubt."""
        try:
            request = decode_request(data)
        except OtherVersion as error:
            text = (
                f"the rendezvous speaks protocol {PROTOCOL}, this member {error.theirs}; "
                "update the older one"
            )
            return self._expel(client, "version", text, now)
        except Malformed as error:
            return self._expel(client, "malformed", f"malformed message: {error}", now)
        actions: list[Action] = []
        contest = self._contests.get(client.key)
        if contest is not None:
            del self._contests[client.key]
            del self._clients[contest.newcomer.connection]
            actions += _copied(contest.newcomer.connection)
            actions.append(Log(f"key {short(client.key)} connected twice; the second was refused"))
        return actions + self._serve(client, request, now)

    def _expel(self, client: _Client, why: Why, text: str, now: float) -> list[Action]:
        return _refuse(client.connection, why, text) + self.disconnected(client.connection, now)

    def _serve(self, client: _Client, request: Request, now: float) -> list[Action]:
        if client.role not in _TURNS.get(type(request), (client.role,)):
            return self._expel(client, "malformed", f"{request.kind} out of turn", now)
        match request:
            case Pong():
                return []
            case Open():
                hosts = [c for c in self._clients.values() if c.role == "host"]
                if sum(c.address == client.address for c in hosts) >= d.SESSIONS_PER_ADDRESS:
                    text = "too many sessions from this address; end one first"
                    return self._expel(client, "busy", text, now)
                client.role = "host"
                return self._sessions.open(client.connection, client.key, request, now)
            case Join():
                joins = self._joins.setdefault(
                    client.address, Bucket(d.JOINS_PER_SECOND, d.JOINS_BURST, d.JOINS_BURST, now)
                )
                if not joins.take(now):
                    text = "too many joins from this address; try again in a minute"
                    return self._expel(client, "busy", text, now)
                client.role = "joiner"
                answer = self._sessions.join(client.connection, client.key, request)
            case Mail() | Drop() | End():
                answer = self._sessions.pass_on(client.connection, request)
            case Enter():
                client.role = "member"
                answer = self._rings.enter(client.connection, client.key, request)
            case Leave():
                answer = self._rings.left(client.connection, misfit=True)
        if isinstance(answer, Refused):
            return self._expel(client, answer.why, answer.text, now)
        return answer


_TURNS: dict[type[Request], tuple[str | None, ...]] = {
    Open: (None,),
    Join: (None,),
    Enter: (None, "member"),
    Leave: ("member",),
    Mail: ("host", "joiner"),
    Drop: ("host",),
    End: ("host",),
}
"""Which roles may say what; a connection keeps the role of its first request."""


def prefix(host: str) -> str:
    """What limits count: an IPv4 address, or the /64 that an IPv6 address is in."""
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return host
    if isinstance(address, ipaddress.IPv6Address):
        if address.ipv4_mapped is not None:
            return str(address.ipv4_mapped)
        return str(ipaddress.ip_network((address, 64), strict=False))
    return str(address)


def _refuse(connection: int, why: Why, text: str) -> list[Action]:
    return [Send(connection, Refused(why=why, text=text)), Close(connection, text)]


def _copied(connection: int) -> list[Action]:
    return _refuse(
        connection,
        "copied",
        "another process is connected with this machine's key: most likely its identity files "
        "were copied, or two members share one --home; give each member its own",
    )
