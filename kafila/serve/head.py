"""The head: carries out the scheduler's actions with its stage, the ring and the clients."""

import asyncio
import itertools
import time
from collections.abc import Sequence
from typing import Protocol

import numpy as np

from kafila.defaults import WAITING_REQUESTS
from kafila.errors import KafilaError
from kafila.serve.actions import Action, Chunk, End, Forward, Free, Step, Token
from kafila.serve.compute import Compute, Outcome, timed
from kafila.serve.frames import Array, Decode, Frame, FrameError, Prefill, Release
from kafila.serve.generation import Generation, Params
from kafila.serve.member import Blocks, OnStep, at_last, checked, prefilled, unheard
from kafila.serve.rates import Rate
from kafila.serve.ring import Ring
from kafila.serve.scheduler import QueueFull, Scheduler
from stages.sampling import Sampling


class HeadBlocks(Blocks, Protocol):
    """What the head needs of its stage beside a member's."""

    vocab: int

    def step(
        self, group: int, positions: Array, x: Array, sampling: Sampling
    ) -> tuple[Array, Array]: ...


class Head:
    """Takes requests and serves them; register it as the ring's `on_frame`."""

    def __init__(self, ring: Ring, stage: HeadBlocks, compute: Compute) -> None:
        self.context = stage.context
        self.vocab = stage.vocab
        self.decoded = Rate()
        self.prefilled = Rate()
        self.on_step: OnStep = unheard
        self._loop = asyncio.get_running_loop()
        self._ring = ring
        self._stage = stage
        self._compute = compute
        self.schedule = Scheduler(
            groups=stage.groups,
            rows=stage.rows,
            members=len(ring.names),
            chunk=stage.chunk,
            queue=WAITING_REQUESTS,
        )
        self._ids = itertools.count(1)
        self._prompts: dict[int, Array] = {}
        self._params: dict[int, Params] = {}
        self._generations: dict[int, Generation] = {}
        self._sampling: dict[int, tuple[tuple[tuple[int, int], ...], Sampling]] = {}
        # what came back from the ring, waiting for the group's next step
        self._x = np.zeros((stage.groups, stage.rows, stage.hidden), stage.wire_dtype)
        self._y: Array = self._x[0, :0]  # the last step's output, until it is forwarded
        ring.on_frame = self.frame
        ring.failed.add_done_callback(lambda failed: self._end_all(failed.result()))

    # --- for clients -------------------------------------------------------------------------

    def submit(
        self, prompt: Sequence[int], params: Params, limit: int, eos: frozenset[int]
    ) -> Generation:
        """Take a request for at most `limit` tokens after `prompt` (1 to context - 1 ids < vocab).

        Raises QueueFull when too many wait, and the ring's account when it has failed.
        """
        if self._ring.failed.done():
            raise self._ring.account(self._ring.failed.result())
        assert 1 <= len(prompt) < self.context
        request = next(self._ids) % 2**32
        limit = min(limit, self.context - len(prompt))
        tokens = np.asarray(prompt, np.int32)
        self._prompts[request] = tokens
        self._params[request] = params
        self._generations[request] = Generation(self, request, len(prompt))
        try:
            chunks = whole_chunks(tokens, self._stage.chunk)
            actions = self.schedule.submit(request, len(prompt), limit, eos, chunks)
        except QueueFull:
            self._forget(request)
            raise
        generation = self._generations[request]
        self._do(actions)
        return generation

    def cancel(self, request: int) -> None:
        """The client gave up."""
        self._do(self.schedule.cancel(request))

    def pause(self, request: int) -> None:
        """The client does not read."""
        self._do(self.schedule.pause(request))

    def resume(self, request: int) -> None:
        """The client reads again."""
        self._do(self.schedule.resume(request))

    # --- from the ring -----------------------------------------------------------------------

    def frame(self, frame: Frame) -> None:
        """Take a frame that has been round; FrameError when none such was under way."""
        match frame:
            case Prefill():
                stop = frame.start + frame.count
                slot = (frame.group, frame.row)
                actions = self.schedule.chunk_returned(frame.request, slot, stop)
                if frame.last:
                    self._x[frame.group, frame.row] = frame.x[0]
            case Decode():
                actions = self.schedule.step_returned(frame.group, frame.step, frame.rows)
                self._x[frame.group, list(frame.rows)] = frame.x
            case Release():
                actions = self.schedule.released((frame.group, frame.row))
            case _:
                raise FrameError(f"a {type(frame).__name__} at the head")
        self._do(actions)

    # --- actions -----------------------------------------------------------------------------

    def _do(self, actions: Sequence[Action]) -> None:
        with self._ring.guard():
            for action in actions:
                self._act(action)

    def _act(self, action: Action) -> None:
        match action:
            case Chunk():
                self._prefill(action)
            case Step():
                self._step(action)
            case Forward():
                rows, positions = zip(*action.rows, strict=True)
                x = self._y[list(rows)]
                self._ring.send(Decode(action.group, action.step, rows, positions, x))
            case Token():
                self.decoded.add(1, time.monotonic())
                if generation := self._generations.get(action.request):
                    generation.put(action.token)
            case End():
                if generation := self._forget(action.request):
                    generation.end(action.reason)
            case Free():
                self._ring.send(Release(*action.slot))

    def _prefill(self, chunk: Chunk) -> None:
        request, start = chunk.request, chunk.start
        tokens = self._prompts[request][start : chunk.stop]
        self._generations[request].begin(start)
        frame = Prefill(
            request, *chunk.slot, start, len(tokens), chunk.last, chunk.source, x=tokens
        )

        def done(outcome: Outcome[Prefill]) -> None:
            with self._ring.guard():
                out = outcome.result()
                self.prefilled.add(len(tokens), time.monotonic())
                self._ring.send(at_last(out) if self._ring.alone else out)
                self._do(self.schedule.computed())

        self._compute.submit(lambda: prefilled(self._stage, frame), done)

    def _step(self, step: Step) -> None:
        count = step.rows[-1][0] + 1
        positions = np.full(count, -1, np.int32)
        for row, _, position in step.rows:
            positions[row] = position
        sampling = self._drawn(step, count)
        x = self._x[step.group, :count].copy()  # the loop goes on writing other rows

        def done(outcome: Outcome[tuple[tuple[Array, Array], float]]) -> None:
            with self._ring.guard():
                (tokens, y), took_us = outcome.result()
                self._y = checked(self._stage, y, count)
                chosen = [int(tokens[row]) for row, _, _ in step.rows]
                self._do(self.schedule.computed(chosen))
                if not sampling.temperature.any():  # drawing takes time that no plan knows
                    self._loop.call_soon(self._note, step, took_us)  # once the frame has left

        self._compute.submit(
            timed(lambda: self._stage.step(step.group, positions, x, sampling)), done, decode=True
        )

    def _note(self, step: Step, took_us: float) -> None:
        with self._ring.guard():
            cached = sum(position for _, _, position in step.rows)
            self.on_step(len(step.rows), cached, took_us)

    def _drawn(self, step: Step, count: int) -> Sampling:
        """How the rows of a step are drawn; made anew when other requests than before take it."""
        who = tuple((row, request) for row, request, _ in step.rows)
        before, sampling = self._sampling.get(step.group, ((), None))
        if sampling is not None and who == before:
            return sampling
        sampling = Sampling.greedy(count)
        for row, request in who:
            params = self._params.get(request)
            if params is None:
                continue  # it was cancelled; its token will not be used
            sampling.temperature[row] = params.temperature
            sampling.top_k[row] = params.top_k
            sampling.top_p[row] = params.top_p
            sampling.min_p[row] = params.min_p
            sampling.seed[row] = params.seed
        self._sampling[step.group] = who, sampling
        return sampling

    def _forget(self, request: int) -> Generation | None:
        self._prompts.pop(request, None)
        self._params.pop(request, None)
        return self._generations.pop(request, None)

    def _end_all(self, error: KafilaError) -> None:
        account = self._ring.account(error)
        for request, generation in list(self._generations.items()):
            self._forget(request)
            generation.fail(account)


def whole_chunks(tokens: Array, chunk: int) -> list[bytes]:
    """What the scheduler compares: the tokens of each whole chunk of a prompt, as bytes."""
    return [tokens[end - chunk : end].tobytes() for end in range(chunk, len(tokens) + 1, chunk)]
