"""Sessions with a code: a number leads joiners to a host, and sealed mail between them. Sans-IO.

Must not know the words of a code, nor read the mail.
"""

from collections import OrderedDict
from dataclasses import dataclass, field

from kafila import defaults as d
from kafila.rendezvous.actions import Action, Close, Log, Send
from kafila.rendezvous.messages import (
    Arrived,
    Drop,
    End,
    Ended,
    Join,
    Joined,
    Left,
    Mail,
    Open,
    Opened,
    Refused,
)
from kafila.words import counted, duration, short

NUMBERS = 10**6


@dataclass
class Session:
    number: int
    host: int
    key: bytes
    members: int
    began: float
    joinable_until: float
    joiners: dict[int, int] = field(default_factory=dict)  # attempt -> connection
    attempts: int = 0
    came: set[bytes] = field(default_factory=set)
    expired: bool = False


class Sessions:
    """States of a session: joinable -> expired (its code; mail still passes) -> over."""

    def __init__(self) -> None:
        self._live: dict[int, Session] = {}
        self._of_host: dict[int, Session] = {}
        self._of_joiner: dict[int, tuple[Session, int]] = {}
        self._past: OrderedDict[int, str] = OrderedDict()
        self._last = 0

    def __len__(self) -> int:
        return len(self._live)

    def open(self, connection: int, key: bytes, request: Open, now: float) -> list[Action]:
        number = self._next_number()
        session = Session(number, connection, key, request.members, now, now + d.CODE_SECONDS)
        self._live[number] = session
        self._of_host[connection] = session
        return [
            Send(connection, Opened(number=number, expires_s=int(d.CODE_SECONDS))),
            Log(f"session {number} opened by {short(key)} for {request.members} members"),
        ]

    def join(self, connection: int, key: bytes, request: Join) -> list[Action] | Refused:
        session = self._live.get(request.number)
        if session is None:
            past = self._past.get(request.number)
            if past is None:
                return Refused(
                    why="unknown",
                    text=f"there is no session {request.number} here; check the code's number, "
                    "and that the host uses the same rendezvous",
                )
            return Refused(why="ended", text=f"session {request.number} is over: {past}")
        if session.expired:
            return Refused(
                why="ended",
                text=f"the code of session {session.number} has expired; "
                "ask its host for a new one",
            )
        if len(session.joiners) >= d.JOINERS_PER_SESSION:
            return Refused(why="busy", text=f"session {session.number} has too many joiners")
        session.attempts += 1
        session.came.add(key)
        attempt = session.attempts
        session.joiners[attempt] = connection
        self._of_joiner[connection] = (session, attempt)
        return [
            Send(connection, Joined(attempt=attempt, host=session.key.hex())),
            Send(session.host, Arrived(attempt=attempt, key=key.hex())),
            Log(f"session {session.number}: {short(key)} joins (attempt {attempt})"),
        ]

    def pass_on(
        self, connection: int, request: Mail | Drop | End, now: float
    ) -> list[Action] | Refused:
        """Mail from either side; `drop` and `end` from the host."""
        session = self._of_host.get(connection)
        if session is not None:
            match request:
                case Mail(attempt=attempt):
                    joiner = session.joiners.get(attempt)  # None: it has just left
                    return [] if joiner is None else [Send(joiner, request)]
                case Drop(attempt=attempt):
                    joiner = session.joiners.pop(attempt, None)
                    if joiner is None:
                        return []
                    del self._of_joiner[joiner]
                    return [Close(joiner, "the host ended this attempt")]
                case End(text=text):
                    return [*self._over(session, text, now), Send(connection, Ended(text=text))]
        place = self._of_joiner.get(connection)
        if place is None:  # a host that has ended, a joiner that was dropped
            return []
        session, attempt = place
        if not isinstance(request, Mail) or request.attempt != attempt:
            return Refused(why="malformed", text="mail in another's name")
        return [Send(session.host, request)]

    def left(self, connection: int, now: float) -> list[Action]:
        """This connection is gone."""
        session = self._of_host.get(connection)
        if session is not None:
            return self._over(session, "its host has left", now)
        place = self._of_joiner.pop(connection, None)
        if place is None:
            return []
        session, attempt = place
        del session.joiners[attempt]
        return [Send(session.host, Left(attempt=attempt))]

    def tick(self, now: float) -> list[Action]:
        actions: list[Action] = []
        for session in list(self._live.values()):
            if now >= session.joinable_until + d.COLLECT_SECONDS:
                text = "its time ran out"
                actions += [*self._over(session, text, now), Send(session.host, Ended(text=text))]
            elif now >= session.joinable_until and not session.expired:
                session.expired = True
                actions.append(Log(f"session {session.number}: its code has expired"))
        return actions

    def _over(self, session: Session, text: str, now: float) -> list[Action]:
        del self._live[session.number]
        del self._of_host[session.host]
        self._past[session.number] = text
        if len(self._past) > d.REMEMBERED:
            self._past.popitem(last=False)
        actions: list[Action] = []
        for joiner in session.joiners.values():
            del self._of_joiner[joiner]
            actions += [Send(joiner, Ended(text=text)), Close(joiner, text)]
        line = (
            f"session {session.number} is over after {duration(now - session.began)}: {text} "
            f"({session.members} members were expected, {counted(len(session.came), 'key')} joined)"
        )
        return [*actions, Log(line)]

    def _next_number(self) -> int:
        """Counted up, so that an old code does not soon lead into somebody's new session."""
        while True:
            self._last = self._last % NUMBERS + 1
            if self._last not in self._live:
                self._past.pop(self._last, None)
                return self._last
