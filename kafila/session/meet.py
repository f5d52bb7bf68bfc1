"""How the members of a plan find each other: everyone enters, everyone waits for all others.

Trusts the plan for who a member is, and only a member's signature for how to reach it.
"""

import asyncio
import base64
from collections.abc import Mapping

from kafila import PROTOCOL
from kafila import defaults as d
from kafila.errors import IdentityProblem, NetworkProblem
from kafila.messages import Malformed, OtherVersion
from kafila.net.edge import Peer
from kafila.net.identity import Identity
from kafila.net.node import Node
from kafila.planfile import PlanFile
from kafila.rendezvous.client import RendezvousClient
from kafila.rendezvous.messages import Gone, Notice, Present
from kafila.session.events import Met, OnEvent, Waiting
from kafila.session.record import Self, sign, verify
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
    """Who of the plan is there; what the rendezvous said goes in. Sans-IO."""

    def __init__(self, plan: PlanFile, me: int) -> None:
        self.peers: dict[int, Peer] = {}
        self._plan = plan
        self._me = me

    @property
    def missing(self) -> tuple[str, ...]:
        others = (i for i in range(len(self._plan.ring)) if i != self._me)
        return tuple(self._plan.ring[i].name for i in others if i not in self.peers)

    def hear(self, notice: Notice) -> str | None:
        """A notice came: the name of the member that is newly here, if it is one.

        Raises IdentityProblem for a member that serves another plan or speaks another protocol,
        and for a record that its member did not sign.
        """
        if isinstance(notice, Present | Gone):
            index = _index(self._plan, notice.key)
            if index is None:
                raise IdentityProblem(
                    f"the rendezvous introduced key {short(notice.key)}, which is not in the plan; "
                    "do not use this rendezvous"
                )
            if isinstance(notice, Present):
                self.peers[index] = self._peer(index, notice)
                return self._plan.ring[index].name
            self.peers.pop(index, None)
            return None
        raise NetworkProblem(f"the rendezvous sent an unexpected {notice.kind}")

    def _peer(self, index: int, notice: Present) -> Peer:
        member = self._plan.ring[index]
        key = bytes.fromhex(notice.key)
        try:
            record = verify(notice.record, key)
        except OtherVersion as error:
            raise IdentityProblem(
                f"{member.name} speaks protocol {error.theirs}, this member {PROTOCOL}; "
                "update the older one"
            ) from None
        except Malformed as error:
            raise NetworkProblem(f"the record of {member.name} cannot be read: {error}") from None
        mine = self._plan.digest.hex()
        if record.digest != mine:
            raise IdentityProblem(
                f"{member.name} has another plan ({short(record.digest)}) than this member "
                f"({short(mine)}); give every member the same plan file"
            )
        if record.session != self._plan.session.id or record.exchange_key != member.exchange_key:
            raise IdentityProblem(
                f"the record of {member.name} does not fit the plan; was its identity replaced "
                "after it probed? Probe again"
            )
        return Peer(
            name=member.name,
            key=key,
            exchange_key=bytes.fromhex(record.exchange_key),
            certificate=base64.b64decode(record.certificate),
            candidates=record.candidates,
        )


async def meet(
    client: RendezvousClient,
    identity: Identity,
    node: Node,
    plan: PlanFile,
    me: int,
    timeout: float = d.MEET_SECONDS,
    on_event: OnEvent = lambda event: None,
) -> Mapping[int, Peer]:
    """Enter the plan's session and wait for all others: ring index -> how to reach it.

    Raises NetworkProblem naming who did not come within `timeout` seconds, IdentityProblem as
    `Meeting.hear` does. Once all have met, nobody needs the client any more: the rendezvous has
    sent everybody's record to everybody else before anyone can leave.
    """
    session = bytes.fromhex(plan.session.id)
    mine = Self(session, plan.digest, tuple(node.local_candidates()))
    keys = [bytes.fromhex(member.key) for member in plan.ring]
    await client.enter(session, keys, sign(identity, mine))
    meeting = Meeting(plan, me)
    told: tuple[str, ...] = ()
    try:
        async with asyncio.timeout(timeout):
            while meeting.missing:
                if meeting.missing != told:
                    told = meeting.missing
                    on_event(Waiting(told))
                name = meeting.hear(await client.receive(None))
                if name is not None:
                    on_event(Met(name))
    except TimeoutError:
        raise NetworkProblem(
            f"{listed(meeting.missing)} did not come within {timeout:.0f} s; run "
            "`kafila serve` there with this plan"
        ) from None
    return meeting.peers
