"""The thin shell round the state machine of one edge: its timer, its sockets, its failures."""

import asyncio
from collections.abc import Callable, Hashable, Iterable, Sequence
from functools import partial
from typing import Any

from kafila.address import Address, format_address
from kafila.defaults import BUSY_SECONDS, PATH_SIZES, REFRESH_SECONDS
from kafila.errors import IdentityProblem, KafilaError, NetworkProblem
from kafila.net.checks import Check
from kafila.net.connection import forsake
from kafila.net.edge import Edge, Peer
from kafila.net.gathering import FreshSockets, Home
from kafila.net.handshake import Reason, Refusal, Terms
from kafila.net.path import Path
from kafila.net.paths import Action, Close, Gather, GatherMany, PathChecks, Send
from kafila.net.udp import Udp


class Approach:
    """Finds paths to one peer, and keeps them, for as long as the edge lives.

    `usable` is done when something may carry the edge, `opened` when it is up.
    """

    def __init__(
        self,
        node: Home,
        peer: Peer,
        checks: PathChecks,
        terms: Terms,
        *,
        client: bool,
        servers: Sequence[Address],
        connect: Callable[["Approach"], Edge],
    ) -> None:
        """`servers` tell fresh sockets how they are seen; `connect` makes the client's edge."""
        self.peer = peer
        self.client = client
        self.terms = terms
        self.checks = checks
        self.edge: Edge | None = None
        """A client's from its first datagram; a server's once the peer has proven its key."""
        self.trials: dict[Edge, frozenset[bytes]] = {}
        """A server's ends for those who may be the peer, each with its connection ids."""
        self.sent = {"direct": 0, "relayed": 0}
        self.received = {"direct": 0, "relayed": 0}
        self._loop = asyncio.get_running_loop()
        self.usable: asyncio.Future[None] = self._loop.create_future()
        self.opened: asyncio.Future[Edge] = self._loop.create_future()
        self._sockets = FreshSockets(node, servers)
        self._connect = connect
        self._carrying: tuple[Path, ...] = ()
        self._used: Path | None = None
        self._size = 0
        self._doubted: Address | None = None
        self._refused: IdentityProblem | None = None
        self._busy_until = 0.0
        self._refreshed_at = 0.0
        self._present = False
        self._closed = False
        self._timer: asyncio.TimerHandle | None = None
        self._poll()

    # --- what arrives ------------------------------------------------------------------------

    def receive(self, datagram: bytes, check: Check, socket: Any, source: Address) -> None:
        """Take a check that names this edge."""
        actions = self.checks.receive(datagram, check, socket, source, self._loop.time())
        if actions is None:
            self.doubt(socket, source)
        else:
            self._act(actions)

    def doubt(self, socket: Any, source: Address) -> None:
        """Remember that somebody without the peer's key answers at one of its addresses."""
        path = self.checks.find(socket, source)
        if path is not None and path.kind == "direct":
            self._doubted = source

    def admit(self, socket: Any, source: Address, size: int) -> Path | None:
        """Return the path that a QUIC datagram came over; None if it is nobody's."""
        path = self.checks.find(socket, source)
        if path is None:
            return None
        now = self._loop.time()
        if path is not self._used:
            self._act(self.checks.over(path, now))
        path.heard_at = now
        known = path.checked or path.kind == "relayed" or (bool(self._edges) and path.met)
        if not known:
            return None
        self.received[path.kind] += size
        self._busy(now)
        return path

    def update(self, candidates: Sequence[Address]) -> None:
        """Take the peer's addresses from a new record; once it is over, nothing."""
        if not self._closed:
            self._act(self.checks.update(candidates, self._loop.time()))

    # --- what is sent ------------------------------------------------------------------------

    def carry(self, datagrams: Iterable[tuple[bytes, Hashable]]) -> None:
        """Send QUIC's datagrams over what carries the edge now, and count their bytes."""
        burst = [datagram for datagram, _ in datagrams]
        if not burst:
            return
        total = sum(map(len, burst))
        for path in self._carrying:
            path.socket.send_all(burst, path.address)
            self.sent[path.kind] += total
        self._busy(self._loop.time())

    @property
    def size(self) -> int:
        """The largest datagram that fits whatever carries the edge now."""
        return min((path.size or PATH_SIZES[0] for path in self._carrying), default=PATH_SIZES[0])

    def concluded(self, edge: Edge, problem: KafilaError | None) -> None:
        """The connection came up, or not."""
        deaf = (
            self.client and isinstance(problem, NetworkProblem) and not any(self.received.values())
        )
        if self.opened.done():
            return
        if problem is None:
            self.edge = edge
            self._dismiss()
            self.opened.set_result(edge)
        elif not self.client:  # whoever it was: the peer may come yet
            if isinstance(problem, IdentityProblem):
                self._refused = problem
        elif deaf and not self._closed:  # the peer is not there yet: call it again
            edge.mute()
            self.edge = None
            self._loop.call_soon(self.connect)
        else:
            self.opened.set_exception(problem)

    def connect(self) -> None:
        """Begin the client's connection."""
        if self.client and self.edge is None and not self.opened.done() and not self._closed:
            self.edge = self._connect(self)

    # --- the end -----------------------------------------------------------------------------

    def failure(self, timeout: float) -> KafilaError:
        """Say why there is no edge after `timeout` seconds."""
        if self._refused is not None:
            return self._refused
        name = self.peer.name
        relay = next((path for path in self.checks.paths if path.kind == "relayed"), None)
        used = self.checks.used
        silent = (
            f"did not connect within {timeout:g} s: does its plan have this member as a neighbour?"
        )
        if used is not None and used.kind == "direct":
            return NetworkProblem(
                f"{name} can be reached at {format_address(used.address)}, but {silent}"
            )
        if relay is not None and relay.alive:
            return NetworkProblem(f"{name} can be reached through the relay, but {silent}")
        if self._doubted is not None:
            return IdentityProblem(
                f"who answers at {format_address(self._doubted)} is not {name}: it does not hold "
                f"the key that the plan names for {name}."
            )
        places = ", ".join(format_address(place) for place in self.peer.candidates)
        through = "" if relay is None else ", nor through the relay"
        return NetworkProblem(
            f"{name} does not answer at {places or 'any address'}{through} after {timeout:g} s: is "
            "it running, with this plan?"
        )

    def close(self) -> None:
        """Stop checking and answering; whoever waits for the edge is told."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        self._sockets.close()
        self._dismiss()
        waiting = self.opened if self.usable.done() else self.usable
        if not waiting.done():
            waiting.set_exception(NetworkProblem(f"the edge to {self.peer.name} was given up."))

    def forsake(self) -> None:
        """Nobody waits for the edge any more."""
        forsake(self.usable)
        forsake(self.opened)

    def _dismiss(self) -> None:
        """End what came to nothing, in silence."""
        for trial in list(self.trials):
            if trial is not self.edge:
                trial.mute()
                trial.abort("")
        self.trials.clear()

    # --- doing what the machine says ---------------------------------------------------------

    @property
    def _edges(self) -> list[Edge]:
        """What may have datagrams on their way."""
        return list(self.trials) if self.edge is None else [self.edge]

    def _poll(self) -> None:
        self._timer = None
        self._act(self.checks.poll(self._loop.time()))

    def _busy(self, now: float) -> None:
        if now >= self._busy_until:
            self._busy_until = now + BUSY_SECONDS
            self._act(self.checks.busy(now))

    def _gathered(self, round_: int, udp: Udp | None, candidates: Sequence[Address]) -> None:
        self._act(self.checks.gathered(round_, udp, candidates, self._loop.time()))

    def _gathered_many(self, round_: int, sockets: Sequence[Udp]) -> None:
        self._act(self.checks.gathered_many(round_, sockets, self._loop.time()))

    def _act(self, actions: Iterable[Action]) -> None:
        for action in actions:
            match action:
                case Send(socket, address, datagram, ttl):
                    socket.send(datagram, address, ttl)
                case Gather(round_):
                    self._sockets.fresh(partial(self._gathered, round_))
                case GatherMany(round_, number):
                    self._sockets.many(number, partial(self._gathered_many, round_))
                case Close(socket):
                    self._sockets.forget(socket)
        if self._closed:
            return
        now = self._loop.time()
        self._refuse()
        self._follow(now)
        self._greet(now)
        self._arm()

    def _refuse(self) -> None:
        """The peer has another plan or protocol: whoever waits is told at once."""
        mismatch, ours = self.checks.mismatch, self.terms
        waiting = self.opened if self.usable.done() else self.usable
        if mismatch is None or waiting.done():
            return
        if mismatch.protocol != ours.protocol:
            values = ours.protocol.to_bytes(2), mismatch.protocol.to_bytes(2)
            refusal = Refusal(Reason.PROTOCOL, True, *values)
        else:
            refusal = Refusal(Reason.PLAN, True, ours.digest, mismatch.plan)
        waiting.set_exception(IdentityProblem(refusal.words(self.peer.name)))

    def _follow(self, now: float) -> None:
        """Tell QUIC of what changed beneath it, and the edge's owner of another path."""
        before, self._carrying = self._carrying, self.checks.carrying
        used, self._used = self._used, self.checks.used
        if self._carrying and not self.usable.done():
            self.usable.set_result(None)
        size, self._size = self._size, self.size
        added = [path for path in self._carrying if path not in before]
        for edge in self._edges:
            if added:
                edge.moved(self._size, added[-1].rtt_us, now)
            elif size != self._size:
                edge.resized(self._size)
            if used is not self._used and self._used is not None:
                edge.told(self._used)

    def _greet(self, now: float) -> None:
        """The peer came later than our first datagram, which it has missed then; and the relay may
        have to learn anew where we are."""
        if self.checks.present and not self._present:
            self._present = True
            if self.client and self.edge is not None and not any(self.received.values()):
                self.edge.nudge(now)
        relay = self.checks.relay
        silent = relay is not None and relay.suspect(now)
        if relay is not None and silent and now - self._refreshed_at > REFRESH_SECONDS:
            self._refreshed_at = now
            relay.socket.refresh()

    def _arm(self) -> None:
        due = self.checks.timer()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if due is not None:
            self._timer = self._loop.call_at(due, self._poll)
