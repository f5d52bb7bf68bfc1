"""The slots as the head sees them: which are free, what they hold, which one a prompt gets.

Pure; knows no request or frame. A slot keeps the keys and values of a prompt's whole chunks when
its request is over, until it is given to another; the least recently used goes first. Only whole
chunks are reused, so a prompt is cut in the same places and has the same result as without.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import takewhile

Chunks = Sequence[bytes]
"""The whole chunks of a prompt, in order, as bytes that are equal when their tokens are."""


@dataclass
class Place:
    """A slot: its group and row, and the chunks that it holds for whoever comes next.

    Held is what was sent to it: prefill is done in the order in which it was sent, everywhere.
    """

    group: int
    row: int
    taken: bool = False
    chunks: Chunks = ()
    used: int = 0  # when it was last of use, by count


class Places:
    """All slots of a ring."""

    def __init__(self, groups: int, rows: int) -> None:
        self._groups = [[Place(group, row) for row in range(rows)] for group in range(groups)]
        self._all = [place for group in self._groups for place in group]
        self._count = 0

    def __len__(self) -> int:
        return len(self._all)

    @property
    def used(self) -> int:
        """How many are taken."""
        return _load(self._all)

    def take(self, chunks: Chunks) -> Place | None:
        """A place for a prompt, in one of the groups with the fewest; None: all are taken.

        That is the one that holds the most of it, if that is all it holds. Otherwise one that
        holds nothing, the lowest row first, or the least recently used.
        """
        groups = [group for group in self._groups if not all(place.taken for place in group)]
        least = min(map(_load, groups), default=0)
        free = [p for group in groups if _load(group) == least for p in group if not p.taken]
        if not free:
            return None
        most = max(common(p.chunks, chunks) for p in self._all)
        goes_on = (p for p in free if most and common(p.chunks, chunks) == most == len(p.chunks))
        oldest = min(free, key=lambda p: (p.used if p.chunks else 0, p.row, p.group))
        place = next(goes_on, oldest)
        place.taken = True
        return place

    def source(self, place: Place, chunks: Chunks) -> tuple[Place, int]:
        """Who holds the most of a prompt in `place`, from its start on, and how many chunks.

        That is `place` itself, unless another holds more.
        """
        found = max([place, *self._all], key=lambda p: common(p.chunks, chunks))
        return found, common(found.chunks, chunks)

    def touch(self, place: Place) -> None:
        """It is of use now."""
        self._count += 1
        place.used = self._count

    def free(self, place: Place) -> None:
        """Its request is over; what it holds stays."""
        place.taken = False
        self.touch(place)


def common(a: Chunks, b: Chunks) -> int:
    """How many chunks both begin with."""
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(a, b, strict=False)))


def _load(places: Iterable[Place]) -> int:
    return sum(place.taken for place in places)
