"""Introductions for serving: members of one plan receive each other's signed records. Sans-IO.

A ring is named by the digest of its members' keys, and a member is whoever has proven one of
these keys, so a restarted rendezvous needs no memory. Must not read the records.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from kafila.probe.report import session_id
from kafila.rendezvous.actions import Action, Log, Send
from kafila.rendezvous.messages import (
    AskRelays,
    Enter,
    Entered,
    Gone,
    GrantMessage,
    Present,
    Refused,
    Relays,
)
from kafila.rendezvous.relay import Relay
from kafila.words import duration, gib, short


@dataclass
class _Ring:
    session: str
    size: int
    began: float
    relayed: int  # bytes, before it began
    present: dict[str, tuple[int, str]] = field(default_factory=dict)  # key -> connection, record
    came: set[str] = field(default_factory=set)


class Rings:
    """All rings with somebody present."""

    def __init__(self, relay: Relay) -> None:
        self._relay = relay
        self._rings: dict[str, _Ring] = {}
        self._of: dict[int, tuple[_Ring, str]] = {}
        self._serving: dict[int, str] = {}  # connection -> session, from its first request on

    def __len__(self) -> int:
        return len(self._rings)

    def grant(self, connection: int, key: bytes, request: AskRelays) -> list[Action] | Refused:
        objection = self._objection(connection, key, request.session, request.members)
        if objection is not None:
            return objection
        others = set(request.neighbours)
        if len(others) != len(request.neighbours) or not others <= {*request.members} - {key.hex()}:
            return Refused(why="members", text="neighbours are other members, each named once")
        session = bytes.fromhex(request.session)
        grants = [self._relay.grant(session, key, bytes.fromhex(o)) for o in request.neighbours]
        messages = tuple(
            GrantMessage(
                key=grant.key.hex(),
                flow=grant.flow.hex(),
                side=grant.side,
                expires=grant.expires,
                token=grant.token.hex(),
            )
            for grant in grants
        )
        return [Send(connection, Relays(grants=messages))]

    def enter(
        self, connection: int, key: bytes, request: Enter, now: float
    ) -> list[Action] | Refused:
        objection = self._objection(connection, key, request.session, request.members)
        if objection is not None:
            return objection
        own = key.hex()
        ring = self._rings.get(request.session)
        if ring is None:
            before = self._relay.relayed(bytes.fromhex(request.session))
            ring = _Ring(request.session, len(request.members), now, before)
            self._rings[request.session] = ring
        again = own in ring.present
        ring.present[own] = (connection, request.record)
        ring.came.add(own)
        self._of[connection] = (ring, own)
        actions: list[Action] = [Send(connection, Entered())]
        for other, (their_connection, record) in ring.present.items():
            if other != own:
                actions.append(Send(their_connection, Present(key=own, record=request.record)))
                if not again:
                    actions.append(Send(connection, Present(key=other, record=record)))
        if not again:
            count = f"{len(ring.present)} of {ring.size}"
            actions.append(Log(f"ring {short(ring.session)}: {short(own)} entered ({count})"))
        return actions

    def left(self, connection: int, now: float, why: str, *, misfit: bool = False) -> list[Action]:
        """This connection is gone, or its member says that it ends."""
        if not misfit:
            self._serving.pop(connection, None)
        place = self._of.pop(connection, None)
        if place is None:
            return []
        ring, own = place
        del ring.present[own]
        count = f"{len(ring.present)} of {ring.size}"
        actions: list[Action] = [
            *(Send(other, Gone(key=own, misfit=misfit)) for other, _ in ring.present.values()),
            Log(f"ring {short(ring.session)}: {short(own)} left ({count})"),
        ]
        if not ring.present:
            del self._rings[ring.session]
            relayed = self._relay.relayed(bytes.fromhex(ring.session)) - ring.relayed
            actions.append(
                Log(
                    f"ring {short(ring.session)} is over after {duration(now - ring.began)}: "
                    f"{len(ring.came)} of {ring.size} members came, {gib(max(relayed, 0))} "
                    f"relayed; the last one: {why}"
                )
            )
        return actions

    def _objection(
        self, connection: int, key: bytes, session: str, keys: Sequence[str]
    ) -> Refused | None:
        """Why this connection has no place in that session, if so."""
        if len(set(keys)) != len(keys) or session_id(keys) != session:
            return Refused(why="members", text="the session is not that of the members named")
        if key.hex() not in keys:
            text = f"key {short(key)} is not among the plan's members"
            return Refused(why="members", text=text)
        if self._serving.setdefault(connection, session) != session:
            return Refused(why="members", text="one connection serves one plan")
        return None
