"""A stage that takes a fixed time for every row, one row after the other, on any machine."""

import time

from kafila.serve.frames import Array
from tests.serve.toy import ToyStage

SECONDS_A_ROW = 0.020


class PacedStage(ToyStage):
    """A toy stage that sleeps out 20 ms for each row of a step and for each chunk of a prompt."""

    def prefill(self, group: int, row: int, start: int, x: Array) -> Array:
        time.sleep(SECONDS_A_ROW)
        return super().prefill(group, row, start, x)

    def decode(self, group: int, positions: Array, x: Array) -> Array:
        time.sleep(SECONDS_A_ROW * int((positions >= 0).sum()))
        return super().decode(group, positions, x)
