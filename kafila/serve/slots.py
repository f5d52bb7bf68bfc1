"""What a member knows of its KV slots: whose they are and how far they are filled.

Pure. It lets a member refuse frames that would compute on another request's keys and values.
"""

from collections import defaultdict
from dataclasses import dataclass

from kafila.serve.frames import Decode, FrameError, Prefill, Release


@dataclass
class _Slot:
    request: int | None = None  # None: it is free
    filled: int = 0  # positions with keys and values, left by the last request in a free one


class Slots:
    """The slots of one member, by (group, row)."""

    def __init__(self) -> None:
        self._slots: defaultdict[tuple[int, int], _Slot] = defaultdict(_Slot)

    def __len__(self) -> int:
        """How many are occupied."""
        return sum(slot.request is not None for slot in self._slots.values())

    def prefill(self, frame: Prefill) -> None:
        """A chunk begins in a free slot, after what its source holds, or goes on in its own."""
        where = (frame.group, frame.row)
        slot = self._slots[where]
        if slot.request is None:
            fits = frame.start <= self._slots[frame.source].filled
        else:
            stopped = (slot.request, slot.filled, where)
            fits = stopped == (frame.request, frame.start, frame.source)
        if not fits:
            raise FrameError(f"a prefill from {frame.start} of request {frame.request} in {where}")
        slot.request, slot.filled = frame.request, frame.start + frame.count

    def decode(self, frame: Decode) -> None:
        """A step must add the next position to each of its rows."""
        for row, position in zip(frame.rows, frame.positions, strict=True):
            slot = self._slots[frame.group, row]
            if slot.request is None or slot.filled != position:
                raise FrameError(f"a step at {position} in {(frame.group, row)}")
            slot.filled += 1

    def release(self, frame: Release) -> None:
        """The slot is free, whether or not anything of its request ever came by."""
        self._slots[frame.group, frame.row].request = None
