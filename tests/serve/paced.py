"""Stages that take a fixed time on any machine: what a ring's rates are made of is known."""

import time
from dataclasses import dataclass

import ml_dtypes
import numpy as np

from kafila.serve.frames import Array
from stages.sampling import Sampling
from tests.serve.toy import ToyStage


@dataclass(frozen=True)
class Pace:
    """Seconds of a step for its first row and for each further one, and of a prefill chunk."""

    first: float = 0.020
    further: float = 0.020
    chunk: float = 0.020

    def step(self, positions: Array) -> float:
        """Seconds for the rows that are present."""
        return self.first + self.further * (int((positions >= 0).sum()) - 1)


class PacedStage(ToyStage):
    """A toy stage that sleeps out its pace, by default one row after the other.

    `worked` are the calls so far, each from when to when.
    """

    devices = "a clock"

    def __init__(self, blocks: range, pace: Pace = Pace(), **sizes: int) -> None:
        super().__init__(blocks, **sizes)
        self.pace = pace
        self.worked: list[tuple[float, float]] = []

    def prefill(self, group: int, row: int, start: int, x: Array) -> Array:
        self._work(self.pace.chunk)
        return super().prefill(group, row, start, x)

    def decode(self, group: int, positions: Array, x: Array) -> Array:
        self._work(self.pace.step(positions))
        return super().decode(group, positions, x)

    def _work(self, seconds: float) -> None:
        began = time.monotonic()
        time.sleep(seconds)
        self.worked.append((began, time.monotonic()))


class WideStage:
    """A stage as wide as a real one that computes nothing: it hands on what it got, in its time.

    Every hidden state is that of its token, so a prompt's answer is its last token, repeated.
    """

    devices = "a clock"
    hidden = 4096
    vocab = 256  # bfloat16 holds these exactly
    chunk = 256
    wire_dtype: "np.dtype[np.generic]" = np.dtype(ml_dtypes.bfloat16)

    def __init__(self, pace: Pace, *, groups: int, rows: int, context: int) -> None:
        self.groups, self.rows, self.context = groups, rows, context
        self._pace = pace

    def prefill(self, group: int, row: int, start: int, x: Array) -> Array:
        time.sleep(self._pace.chunk)
        return self._embed(x) if x.ndim == 1 else x

    def copy(self, source: tuple[int, int], target: tuple[int, int], length: int) -> None:
        """There is nothing to copy."""

    def decode(self, group: int, positions: Array, x: Array) -> Array:
        time.sleep(self._pace.step(positions))
        return x

    def step(
        self, group: int, positions: Array, x: Array, sampling: Sampling
    ) -> tuple[Array, Array]:
        return x[:, 0].astype(np.int32), self.decode(group, positions, x)

    def _embed(self, tokens: Array) -> Array:
        return np.repeat(tokens.astype(self.wire_dtype)[:, None], self.hidden, axis=1)
