"""The rendezvous' memory: who is connected, and the limits all of them keep. Sans-IO.

Bytes, events and `now` (seconds, any monotonic clock) go in, actions come out. What sessions with
a code do is in sessions.py, what serving members do in rings.py; neither knows of limits, nor who
is let in.
"""

from dataclasses import dataclass

from kafila import PROTOCOL
from kafila import defaults as d
from kafila.messages import Malformed, OtherVersion
from kafila.net.limits import Bucket, Rates, site
from kafila.rendezvous.actions import Action, Close, Log, Send
from kafila.rendezvous.allowed import Allowed
from kafila.rendezvous.messages import (
    AskRelays,
    Drop,
    End,
    Enter,
    Join,
    Leave,
    Mail,
    Open,
    Pass,
    Passed,
    Ping,
    Pong,
    Reflect,
    Refused,
    Request,
    Why,
    decode_request,
)
from kafila.rendezvous.reflection import Reflection
from kafila.rendezvous.refusals import Refusals
from kafila.rendezvous.relay import Relay
from kafila.rendezvous.rings import Rings
from kafila.rendezvous.sessions import Sessions
from kafila.words import short


@dataclass
class _Client:
    connection: int
    key: bytes
    host: str
    address: str  # what limits count of its host
    since: float
    requests: Bucket
    allowance: Bucket  # of bytes
    admitted: bool
    role: str | None = None  # "host", "joiner" or "member", once it has asked for something
    early: bytes | None = None  # its first message, if that came while its key was in doubt


@dataclass
class _Contest:
    """A second connection of a live key, waiting for the first to prove that it lives."""

    newcomer: _Client
    until: float


class Registry:
    """All state of a rendezvous. Connections are numbers that the caller chooses, never reused."""

    def __init__(self, key: bytes, relay: Relay, allowed: Allowed | None = None) -> None:
        """`key` is the rendezvous' own; `allowed` are those whom it serves, None: everybody."""
        self._key = key
        self._allowed = allowed
        self._clients: dict[int, _Client] = {}
        self._by_key: dict[bytes, _Client] = {}
        self._contests: dict[bytes, _Contest] = {}
        self._joins = Rates(d.JOINS_PER_SECOND, d.JOINS_BURST, d.CLIENTS)
        self._sessions = Sessions()
        self._rings = Rings(relay)
        self._refusals = Refusals()
        self.reflection = Reflection()
        """How clients learn what their NATs do; the shell brings it the datagrams."""

    @property
    def sessions(self) -> int:
        """How many sessions with a code there are."""
        return len(self._sessions)

    @property
    def rings(self) -> int:
        """How many plans have a member here."""
        return len(self._rings)

    @property
    def roles(self) -> dict[str, int]:
        """How many clients there are of each kind; `none`: those that asked for nothing yet."""
        counted = {"none": 0, "host": 0, "joiner": 0, "member": 0}
        for client in self._clients.values():
            counted[client.role or "none"] += 1
        return counted

    # --- events ------------------------------------------------------------------------------

    def connected(self, connection: int, key: bytes, host: str, now: float) -> list[Action]:
        """A client has connected from address `host` and proven `key`."""
        client = _Client(
            connection,
            key,
            host,
            site(host),
            now,
            Bucket(d.REQUESTS_PER_SECOND, d.REQUESTS_BURST, d.REQUESTS_BURST, now),
            Bucket(d.CLIENT_BYTES_PER_HOUR / 3600, d.CLIENT_BYTES, d.CLIENT_BYTES, now),
            admitted=self._allowed is None or key in self._allowed.keys,
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
        if not client.allowance.take(now, len(data)):
            return self._expel(client, "busy", "too much was sent on one connection", now)
        contest = self._contests.get(client.key)
        if contest is not None and contest.newcomer is client:
            if client.early is not None:  # every first request waits for its answer
                return self._expel(client, "malformed", "a second message out of turn", now)
            client.early = data
            return []
        return self._read(client, data, now)

    def disconnected(self, connection: int, now: float, why: str) -> list[Action]:
        """The connection is gone, whoever closed it."""
        client = self._clients.pop(connection, None)
        if client is None:
            return []
        contest = self._contests.get(client.key)
        if contest is not None and contest.newcomer is client:
            del self._contests[client.key]
            return []
        del self._by_key[client.key]
        actions = self._sessions.left(connection, now) + self._rings.left(connection, now, why)
        if contest is not None:
            del self._contests[client.key]
            actions += self._succeed(contest.newcomer, now)
        return actions

    def tick(self, now: float) -> list[Action]:
        """Time has passed; call about once a second."""
        actions = self._sessions.tick(now)
        for contest in [c for c in self._contests.values() if now >= c.until]:
            silent = self._by_key[contest.newcomer.key]
            why = "replaced by a newer connection of the same key"
            actions.append(Close(silent.connection, why))
            actions += self.disconnected(silent.connection, now, why)
        for client in list(self._clients.values()):
            if not client.admitted and now - client.since >= d.STEP_SECONDS:
                actions += self._turn_away(client, now)
            elif client.role is None and now - client.since >= d.IDLE_CLIENT:
                actions += self._expel(client, "busy", "nothing was asked for", now)
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
        gone = self.disconnected(client.connection, now, f"refused: {text}")
        return _refuse(client.connection, why, text) + gone

    def _turn_away(self, client: _Client, now: float) -> list[Action]:
        """It has neither a key on the list nor shown a token."""
        told = self._refusals.tell(client.host, client.key, "not on the list", now)
        return self._expel(client, "private", _private(client.key), now) + told

    def _serve(self, client: _Client, request: Request, now: float) -> list[Action]:
        if client.role not in _TURNS.get(type(request), (client.role,)):
            return self._expel(client, "malformed", f"{request.kind} out of turn", now)
        if not client.admitted and not isinstance(request, Pass | Pong):
            return self._turn_away(client, now)
        match request:
            case Pong():
                return []
            case Pass():
                return self._pass(client, request, now)
            case Open():
                hosts = [c for c in self._clients.values() if c.role == "host"]
                if sum(c.address == client.address for c in hosts) >= d.SESSIONS_PER_ADDRESS:
                    text = "too many sessions from this address; end one first"
                    return self._expel(client, "busy", text, now)
                client.role = "host"
                return self._sessions.open(client.connection, client.key, request, now)
            case Join():
                if not self._joins.take(client.address, now):
                    text = "too many joins from this address; try again in a minute"
                    return self._expel(client, "busy", text, now)
                client.role = "joiner"
                answer = self._sessions.join(client.connection, client.key, request)
            case Mail() | Drop() | End():
                answer = self._sessions.pass_on(client.connection, request, now)
            case Enter():
                client.role = "member"
                answer = self._rings.enter(client.connection, client.key, request, now)
            case AskRelays():
                client.role = "member"
                answer = self._rings.grant(client.connection, client.key, request)
            case Reflect():
                return [Send(client.connection, self.reflection.offer(client.host, now))]
            case Leave():
                why = "its members do not fit together"
                answer = self._rings.left(client.connection, now, why, misfit=True)
        if isinstance(answer, Refused):
            return self._expel(client, answer.why, answer.text, now)
        return answer

    def _pass(self, client: _Client, request: Pass, now: float) -> list[Action]:
        if not client.admitted and self._allowed is not None:
            if not self._allowed.proves(request.proof, self._key, client.key):
                text = "this rendezvous is private, and the token in KAFILA_TOKEN is none of its"
                told = self._refusals.tell(
                    client.host, client.key, "its token is none of ours", now
                )
                return self._expel(client, "private", text, now) + told
            client.admitted = True
        return [Send(client.connection, Passed())]


_TURNS: dict[type[Request], tuple[str | None, ...]] = {
    Pass: (None,),
    Open: (None,),
    Join: (None,),
    Enter: (None, "member"),
    AskRelays: (None, "member"),
    Leave: ("member",),
    Mail: ("host", "joiner"),
    Drop: ("host",),
    End: ("host",),
}
"""Which roles may say what; a connection keeps the role of its first request."""


def _refuse(connection: int, why: Why, text: str) -> list[Action]:
    return [Send(connection, Refused(why=why, text=text)), Close(connection, text)]


def _copied(connection: int) -> list[Action]:
    return _refuse(
        connection,
        "copied",
        "another process is connected with this machine's key: if this member runs already, end "
        "that first; else most likely its identity files were copied, or two members share one "
        "--home; give each member its own",
    )


def _private(key: bytes) -> str:
    return (
        f"this rendezvous is private and key {key.hex()} is not on its list; ask its keeper to "
        "add it, or for a token to put into the environment as KAFILA_TOKEN"
    )
