"""A member that is not the head: a frame comes in, its stage computes, a frame goes out."""

import asyncio
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Protocol

import numpy as np

from kafila.serve.compute import Compute, Outcome, timed
from kafila.serve.frames import Array, Decode, Frame, FrameError, Prefill, Release, Shape
from kafila.serve.rates import Rate
from kafila.serve.ring import Ring
from kafila.serve.slots import Slots

OnStep = Callable[[int, int, float], None]
"""Told of every decode step: its rows, the tokens in their caches together, its microseconds."""


def unheard(rows: int, tokens: int, took_us: float) -> None:
    """An OnStep that nobody listens to."""


class Blocks(Protocol):
    """What a member needs of its stage (`stages.stage.Stage`, whose docstrings give the shapes)."""

    hidden: int
    wire_dtype: "np.dtype[np.generic]"
    context: int
    groups: int
    rows: int
    chunk: int

    def prefill(self, group: int, row: int, start: int, x: Array) -> Array: ...

    def copy(self, source: tuple[int, int], target: tuple[int, int], length: int) -> None: ...

    def decode(self, group: int, positions: Array, x: Array) -> Array: ...


def shape_of(stage: Blocks) -> Shape:
    """The frames that this stage can take part in."""
    return Shape(
        hidden=stage.hidden,
        dtype=np.dtype(stage.wire_dtype),
        groups=stage.groups,
        rows=stage.rows,
        context=stage.context,
        chunk=stage.chunk,
    )


def checked(stage: Blocks, y: Array, rows: int) -> Array:
    """A stage's output [rows, hidden]; ValueError if it is not what the next member can read."""
    if (y.shape, y.dtype) != ((rows, stage.hidden), stage.wire_dtype):
        raise ValueError(
            f"the stage gave {y.dtype}{list(y.shape)} where "
            f"{np.dtype(stage.wire_dtype)}{[rows, stage.hidden]} is due"
        )
    return y


def at_last(frame: Prefill) -> Prefill:
    """A prefill frame as the last member sends it: the head needs one position at most."""
    return replace(frame, x=frame.x[-1:] if frame.last else frame.x[:0])


def prefilled(stage: Blocks, frame: Prefill) -> Prefill:
    """On the compute thread: a prefill frame with the stage's output in it."""
    slot = frame.group, frame.row
    if frame.source != slot:
        stage.copy(frame.source, slot, frame.start)
    y = stage.prefill(*slot, frame.start, frame.x)
    return replace(frame, x=checked(stage, y, frame.count))


class Member:
    """Serves one stage between two neighbours; register it as the ring's `on_frame`."""

    def __init__(self, ring: Ring, stage: Blocks, compute: Compute) -> None:
        self.slots = Slots()
        self.rate = Rate()
        self.on_step: OnStep = unheard
        self._loop = asyncio.get_running_loop()
        self._ring = ring
        self._stage = stage
        self._compute = compute
        ring.on_frame = self.frame

    def frame(self, frame: Frame) -> None:
        """Take one frame; FrameError when it does not fit this member's slots."""
        match frame:
            case Prefill():
                self.slots.prefill(frame)
                self._submit(frame, decode=False)
            case Decode():
                self.slots.decode(frame)
                self._submit(frame, decode=True)
            case Release():
                self.slots.release(frame)
                self._ring.send(frame)

    def _submit(self, frame: Prefill | Decode, *, decode: bool) -> None:
        def done(outcome: Outcome[tuple[Frame, float]]) -> None:
            with self._ring.guard():
                out, took_us = outcome.result()
                self._ring.send(out)
                if isinstance(frame, Decode):
                    self._loop.call_soon(self._note, frame, took_us)  # once the frame has left

        try:
            self._compute.submit(timed(lambda: self._computed(frame)), done, decode=decode)
        except OverflowError as error:
            raise FrameError(str(error)) from None

    def _note(self, step: Decode, took_us: float) -> None:
        with self._ring.guard():
            self.rate.add(len(step.rows), time.monotonic())
            self.on_step(len(step.rows), sum(step.positions), took_us)

    def _computed(self, frame: Prefill | Decode) -> Frame:
        """On the compute thread: the frame with this stage's output in it."""
        if isinstance(frame, Prefill):
            out = prefilled(self._stage, frame)
            return at_last(out) if self._ring.last else out
        positions, x = spread(frame.rows, frame.positions, frame.x)
        y = checked(self._stage, self._stage.decode(frame.group, positions, x), len(x))
        return Decode(frame.group, frame.step, frame.rows, frame.positions, y[list(frame.rows)])


def spread(rows: tuple[int, ...], positions: tuple[int, ...], x: Array) -> tuple[Array, Array]:
    """Present rows at their index among rows 0..max; absent ones have position -1."""
    chosen = list(rows)
    all_positions = np.full(rows[-1] + 1, -1, np.int32)
    all_positions[chosen] = positions
    all_x = np.zeros((rows[-1] + 1, x.shape[1]), x.dtype)
    all_x[chosen] = x
    return all_positions, all_x
