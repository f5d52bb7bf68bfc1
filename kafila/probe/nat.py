"""What the NATs before this machine do, told from answers of servers and a stranger. Sans-IO.

Datagrams and `now` (seconds) go in, datagrams to send come out. It knows RFC 4787's two behaviours
and nothing of sockets, sessions or of what is planned from them. However many NATs there are in a
row, they are one behaviour: the strictest of theirs in each respect.

Errors fall on the safe side. That something passes is only said when it passed; that it does not,
only against controls that did; and where neither was seen the verdict is "unknown".
"""

import math
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum

from kafila import defaults as d
from kafila.address import Address
from kafila.net.datagram import Family, binding_mapped, binding_request, family
from kafila.net.reflecting import TRANSACTION_SIZE, Answer, Ask, Knock, decode
from kafila.plan.reach import private
from kafila.plan.values import Behaviour
from kafila.probe.filtering import Filtering
from kafila.probe.strangers import Visit


class Socket(Enum):
    """Two fresh sockets on random ports, one a test, so that no test opens a hole for another."""

    FILTERING = "has sent to the rendezvous' first port only"
    MAPPING = "sends to every server"


@dataclass(frozen=True)
class Send:
    """Send this datagram from this socket; `ttl` hops far where that is not None."""

    socket: Socket
    datagram: bytes
    address: Address
    ttl: int | None = None


@dataclass(frozen=True)
class Servers:
    """Who can be asked: the rendezvous at one or two ports with its cookie, and STUN servers."""

    cookie: bytes
    first: Address
    second: Address | None = None
    stun: tuple[Address, ...] = ()


@dataclass(frozen=True)
class Verdict:
    """What was found. `public`: this machine's address outside, None if nobody answered."""

    mapping: Behaviour
    filtering: Behaviour
    silent: bool
    """No server answered at all."""
    public: Address | None
    preserved: bool | None
    """Whether the NAT keeps port numbers; None without a NAT, or without an answer."""
    translated: bool
    """There is a NAT: the address outside is none of this machine's."""


@dataclass
class _Server:
    """One place that the mapping is observed from."""

    address: Address
    port: int | None
    """Of the rendezvous, 0 or 1; None: a STUN server."""
    due: float
    asked: int = 0
    seen: list[Address] = field(default_factory=list)

    @property
    def settled(self) -> bool:
        """Two observations in a row agree: some firewalls re-map a flow that just began."""
        return len(self.seen) > 1 and self.seen[-1] == self.seen[-2]

    @property
    def wavering(self) -> bool:
        return len(self.seen) > 1 and not self.settled


class Classifier:
    """One classification, from its start to a verdict, and then perhaps a stranger's part."""

    def __init__(
        self,
        servers: Servers,
        local: Sequence[Address],
        now: float,
        random: Callable[[int], bytes] = os.urandom,
    ) -> None:
        """`local`: this machine's addresses, with the port of the mapping socket."""
        self._servers = servers
        self._local = {host for host, _ in local}
        self._local_port = local[0][1] if local else 0
        self._random = random
        self._began = now
        second = servers.second is not None
        self._filter = Filtering(servers.cookie, servers.first, now, random, second=second)
        self._transactions: dict[bytes, _Server] = {}  # of the mapping socket
        self._places = [_Server(servers.first, 0, now)]
        self._places += [_Server(each, None, now) for each in servers.stun]
        self._ended = False
        self._visits: list[Visit] = []
        self.let_in = False
        """A stranger's knock came in at the filtering socket, or at one before it."""

    # --- driving -----------------------------------------------------------------------------

    @property
    def ended(self) -> bool:
        """The servers' part is over: `verdict` is worth reading."""
        return self._ended

    def poll(self, now: float) -> list[Send]:
        """What is to be sent now; call at once, when `due`, and after each `received`."""
        if self._visits:
            visit = self._visits[-1]
            knock = visit.poll(now)
            return [] if knock is None else [Send(Socket.MAPPING, knock, visit.target)]
        if self._ended:
            return []
        ask = self._filter.poll(now)
        sends = [] if ask is None else [Send(Socket.FILTERING, ask, self._servers.first)]
        sends += self._ask_mapping(now)
        self._ended = self._over(now)
        return sends

    def due(self, now: float) -> float:
        """When to call `poll` next, without anything received before; infinity: not at all."""
        if self._visits:
            return self._visits[-1].due
        if self._ended:
            return math.inf
        times = [p.due for p in self._places if not p.settled]
        times.append(self._filter.due)
        times += [t for t in self._limits() if t > now]
        return min(times, default=now)

    def received(self, socket: Socket, datagram: bytes, source: Address, now: float) -> None:
        """A datagram came in at this socket; what is none of ours is ignored."""
        try:
            match family(datagram):
                case Family.STUN:
                    mapped = binding_mapped(datagram)
                    if mapped is not None:
                        self._observe(socket, *mapped, source)
                case Family.REFLECTION:
                    message = decode(datagram)
                    if isinstance(message, Answer) and socket is Socket.FILTERING:
                        self._filter.answered(message, source, now)
                    elif isinstance(message, Answer):
                        self._observe(socket, message.transaction, message.observed, source)
                    elif isinstance(message, Knock) and self._visits:
                        self._knocked(socket, message, source)
        except ValueError:
            return

    # --- mapping -----------------------------------------------------------------------------

    def _ask_mapping(self, now: float) -> Iterator[Send]:
        # A NAT may filter for the machine as a whole: first the other port answers, then it is
        # asked something.
        silence = not self._filter.controls and now >= self._began + d.FILTERING_SILENCE
        ready = self._filter.ended is not None or silence
        second = self._servers.second
        if second is not None and ready and all(p.port != 1 for p in self._places):
            self._places.insert(1, _Server(second, 1, now))
        for place in self._places:
            if place.settled or now < place.due:
                continue
            place.due = now + d.MAPPING_AGAIN[min(place.asked, len(d.MAPPING_AGAIN) - 1)]
            place.asked += 1
            transaction = self._random(12 if place.port is None else TRANSACTION_SIZE)
            self._transactions[transaction] = place
            if place.port is None:
                datagram = binding_request(transaction)
            else:
                ask = Ask(self._servers.cookie, transaction, frozenset((place.port,)))
                datagram = ask.encode()
            yield Send(Socket.MAPPING, datagram, place.address)

    def _observe(self, socket: Socket, transaction: bytes, seen: Address, source: Address) -> None:
        place = self._transactions.pop(transaction, None)
        if socket is Socket.MAPPING and place is not None and place.address == source:
            place.seen.append(seen)
            place.due = min(place.due, self._began) if not place.settled else place.due

    def _over(self, now: float) -> bool:
        if self._filter.ended is None:
            return False
        own = [p for p in self._places if p.port is not None]
        others = [p for p in self._places if p.port is None]
        settled = all(p.settled for p in own)
        if settled and all(p.settled for p in others):
            return True
        if settled and any(p.settled for p in others):
            return now >= self._began + d.OTHER_SERVERS_SECONDS
        return now >= max(self._limits())

    def _limits(self) -> list[float]:
        """When something ends by time alone."""
        began = self._began
        limits = [began + d.CLASSIFY_SECONDS]
        if self._filter.ended is None:
            limits.append(began + d.FILTERING_SILENCE)
        elif self._filter.controls:  # the second port was asked only now
            limits.append(self._filter.ended + d.FILTERING_SILENCE)
        if any(p.port is None and p.settled for p in self._places):
            limits.append(began + d.OTHER_SERVERS_SECONDS)
        return limits

    def _mapping(self) -> Behaviour:
        if any(p.wavering for p in self._places):
            return "address-and-port-dependent"
        groups: dict[str, list[Address]] = {}
        for place in self._places:
            if place.settled:
                groups.setdefault(place.address[0], []).append(place.seen[-1])
        ports = any(len(seen) > 1 for seen in groups.values())
        for visit in self._visits:
            if visit.seen:
                groups.setdefault(visit.door[0], []).extend(visit.seen)
        everything = {seen for group in groups.values() for seen in group}
        if len({host for host, _ in everything}) > 1:
            return "address-and-port-dependent"  # a pool of addresses, drawn from for each
        if any(len(set(seen)) > 1 for seen in groups.values()):
            return "address-and-port-dependent"
        if len(groups) > 1:
            if len(everything) == 1:
                return "endpoint-independent"
            return "address-dependent" if ports else "address-and-port-dependent"
        if everything and not self._translated:
            return "endpoint-independent"
        return "unknown"

    # --- the verdict -------------------------------------------------------------------------

    def _filtering(self) -> Behaviour:
        if self.let_in:
            return "endpoint-independent"
        match self._filter.by_port:
            case False:  # or endpoint-independent, which only a stranger shows
                return "address-dependent"
            case True:
                return "address-and-port-dependent"
        return "unknown"

    def verdict(self) -> Verdict:
        """What can be said so far."""
        public = self._public
        return Verdict(
            mapping=self._mapping(),
            filtering=self._filtering(),
            silent=public is None and not self._filter.controls,
            public=public,
            preserved=public[1] == self._local_port if public and self._translated else None,
            translated=self._translated,
        )

    @property
    def _public(self) -> Address | None:
        """As the rendezvous' first port sees it, or else who answered first."""
        return next((p.seen[-1] for p in self._places if p.seen), None)

    @property
    def _translated(self) -> bool:
        public = self._public
        return public is not None and public[0] not in self._local

    # --- a stranger --------------------------------------------------------------------------

    @property
    def wants_stranger(self) -> bool:
        """Whether somebody at another address could tell more."""
        if not self._ended or self._filter.seen is None:
            return False
        if self._mapping() == "unknown":
            return True
        return self._filtering() == "address-dependent" and not any(v.over for v in self._visits)

    def doors(self, stranger: Address) -> tuple[Address, ...]:
        """Where the stranger shall knock: this member's two sockets as seen from outside. Empty:
        it is none, being at an address that is ours or was asked, or not of the same network."""
        public, filtering = self._public, self._filter.seen
        if public is None or filtering is None:
            return ()
        known = {public[0], *self._local, *(p.address[0] for p in self._places)}
        if stranger[0] in known or private(stranger[0]) != private(public[0]):
            return ()
        return (filtering, public)

    def meet(self, stranger: Address, token: bytes) -> list[Send]:
        """What to send before the stranger is asked to knock with this token."""
        self._visits.append(Visit(stranger, token))
        opener = self._visits[-1].opener()
        return [Send(Socket.MAPPING, opener, stranger, d.OPENER_TTL) for _ in range(3)]

    def asked(self, now: float) -> None:
        """The stranger was asked to knock."""
        self._visits[-1].begin(now)

    def _knocked(self, socket: Socket, knock: Knock, source: Address) -> None:
        visit = self._visits[-1]
        if visit.theirs(knock, source):
            if socket is Socket.FILTERING:
                self.let_in = True
            else:
                visit.way_back(source)

    def told(self, seen: Sequence[Address]) -> None:
        """What the stranger saw: where this member's knocks came from."""
        self._visits[-1].seen = list(seen)
        self._visits[-1].over = True
