"""The relay's memory: which ends of which flows are bound where, and what each may still send.

Sans-IO: datagrams, their source and `now` (seconds, any monotonic clock) go in, answers and targets
come out. It holds no key of a member and cannot read what it forwards.

The handshake leaves nothing here before its last message proves both an address (the cookie comes
back from where it was sent) and a grant (see kafila.net.relaying):

    nothing --ANSWER with cookie and proof--> BOUND --60 s without another--> nothing
                                              | ^
                                              +-+ ANSWER: from another address: bound there now
"""

import hmac
import os
import time
from collections import Counter
from collections.abc import Callable
from typing import Final

from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from kafila import defaults as d
from kafila.address import Address
from kafila.net.carrier import Carrier, tunnelled
from kafila.net.identity import Identity
from kafila.net.limits import Rates, network, site
from kafila.net.relaying import (
    FRAME_HEAD,
    Answer,
    Bind,
    Bound,
    Challenge,
    Grant,
    State,
    binding_proof,
    decode_binding,
    relay_flow,
    relay_side,
    relay_token,
)
from kafila.rendezvous.actions import Action, Log
from kafila.words import gib, short

DROPS: Final = ("unbound", "alone", "size", "edge rate", "total rate", "budget", "congested")
"""Why a frame is not forwarded: nobody bound where it comes from, or at the other end; its length;
the rates; the session's bytes; the socket it would leave by cannot take it."""

_LARGEST: Final = d.PATH_SIZES[-1] + FRAME_HEAD


class End:
    """Where a bound end is."""

    __slots__ = ("carrier", "crowd", "seen", "source")

    def __init__(self, carrier: Carrier, source: Address, now: float) -> None:
        self.carrier = carrier
        self.source = source
        self.crowd = site(source[0])
        self.seen = now


class _Session:
    __slots__ = ("counted", "flows", "limit", "name", "relayed", "told")

    def __init__(self, name: bytes, limit: int, now: float) -> None:
        self.name = name
        self.relayed = 0  # bytes, in all
        self.limit = limit  # what `relayed` may come to
        self.counted = now  # since when its budget counts
        self.flows = 0
        self.told = False


class _Flow:
    __slots__ = ("due", "ends", "session")

    def __init__(self, session: _Session, now: float) -> None:
        self.session = session
        self.ends: list[End | None] = [None, None]
        self.due = now  # when what was sent so far is through, at the edge's rate


class Relay:
    """All flows of a relay.

    `secret` is what tokens are made of: the same after a restart. `rate` is an edge's in Mbit/s,
    `budget` a session's in GiB. `wall` is the clock of the grants, unix seconds.
    """

    def __init__(
        self,
        secret: bytes,
        *,
        rate: float = d.RELAY_MBIT_PER_S,
        budget: float = d.RELAY_BUDGET_GIB,
        wall: Callable[[], float] = time.time,
        random: Callable[[int], bytes] = os.urandom,
    ) -> None:
        self.boot = random(8)
        self.datagrams = 0
        self.bytes = 0
        self.dropped = dict.fromkeys(DROPS, 0)
        self.handshakes = dict.fromkeys(("challenged", *(s.name.lower() for s in State)), 0)
        self._secret = secret
        self._cookies = random(32)
        self._budget = int(budget * 2**30)
        self._byte_s = 8e-6 / rate
        self._total_byte_s = 8e-6 / d.RELAY_TOTAL_MBIT_PER_S
        self._total_due = 0.0
        self._wall = wall
        self._flows: dict[bytes, _Flow] = {}
        self._sessions: dict[bytes, _Session] = {}
        self._crowds: Counter[str] = Counter()
        self._challenges = Rates(
            d.RELAY_CHALLENGES_PER_SECOND, d.RELAY_CHALLENGES_BURST, d.STRANGERS
        )

    @property
    def flows(self) -> int:
        """How many have an end that is bound."""
        return len(self._flows)

    def relayed(self, session: bytes) -> int:
        """How many bytes of frames were forwarded for a session, as far as is remembered."""
        known = self._sessions.get(session)
        return known.relayed if known else 0

    def grant(self, session: bytes, own: bytes, other: bytes) -> Grant:
        """Allow member `own` its end of the flow with `other`, both members of the session."""
        flow, side = relay_flow(session, own, other), relay_side(own, other)
        expires = int(self._wall() + d.RELAY_GRANT_SECONDS)
        token = relay_token(self._secret, session, flow, side, expires)
        return Grant(other, session, flow, side, expires, token)

    # --- frames ------------------------------------------------------------------------------

    def forward(self, frame: bytes | memoryview, source: Address, now: float) -> End | None:
        """Return where a frame from `source` goes, unchanged; None: nowhere, which is counted."""
        flow = self._flows.get(bytes(frame[1:FRAME_HEAD]))
        if flow is None:
            return self._drop("unbound")
        near, far = flow.ends
        if near is None or near.source != source:
            near, far = far, near
            if near is None or near.source != source:
                return self._drop("unbound")
        if far is None:
            return self._drop("alone")
        size = len(frame)
        if not FRAME_HEAD < size <= _LARGEST:
            return self._drop("size")
        session = flow.session
        if session.relayed + size > session.limit:
            return self._drop("budget")
        due = flow.due if flow.due > now else now
        if due > now + d.RELAY_BURST_SECONDS:
            return self._drop("edge rate")
        total = self._total_due if self._total_due > now else now
        if total > now + d.RELAY_BURST_SECONDS:
            return self._drop("total rate")
        flow.due = due + size * self._byte_s
        self._total_due = total + size * self._total_byte_s
        session.relayed += size
        self.datagrams += 1
        self.bytes += size
        return far

    def congested(self, frame: bytes | memoryview) -> None:
        """A frame that `forward` let pass found the socket full."""
        self.datagrams -= 1
        self.bytes -= len(frame)
        self._drop("congested")

    def _drop(self, why: str) -> End | None:
        self.dropped[why] += 1
        return None

    # --- the handshake -----------------------------------------------------------------------

    def binding(
        self, datagram: bytes, carrier: Carrier, source: Address, now: float
    ) -> bytes | None:
        """Take a message of the handshake; return the answer, which is as long, if there is one.

        Raises ValueError for what is none.
        """
        message = decode_binding(datagram)
        if not isinstance(message, Bind | Answer):
            raise ValueError("an answer, where a question is due")
        names = message.flow, message.side, message.transaction
        epoch = int(now // d.RELAY_COOKIE_SECONDS)
        if isinstance(message, Bind) or not any(
            hmac.compare_digest(message.cookie, self._cookie(message, source, each))
            for each in (epoch, epoch - 1)
        ):
            crowd = network(source[0])
            if crowd is not None and not self._challenges.take(crowd, now):
                return None
            self.handshakes["challenged"] += 1
            return Challenge(*names, self._cookie(message, source, epoch)).encode()
        state = self._bind(message, carrier, source, now)
        self.handshakes[state.name.lower()] += 1
        seen = None if tunnelled(source) else source
        return Bound(*names, self.boot, state, seen).encode()

    def _bind(self, message: Answer, carrier: Carrier, source: Address, now: float) -> State:
        token = relay_token(
            self._secret, message.session, message.flow, message.side, message.expires
        )
        proof = binding_proof(token, message.transaction, message.cookie)
        if message.expires <= self._wall() or not hmac.compare_digest(message.proof, proof):
            return State.REFUSED
        flow = self._flows.get(message.flow)
        before = flow.ends[message.side] if flow else None
        if before is None or before.source != source:
            if self._crowds[site(source[0])] >= d.RELAY_FLOWS_PER_ADDRESS:
                return State.BUSY
            if flow is None:
                if len(self._flows) >= d.RELAY_FLOWS:
                    return State.BUSY
                flow = self._flows[message.flow] = _Flow(self._session(message.session, now), now)
                flow.session.flows += 1
            self._put(flow, message.side, End(carrier, source, now))
        else:
            before.carrier, before.seen = carrier, now
        assert flow is not None
        if flow.session.relayed >= flow.session.limit:
            return State.SPENT
        return State.BOTH if all(flow.ends) else State.ALONE

    def _cookie(self, message: Bind | Answer, source: Address, epoch: int) -> bytes:
        words = f"{source[0]}|{source[1]}|{message.side}|{epoch}|".encode() + message.flow
        return hmac.digest(self._cookies, words, "sha256")[:16]

    def _session(self, name: bytes, now: float) -> _Session:
        session = self._sessions.get(name)
        if session is None:
            if len(self._sessions) >= d.RELAY_SESSIONS:
                idle = next((s for s in self._sessions.values() if not s.flows), None)
                if idle is not None:  # the one that came first
                    del self._sessions[idle.name]
            session = self._sessions[name] = _Session(name, self._budget, now)
        return session

    def _put(self, flow: _Flow, side: int, end: End | None) -> None:
        before, flow.ends[side] = flow.ends[side], end
        if end is not None:
            self._crowds[end.crowd] += 1
        if before is not None:
            self._crowds[before.crowd] -= 1
            if not self._crowds[before.crowd]:
                del self._crowds[before.crowd]

    # --- time --------------------------------------------------------------------------------

    def tick(self, now: float) -> list[Action]:
        """Time has passed; call about once a second."""
        for name, flow in list(self._flows.items()):
            for side, end in enumerate(flow.ends):
                if end is not None and now - end.seen >= d.RELAY_FORGET:
                    self._put(flow, side, None)
            if not any(flow.ends):
                del self._flows[name]
                flow.session.flows -= 1
        actions: list[Action] = []
        for name, session in list(self._sessions.items()):
            if now - session.counted >= d.RELAY_BUDGET_SECONDS:
                if not session.flows:
                    del self._sessions[name]
                    continue
                session.limit = session.relayed + self._budget
                session.counted, session.told = now, False
            if session.relayed + _LARGEST > session.limit and not session.told:
                session.told = True
                actions.append(
                    Log(f"session {short(name)} has used up the {gib(self._budget)} it may relay")
                )
        return actions


def relay_secret(identity: Identity) -> bytes:
    """Return the secret of a rendezvous' tokens: a function of its identity, so that what it has
    granted outlives its process."""
    return HKDF(SHA256(), 32, None, b"kafila relay tokens").derive(
        identity.sign(b"kafila relay tokens")  # Ed25519 signs the same words always alike
    )
