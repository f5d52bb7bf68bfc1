"""Birthday punching: many sockets on the side whose NAT maps by destination, guessed ports on the
other. Where k ports of 64,512 are open, a guess is right once in 64,512/k times. Pure, paced.
"""

import random as randomness
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple

from kafila.address import Address
from kafila.defaults import BIRTHDAY_GUESSES, BIRTHDAY_RATE, OPENER_TTLS

_PORTS: Final = range(1024, 65536)
"""Those that NATs map to."""


class Shot(NamedTuple):
    """A PING that nobody waits for: if it gets through, the peer's own PING comes back."""

    socket: Any
    address: Address
    ttl: int | None


def openers(sockets: Sequence[Any], peer: Address) -> Iterator[Shot]:
    """Open a mapping of every socket towards the peer, unheard by its NAT."""
    return (Shot(socket, peer, ttl) for socket in sockets for ttl in OPENER_TTLS)


def guesses(socket: Any, host: str, random: Callable[[int], bytes]) -> Iterator[Shot]:
    """Try ports at the peer's public address, no two alike."""
    ports = randomness.Random(random(16)).sample(_PORTS, BIRTHDAY_GUESSES)
    return (Shot(socket, (host, port), None) for port in ports)


class Salvo:
    """Shots at BIRTHDAY_RATE, as many as are due at each `poll`."""

    def __init__(self, shots: Iterable[Shot], now: float) -> None:
        self._shots = iter(shots)
        self._next = now
        self.over = False

    def poll(self, now: float) -> Iterator[Shot]:
        """Yield the shots that are due."""
        while now >= self._next and not self.over:
            shot = next(self._shots, None)
            if shot is None:
                self.over = True
                return
            self._next += _PAUSE if shot.ttl is None else _PAUSE / len(OPENER_TTLS)
            yield shot

    def timer(self) -> float:
        """When to poll next: not for every single shot."""
        return self._next + _TICK


_PAUSE: Final = 1 / BIRTHDAY_RATE
_TICK: Final = 0.01
"""Seconds worth a timer; a few shots leave together."""
