"""A stage without weights whose tokens still depend on every block, position and cached value.

Exact integer arithmetic in float32, so the same request gives the same tokens for any division of
the blocks and any company, and other tokens when a slot, position or order is mixed up.
"""

import asyncio
from itertools import pairwise
from typing import Any

import numpy as np

from kafila.serve.frames import Array
from stages.sampling import Sampling

PRIME = 4093  # products of two residues stay exact in float32
HIDDEN = 8
VOCAB = 320


class ToyStage:
    """The interface of `stages.stage.Stage`, blocks given as a range."""

    hidden = HIDDEN
    vocab = VOCAB
    wire_dtype: "np.dtype[np.generic]" = np.dtype(np.float32)

    def __init__(
        self, blocks: range, *, groups: int = 2, rows: int = 2, context: int = 64, chunk: int = 4
    ) -> None:
        self.blocks = blocks
        self.groups, self.rows, self.context, self.chunk = groups, rows, context, chunk
        self._kv = np.zeros((len(blocks), groups, rows, context, HIDDEN), np.int64)

    def prefill(self, group: int, row: int, start: int, x: Array) -> Array:
        if x.ndim == 1:
            x = embed(x)
        positions = range(start, start + len(x))
        return np.stack([self._blocks(group, row, p, v) for p, v in zip(positions, x, strict=True)])

    def copy(self, source: tuple[int, int], target: tuple[int, int], length: int) -> None:
        assert source != target
        kept = self._kv[:, *source, :length].copy()
        self._kv[:, *target] = -1  # a stage may leave anything behind what it was asked for
        self._kv[:, *target, :length] = kept

    def decode(self, group: int, positions: Array, x: Array) -> Array:
        assert positions.dtype == np.int32
        assert len(positions) == len(x) <= self.rows
        y = np.zeros_like(x)
        for row, position in enumerate(positions):
            if position >= 0:
                y[row] = self._blocks(group, row, int(position), x[row])
        return y

    def step(
        self, group: int, positions: Array, x: Array, sampling: Sampling
    ) -> tuple[Array, Array]:
        weights = np.arange(1, HIDDEN + 1)
        drawn = x.astype(np.int64) @ weights
        drawn += np.where(sampling.temperature > 0, sampling.seed * (positions + 1), 0)
        tokens = (drawn % VOCAB).astype(np.int32)
        return tokens, self.decode(group, positions, embed(tokens))

    def _blocks(self, group: int, row: int, position: int, x: Array) -> Array:
        value = x.astype(np.int64)
        for index, block in enumerate(self.blocks):
            cache = self._kv[index, group, row]
            cache[position] = (value * (block + 3) + position) % PRIME
            seen = cache[: position + 1].sum(axis=0)
            value = (value + np.roll(seen, 1) * 7 + block) % PRIME
        return value.astype(np.float32)


def embed(tokens: Array) -> Array:
    """[n] token ids to [n, HIDDEN]."""
    spread = (tokens.astype(np.int64)[:, None] + 1) * np.arange(3, 3 + HIDDEN) ** 3
    return (spread % PRIME).astype(np.float32)


def divide(blocks: int, members: int) -> list[range]:
    """Uneven on purpose: the last member takes the rest."""
    bounds = [i * (blocks // members) for i in range(members)] + [blocks]
    return [range(a, b) for a, b in pairwise(bounds)]


class Wire:
    """One end of an in-memory connection: what is sent arrives, in order, a loop turn later."""

    def __init__(self) -> None:
        self.on_message: Any = None
        self.on_closed: Any = None
        self.peer: Wire
        self.sent: list[bytes] = []
        self._open = True

    @property
    def closed(self) -> bool:
        return not self._open

    def send(self, channel: int, message: bytes) -> None:
        if self._open:
            self.sent.append(message)
            asyncio.get_running_loop().call_soon(self.peer.arrive, channel, message)

    def arrive(self, channel: int, message: bytes) -> None:
        if self._open:
            self.on_message(channel, message)

    def cut(self, reason: str) -> None:
        """Both ends lose the connection."""
        for end in (self, self.peer):
            end._open = False
            asyncio.get_running_loop().call_soon(end.on_closed, reason)


def wire() -> tuple[Wire, Wire]:
    """Both ends of a connection."""
    a, b = Wire(), Wire()
    a.peer, b.peer = b, a
    return a, b
