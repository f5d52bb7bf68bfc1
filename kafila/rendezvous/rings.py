"""Introductions for serving: members of one plan receive each other's signed records. Sans-IO.

A ring is named by the digest of its members' keys, and a member is whoever has proven one of
these keys, so a restarted rendezvous needs no memory. Must not read the records.
"""

from dataclasses import dataclass, field

from kafila.probe.report import session_id
from kafila.rendezvous.actions import Action, Log, Send
from kafila.rendezvous.messages import Enter, Entered, Gone, Present, Refused
from kafila.words import short


@dataclass
class _Ring:
    session: str
    size: int
    present: dict[str, tuple[int, str]] = field(default_factory=dict)  # key -> connection, record


class Rings:
    """All rings with somebody present."""

    def __init__(self) -> None:
        self._rings: dict[str, _Ring] = {}
        self._of: dict[int, tuple[_Ring, str]] = {}

    def enter(self, connection: int, key: bytes, request: Enter) -> list[Action] | Refused:
        own = key.hex()
        keys = request.members
        if len(set(keys)) != len(keys) or session_id(keys) != request.session:
            return Refused(why="members", text="the session is not that of the members named")
        if own not in keys:
            return Refused(why="members", text=f"key {short(own)} is not among the plan's members")
        place = self._of.get(connection)
        if place is not None and place[0].session != request.session:
            return Refused(why="members", text="one connection serves one plan")
        ring = self._rings.setdefault(request.session, _Ring(request.session, len(keys)))
        again = own in ring.present
        ring.present[own] = (connection, request.record)
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

    def left(self, connection: int, *, misfit: bool = False) -> list[Action]:
        """This connection is gone, or its member says that it ends."""
        place = self._of.pop(connection, None)
        if place is None:
            return []
        ring, own = place
        del ring.present[own]
        if not ring.present:
            del self._rings[ring.session]
        count = f"{len(ring.present)} of {ring.size}"
        return [
            *(Send(other, Gone(key=own, misfit=misfit)) for other, _ in ring.present.values()),
            Log(f"ring {short(ring.session)}: {short(own)} left ({count})"),
        ]
