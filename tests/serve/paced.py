"""A stage that takes a fixed time for every row, one row after the other, on any machine."""

import time

from kafila.serve.frames import Array
from tests.serve.toy import ToyStage

SECONDS_A_ROW = 0.020


class PacedStage(ToyStage):
    """A toy stage that sleeps out 20 ms for each row of a step and for each chunk of a prompt.

    `worked` are the calls so far, each from when to when.
    """

    def __init__(self, blocks: range, **sizes: int) -> None:
        super().__init__(blocks, **sizes)
        self.worked: list[tuple[float, float]] = []

    def prefill(self, group: int, row: int, start: int, x: Array) -> Array:
        self._work(1)
        return super().prefill(group, row, start, x)

    def decode(self, group: int, positions: Array, x: Array) -> Array:
        self._work(int((positions >= 0).sum()))
        return super().decode(group, positions, x)

    def _work(self, rows: int) -> None:
        began = time.monotonic()
        time.sleep(SECONDS_A_ROW * rows)
        self.worked.append((began, time.monotonic()))
