"""How the members of a plan find each other: everyone enters, everyone waits for all others.

Trusts the plan for who a member is, and only a member's signature for how to reach it. Sans-IO.
"""

import base64
import math

from kafila import PROTOCOL
from kafila import defaults as d
from kafila.errors import IdentityProblem, NetworkProblem
from kafila.messages import Malformed, OtherVersion
from kafila.net.edge import Peer
from kafila.planfile import PlanFile
from kafila.rendezvous.messages import Gone, Notice, Present
from kafila.session.events import Event, Met, OtherPlan
from kafila.session.record import Record, verify
from kafila.words import listed, short


def ring_index(plan: PlanFile, key: bytes) -> int:
    """Which member of the plan has this key. IdentityProblem names the members if none has."""
    index = _index(plan, key.hex())
    if index is not None:
        return index
    members = ", ".join(f"{member.name} ({short(member.key)})" for member in plan.ring)
    raise IdentityProblem(
        f"this machine's key {short(key)} is not in the plan; its members are {members}. "
        "Probe again with this machine, or name the right --home"
    )


def _index(plan: PlanFile, key: str) -> int | None:
    return next((i for i, member in enumerate(plan.ring) if member.key == key), None)


class Meeting:
    """Who of the plan is there; what the rendezvous said and `now` go in.

    A member with another plan may be a process that died a moment ago, or one that its user is
    about to start anew; so it has OTHER_PLAN_SECONDS to come with this plan.
    """

    def __init__(self, plan: PlanFile, me: int) -> None:
        self.peers: dict[int, Peer] = {}
        self._plan = plan
        self._me = me
        self._others: dict[int, tuple[str, float]] = {}  # digest of its plan, until when it may

    @property
    def missing(self) -> tuple[str, ...]:
        others = (i for i in range(len(self._plan.ring)) if i != self._me)
        return tuple(self._plan.ring[i].name for i in others if i not in self.peers)

    @property
    def patience(self) -> float:
        """Until when members with another plan are waited for."""
        return min((until for _, until in self._others.values()), default=math.inf)

    def conflict(self) -> IdentityProblem | None:
        """Who has another plan, if anybody."""
        if not self._others:
            return None
        theirs = [
            f"{self._plan.ring[index].name} has another plan ({short(digest)})"
            for index, (digest, _) in self._others.items()
        ]
        return IdentityProblem(
            f"{listed(theirs)} than this member ({short(self._plan.digest)}); "
            "give every member the same plan file"
        )

    def forget(self) -> None:
        """A rendezvous is entered anew: it introduces all who are there."""
        self.peers.clear()
        self._others.clear()

    def hear(self, notice: Notice, now: float) -> Event | None:
        """A notice came: what to tell the user about it.

        Raises IdentityProblem for a member that speaks another protocol, for a record that its
        member did not sign, and when another member has given up for such a reason.
        """
        if isinstance(notice, Present | Gone):
            index = _index(self._plan, notice.key)
            if index is None:
                raise IdentityProblem(
                    f"the rendezvous introduced key {short(notice.key)}, which is not in the plan; "
                    "do not use this rendezvous"
                )
            name = self._plan.ring[index].name
            self.peers.pop(index, None)
            if isinstance(notice, Present):
                return self._present(index, notice, now)
            if notice.misfit:
                raise self.conflict() or IdentityProblem(
                    f"{name} ended because the members do not fit together, most likely because "
                    "their plans differ; give every member the same plan file"
                )
            self._others.pop(index, None)
            return None
        raise NetworkProblem(f"the rendezvous sent an unexpected {notice.kind}")

    def _present(self, index: int, notice: Present, now: float) -> Event:
        member, record = self._plan.ring[index], self._record(index, notice)
        mine = self._plan.digest.hex()
        if record.digest != mine:
            self._others[index] = (record.digest, now + d.OTHER_PLAN_SECONDS)
            return OtherPlan(member.name, record.digest, mine, int(d.OTHER_PLAN_SECONDS))
        self._others.pop(index, None)
        self.peers[index] = Peer(
            name=member.name,
            key=bytes.fromhex(record.key),
            exchange_key=bytes.fromhex(record.exchange_key),
            certificate=base64.b64decode(record.certificate),
            candidates=record.candidates,
            nonce=bytes.fromhex(record.nonce),
        )
        return Met(member.name)

    def _record(self, index: int, notice: Present) -> Record:
        member = self._plan.ring[index]
        try:
            record = verify(notice.record, bytes.fromhex(notice.key))
        except OtherVersion as error:
            raise IdentityProblem(
                f"{member.name} speaks protocol {error.theirs}, this member {PROTOCOL}; "
                "update the older one"
            ) from None
        except Malformed as error:
            raise NetworkProblem(f"the record of {member.name} cannot be read: {error}") from None
        if record.session != self._plan.session.id or record.exchange_key != member.exchange_key:
            raise IdentityProblem(
                f"the record of {member.name} does not fit the plan; was its identity replaced "
                "after it probed? Probe again"
            )
        return record
