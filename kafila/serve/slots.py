"""What a member knows of its KV slots: whose they are and how far they are filled.

Pure. It lets a member refuse frames that would compute on another request's keys and values.
"""

from dataclasses import dataclass

from kafila.serve.frames import Decode, FrameError, Prefill, Release


@dataclass
class _Slot:
    request: int
    filled: int


class Slots:
    """The occupied slots of one member, by (group, row)."""

    def __init__(self) -> None:
        self._slots: dict[tuple[int, int], _Slot] = {}

    def __len__(self) -> int:
        return len(self._slots)

    def prefill(self, frame: Prefill) -> None:
        """A chunk must begin a free slot or go on exactly where its request stopped."""
        where = (frame.group, frame.row)
        slot = self._slots.get(where)
        if slot is None and frame.start == 0:
            self._slots[where] = _Slot(frame.request, frame.count)
        elif slot and (slot.request, slot.filled) == (frame.request, frame.start):
            slot.filled += frame.count
        else:
            raise FrameError(f"a prefill from {frame.start} of request {frame.request} in {where}")

    def decode(self, frame: Decode) -> None:
        """A step must add the next position to each of its rows."""
        for row, position in zip(frame.rows, frame.positions, strict=True):
            slot = self._slots.get((frame.group, row))
            if slot is None or slot.filled != position:
                raise FrameError(f"a step at {position} in {(frame.group, row)}")
            slot.filled += 1

    def release(self, frame: Release) -> None:
        """The slot is free, whether or not anything of its request ever came by."""
        self._slots.pop((frame.group, frame.row), None)
