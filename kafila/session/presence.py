"""A serving member's place at the rendezvous, kept for as long as it serves.

It registers (grants for the relay, its ends of the flows bound, a signed record), hears of the
others, and registers again whenever the connection is lost or the rendezvous is another process.
Must not know what the edges carry: without a rendezvous they go on as well as they can.
"""

import asyncio
import math
import random
from collections.abc import Mapping
from typing import NoReturn

from kafila import defaults as d
from kafila.address import Address
from kafila.errors import IdentityProblem, KafilaError, NetworkProblem
from kafila.net.carrier import tunnelled
from kafila.net.edge import Edge, Peer
from kafila.net.identity import Identity
from kafila.net.node import Node
from kafila.net.relay import Relayed
from kafila.net.relaying import Grant
from kafila.planfile import PlanFile
from kafila.rendezvous.client import RendezvousClient
from kafila.rendezvous.messages import Notice, Present
from kafila.session.edges import neighbours
from kafila.session.events import OnEvent, RendezvousBack, RendezvousLost, Unrelayed, Waiting
from kafila.session.meet import Meeting
from kafila.session.record import Self, sign
from kafila.words import listed


def pause(tries: int, share: float) -> float:
    """Seconds before a lost rendezvous is dialled again, after so many tries in vain.

    `share` (0 to 1, drawn at random) shortens them by up to half.
    """
    return min(d.REDIAL * float(2 ** min(tries, 30)), d.REDIAL_MOST) * (1 - share / 2)


class Presence:
    """One member at the rendezvous of its plan: `meet`, then `keep`, at the end `close`.

    absent --register--> present --grants half spent, seen elsewhere--> (asks, enters) present
      ^                     |
      +----- pause ---------+ connection lost, or the relay is another process
    """

    def __init__(
        self,
        node: Node,
        identity: Identity,
        plan: PlanFile,
        me: int,
        rendezvous: Address,
        key: bytes | None,
        on_event: OnEvent = lambda event: None,
    ) -> None:
        """`key` is the rendezvous' own; None: that of the first that answers."""
        self.relays: dict[int, Relayed] = {}
        """Ring index of a neighbour -> the way to it through the relay, where there is one."""
        self._node = node
        self._identity = identity
        self._plan = plan
        self._me = me
        self._rendezvous = rendezvous
        self._key = key
        self._on_event = on_event
        self._meeting = Meeting(plan, me)
        self._edges: Mapping[int, Edge] = {}
        self._client: RendezvousClient | None = None
        self._alarm: asyncio.Timeout | None = None
        self._restarted = asyncio.Event()
        self._moved = False
        self._asked_at = 0.0
        self._renew_at = 0.0
        self._since = 0.0
        self._returned = -math.inf
        self._tries = 0

    @property
    def servers(self) -> tuple[Address, ...]:
        """Who tells a socket of this node how it is seen from outside (STUN); nobody over TCP."""
        if self._client is None or tunnelled(self._client.address):
            return ()
        return (self._client.address,)

    async def meet(self, timeout: float = d.MEET_SECONDS) -> dict[int, Peer]:
        """Register and wait for all others: ring index -> how to reach it.

        Raises NetworkProblem when no rendezvous answers or somebody did not come within `timeout`
        seconds, by name; IdentityProblem as `Meeting.hear` does and for a member that keeps another
        plan; the others are then told too.
        """
        until = asyncio.get_running_loop().time() + timeout
        await self._register()
        try:
            await self._hear_all(timeout, until)
        except IdentityProblem:
            if self._client is not None:
                self._client.leave()
            raise
        return dict(self._meeting.peers)

    def attend(self, edges: Mapping[int, Edge]) -> None:
        """From now on these edges (by ring index) are told of new addresses of their peers."""
        self._edges = edges
        self._inform()

    async def keep(self) -> NoReturn:
        """Stay registered; nothing that a rendezvous does or fails to do ends this."""
        while True:
            notice = await self._next()
            if isinstance(notice, Present):
                try:
                    self._meeting.hear(notice, asyncio.get_running_loop().time())
                except KafilaError:  # somebody came with something else: no edge here is theirs
                    continue
                self._inform()

    async def close(self) -> None:
        """Leave the rendezvous, and let go of the relay."""
        for relayed in self.relays.values():
            relayed.close()
        if self._client is not None:
            await self._client.close()

    # --- what comes --------------------------------------------------------------------------

    async def _hear_all(self, timeout: float, until: float) -> None:
        told: tuple[str, ...] = ()
        loop, meeting = asyncio.get_running_loop(), self._meeting
        while meeting.missing:
            if meeting.missing != told:
                told = meeting.missing
                self._on_event(Waiting(told))
            try:
                async with asyncio.timeout_at(min(until, meeting.patience)):
                    notice = await self._next()
            except TimeoutError:
                raise meeting.conflict() or NetworkProblem(
                    f"{listed(meeting.missing)} did not come within {timeout:.0f} s; run "
                    "`kafila serve` there with this plan"
                ) from None
            event = meeting.hear(notice, loop.time())
            if event is not None:
                self._on_event(event)

    def _inform(self) -> None:
        """Tell edges where their peers are, if those are still the processes at the other end."""
        for index, edge in self._edges.items():
            peer = self._meeting.peers.get(index)
            if peer is not None and peer.nonce == edge.peer.nonce and not edge.closed:
                edge.update(peer.candidates)

    async def _next(self) -> Notice:
        """The next notice, whatever has to be done meanwhile to stay registered."""
        while True:
            try:
                await self._look_after()
                return await self._receive()
            except TimeoutError:  # the alarm: something is due
                continue
            except KafilaError as problem:
                await self._return(problem)

    async def _receive(self) -> Notice:
        assert self._client is not None
        try:
            async with asyncio.timeout_at(self._renew_at) as self._alarm:
                return await self._client.receive(None)
        finally:
            self._alarm = None

    async def _look_after(self) -> None:
        """Do what is due, and what comes due meanwhile. Raises KafilaError when the rendezvous is
        lost."""
        while True:
            if self._restarted.is_set():
                raise NetworkProblem("the rendezvous was started anew")
            if self._moved:
                await self._enter(await self._reflexive())
            elif asyncio.get_running_loop().time() >= self._renew_at:
                await self._ask_relays()
            else:
                return

    # --- what is done ------------------------------------------------------------------------

    async def _register(self) -> None:
        """Dial, bind, enter. Raises KafilaError, and is then as absent as before."""
        self._restarted.clear()
        client = await RendezvousClient.connect(self._node, self._rendezvous, self._key)
        self._client, self._key = client, client.key  # from now on it must be this one
        try:
            seen, _ = await asyncio.gather(self._reflexive(), self._ask_relays())
            self._meeting.forget()  # all who are there are introduced anew
            await self._enter(seen)
        except BaseException:
            self._drop()
            raise
        self._since = asyncio.get_running_loop().time()
        self._restarted.clear()  # whichever flow noticed last

    def _drop(self) -> None:
        """Give up the connection, whatever is left of it."""
        client, self._client = self._client, None
        if client is not None:
            client.connection.abort("")

    async def _return(self, problem: KafilaError) -> None:
        """Register again, however long that takes."""
        self._on_event(RendezvousLost(str(problem)))
        refused = isinstance(problem, IdentityProblem)
        if asyncio.get_running_loop().time() - self._since > d.REDIAL_MOST:
            self._tries = 0  # it held for a while: this is another outage
        self._drop()
        while True:
            try:  # a relay that is back calls before the pause is over
                async with asyncio.timeout(pause(self._tries, random.random())):
                    await self._restarted.wait()
            except TimeoutError:
                pass
            self._tries += 1
            try:
                await self._register()
            except KafilaError as error:
                if isinstance(error, IdentityProblem) and not refused:
                    refused = True  # that is news, and somebody's to mend
                    self._on_event(RendezvousLost(str(error)))
            else:
                break
        self._returned = self._since
        self._on_event(RendezvousBack())

    async def _enter(self, seen: list[Address]) -> None:
        """Say where this member can be reached; `seen` is how it looks from outside."""
        assert self._client is not None
        self._moved = False
        session, node = bytes.fromhex(self._plan.session.id), self._node
        places = tuple(node.local_candidates(seen))
        mine = Self(session, self._plan.digest, places, node.nonce)
        await self._client.enter(session, self._keys, sign(self._identity, mine))

    async def _reflexive(self) -> list[Address]:
        """Where the rendezvous sees the main socket."""
        if not self.servers:
            return []
        server = self.servers[0]
        if not self._node.udp.reaches(server):  # it was dialled over the other family
            server = self._rendezvous
        try:
            seen = await self._node.reflexive(server)
        except NetworkProblem:  # no name service, for now
            return []
        return [] if seen is None else [seen]

    async def _ask_relays(self) -> None:
        """Have grants for the edges to both neighbours, and this end of their flows bound."""
        assert self._client is not None
        others = sorted(set(neighbours(len(self._plan.ring), self._me) or ()))
        grants = await self._client.relays(
            bytes.fromhex(self._plan.session.id),
            self._keys,
            [self._keys[other] for other in others],
        )
        self._asked_at = asyncio.get_running_loop().time()
        self._renew_at = self._asked_at + d.RELAY_GRANT_SECONDS / 2
        await asyncio.gather(*(self._bind(*each) for each in zip(others, grants, strict=True)))

    async def _bind(self, other: int, grant: Grant) -> None:
        """Bind a flow, or go on with it under the new grant, over what leads to the relay now."""
        assert self._client is not None
        relay, bound = self._client.address, self.relays.get(other)
        if bound is not None:
            bound.renew(grant)
            bound.move(self._node.carrier(relay), relay)
            bound.refresh()
        elif not self._edges:  # an edge that came up without a relay stays without
            try:
                bound = await Relayed.bind(
                    self._node, self._node.carrier(relay), relay, grant, d.RELAY_BIND_SECONDS
                )
            except NetworkProblem as problem:
                self._on_event(Unrelayed(self._plan.ring[other].name, str(problem)))
                return
            bound.on_restart, bound.on_moved = self._on_restart, self._on_moved
            self.relays[other] = bound

    def _on_restart(self, relayed: Relayed) -> None:
        """The relay is another process; or it honours the grant no more."""
        if not relayed.bound:
            self._renew_at = min(self._renew_at, self._asked_at + d.RELAY_REFRESH)
        elif asyncio.get_running_loop().time() - self._returned > d.RELAY_REFRESH:
            self._restarted.set()  # sooner, it is the one that was just registered with
        self._wake()

    def _on_moved(self, _: Relayed) -> None:
        """The relay sees this member elsewhere: so will the others."""
        self._moved = True
        self._wake()

    def _wake(self) -> None:
        if self._alarm is not None and not self._alarm.expired():
            self._alarm.reschedule(asyncio.get_running_loop().time())

    @property
    def _keys(self) -> list[bytes]:
        return [bytes.fromhex(member.key) for member in self._plan.ring]
