"""The paths of an edge: which there are, which carries it, and when each is asked whether it works.

Direct paths are preferred over the relayed one, among them the shortest, and a path that works is
not left for a little. In virtual time; knows nothing of rounds of punching.
"""

import math
from collections.abc import Callable
from enum import Enum
from typing import Any, Final, NamedTuple

from kafila.address import Address
from kafila.defaults import (
    DISCOVERY_SECONDS,
    HEARTBEAT,
    HEARTBEAT_IDLE,
    HEARTBEAT_STANDBY,
    MAX_PATHS,
    PATH_SIZES,
    PING_AGAIN,
    PING_AGAIN_MOST,
    SEEK_AGAIN_MOST,
    STICKY_LEAST,
    STICKY_SECONDS,
    STICKY_SHARE,
    SUSPECT_AGAIN,
    UNANSWERED_AGAIN,
)
from kafila.net.checks import CHECK_SIZE, Check, CheckType, Signer
from kafila.net.path import Path

_LAST_TRIES: Final = 5
"""PINGs to an address that nobody counts on any more."""


class Send(NamedTuple):
    """Send a datagram from a socket to an address, past `ttl` routers at most."""

    socket: Any
    address: Address
    datagram: bytes
    ttl: int | None = None


class State(Enum):
    """What carries the edge."""

    SEEKING = "seeking"
    """Nothing, or a path that is silent, in hope."""
    RELAYED = "relayed"
    DIRECT = "direct"
    SUSPECT = "suspect"
    """A direct path that is silent, and what else there is beside it."""


DIRECTLY: Final = (State.DIRECT, State.SUSPECT)


class Routes:
    """Every path of one edge. `used` carries it, if there is one."""

    def __init__(
        self, signer: Signer, relay: Path | None, random: Callable[[int], bytes], now: float
    ) -> None:
        self.relay = relay
        self.paths: list[Path] = []
        self.used: Path | None = relay
        self.state = State.SEEKING if relay is None else State.RELAYED
        self.seeking = True
        """Whether addresses that do not answer are asked on and on."""
        self._signer = signer
        self._random = random
        self._places: dict[tuple[Any, Address], Path] = {}
        self._busy_at = -math.inf
        self._discoveries, self._discovered_at = float(MAX_PATHS), now
        if relay is not None:
            self.paths.append(relay)
            relay.begin(now)

    # --- which there are ---------------------------------------------------------------------

    def find(self, socket: Any, address: Address) -> Path | None:
        """Return the path from `socket` to `address`, checked or not; the relay has one only."""
        if self.relay is not None and socket is self.relay.socket:
            return self.relay
        return self._places.get((socket, address))

    def add(self, socket: Any, address: Address, round_: int) -> Path | None:
        """Return the path, a new one if need be; None: there are too many that may be good."""
        path = self.find(socket, address)
        if path is None:
            if len(self.paths) == MAX_PATHS:
                old = (each for each in self.paths if self._dispensable(each, round_))
                superseded = next(old, None)
                if superseded is None:
                    return None
                self.drop(superseded)
            path = self._places[socket, address] = Path("direct", socket, address, round_)
            self.paths.append(path)
        return path

    def discover(self, socket: Any, address: Address, round_: int, now: float) -> Path | None:
        """Return the path over which a PING came, a new one if need be; None: there were too many.

        Two NATs that map by destination can answer each other from new ports for ever.
        """
        path = self.find(socket, address)
        if path is None:
            refilled = self._discoveries + (now - self._discovered_at) / DISCOVERY_SECONDS
            self._discoveries, self._discovered_at = min(refilled, MAX_PATHS), now
            if self._discoveries >= 1:
                self._discoveries -= 1
                path = self.add(socket, address, round_)
        return path

    def _dispensable(self, path: Path, round_: int) -> bool:
        kept = path is self.relay or path is self.used or path.alive
        return not kept and (path.round < round_ or path.next == math.inf)

    def drop(self, path: Path) -> None:
        """Forget a path."""
        self.paths.remove(path)
        del self._places[path.socket, path.address]

    def revive(self, now: float) -> None:
        """Ask again on all that were given up."""
        for path in self.paths:
            if not path.alive:
                path.begin(now)

    # --- which carries the edge --------------------------------------------------------------

    @property
    def carrying(self) -> tuple[Path, ...]:
        """The paths that take every datagram now: two while the one in use is suspect."""
        if self.used is None:
            return ()
        if self.state is State.SUSPECT:
            others = (each for each in self.paths if each.checked and each is not self.used)
            beside = self.relay or next((each for each in others if each.alive), None)
            if beside is not None:
                return self.used, beside
        return (self.used,)

    @property
    def relaying(self) -> bool:
        """Whether there is a relay that brings answers."""
        return self.relay is not None and self.relay.alive

    def settle(self, now: float) -> None:
        """Judge what has been silent, and choose."""
        for path in self.paths:
            if path.alive and now >= path.lost_at:
                path.lose(now)
                if path is self.relay and self.state not in DIRECTLY:
                    self.revive(now)
        self.used = self._best(now)
        before, self.state = self.state, self._judge(now)
        if self.state is State.SUSPECT is not before:
            for path in self.paths:
                if path.alive:
                    path.next = min(path.next, now)
        elif before in DIRECTLY and self.state not in DIRECTLY:
            self.revive(now)

    def _judge(self, now: float) -> State:
        if self.used is None or (self.used is not self.relay and not self.used.alive):
            return State.SEEKING
        if self.used is self.relay:
            return State.RELAYED
        return State.SUSPECT if self.used.suspect(now) else State.DIRECT

    def _best(self, now: float) -> Path | None:
        used = self.used
        doubted = used is not None and used is not self.relay and used.alive and used.suspect(now)
        since = used.asked_at if used is not None and doubted else None
        good = [
            path
            for path in self.paths
            if path is not self.relay and path.alive and path.checked and not path.suspect(now)
            if since is None or path.answered_at >= since
        ]
        if not good:
            return used if doubted else self.relay or used
        best = min(good, key=lambda path: path.rtt)
        return used if used in good and not _worth(best, used) else best

    # --- asking ------------------------------------------------------------------------------

    def timer(self) -> float:
        """When something is due."""
        times = [path.next for path in self.paths]
        times += [path.lost_at for path in self.paths if path.alive]
        if self.state is State.DIRECT and self.used is not None:
            times.append(self.used.suspect_at)
        return min(times, default=math.inf)

    def poll(self, now: float) -> list[Send]:
        """Send the PINGs that are due."""
        return [send for path in self.paths if now >= path.next for send in self.ask(path, now)]

    def ask(self, path: Path, now: float) -> list[Send]:
        """Send a round of PINGs on a path, and note when the next is due."""
        if path.alive and path.checked:
            sizes, again = self._heartbeat(path, now)
        else:
            sizes, again = path.wants()
            fallen = path.answered_at > -math.inf and self.state not in DIRECTLY
            hoped = path is self.relay or path.alive or fallen or self.seeking
            if not hoped and path.tries > _LAST_TRIES:
                path.next = math.inf
                return []
        path.next = now + again
        return [self.ping(path, size, now) for size in sizes]

    def ping(self, path: Path, size: int, now: float, ttl: int | None = None) -> Send:
        """Send one PING."""
        transaction = self._random(8)
        path.asked(transaction, size, now)
        datagram = self._signer.sign(CheckType.PING, transaction, size)
        return Send(path.socket, path.address, datagram, ttl)

    def _heartbeat(self, path: Path, now: float) -> tuple[tuple[int, ...], float]:
        """A PING as large as what the path has to carry; repeated soon, should it be lost."""
        if path.suspect(now) and path.size > PATH_SIZES[0]:
            return (PATH_SIZES[0], path.size), SUSPECT_AGAIN
        if path.suspect(now):
            return (path.size,), SUSPECT_AGAIN
        size = path.size if path is self.used else CHECK_SIZE
        return (size,), max(UNANSWERED_AGAIN, 1.5 * path.rtt)

    def answered(self, path: Path, check: Check, now: float) -> list[Send] | None:
        """A PONG came over a path: ask on where more is to be learnt. None: it answers no PING of
        ours there."""
        new = not path.alive
        if not path.answered(check.transaction, check.size, now):
            return None
        if not path.checked:
            if not new:
                return []
            path.next = now
            return self.ask(path, now)
        path.next = now + self._pause(path, now)
        return []

    def _pause(self, path: Path, now: float) -> float:
        if path.more > 0:
            path.more -= 1
            return PING_AGAIN_MOST
        if path is not self.used:
            return HEARTBEAT_STANDBY
        return HEARTBEAT if now - self._busy_at < 2 * HEARTBEAT else HEARTBEAT_IDLE

    def wanted(self, path: Path, now: float) -> list[Send]:
        """The peer uses this path: its way to us is open right now, so ask over it too."""
        if path.checked and path.alive:
            return []
        if not path.alive and now - path.heard_at >= SEEK_AGAIN_MOST:
            path.begin(now)
        soon = not path.alive and path.tries <= _LAST_TRIES  # else two ends keep each other going
        ripe = path.pinged_at + PING_AGAIN if soon else path.next
        return self.ask(path, now) if now >= ripe else []

    def busy(self, now: float) -> None:
        """The edge carries something: its path is asked often. (Say so twice a second.)"""
        self._busy_at = now
        if self.used is not None and self.used.asked_at is None:
            self.used.next = min(self.used.next, self.used.answered_at + HEARTBEAT)

    def hint(self, now: float) -> bool:
        """The peer uses the relay: the path in use may be dead, at its end at least. Tell whether
        it is to be asked now."""
        used = self.used
        if used is None or used.asked_at is not None or now - used.answered_at <= used.patience:
            return False
        used.next = now
        return True


def _worth(path: Path, used: Path) -> bool:
    """Whether it is worth moving from one good path to another."""
    gain = used.rtt - path.rtt
    return gain >= STICKY_SECONDS or gain >= max(STICKY_SHARE * used.rtt, STICKY_LEAST)
