"""What the scheduler asks of the head, as plain values."""

from dataclasses import dataclass
from typing import Literal

Reason = Literal["stop", "length", "cancelled"]
Slot = tuple[int, int]


@dataclass(frozen=True)
class Chunk:
    """Compute prompt positions [start, stop) of a request and send them on.

    Those before start are first copied from `source`, if that is another slot.
    """

    request: int
    slot: Slot
    start: int
    stop: int
    last: bool
    source: Slot


@dataclass(frozen=True)
class Step:
    """Compute one token of each of a group's `rows`: (row, request, position of that token)."""

    group: int
    step: int
    rows: tuple[tuple[int, int, int], ...]


@dataclass(frozen=True)
class Forward:
    """Send the step's activations of these rows (row, position) on; the others have ended."""

    group: int
    step: int
    rows: tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class Token:
    """A request has got its next token."""

    request: int
    token: int


@dataclass(frozen=True)
class End:
    """A request has ended."""

    request: int
    reason: Reason


@dataclass(frozen=True)
class Free:
    """Send a Release of this slot round the ring."""

    slot: Slot


Work = Chunk | Step
Action = Work | Forward | Token | End | Free
