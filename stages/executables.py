"""Compiles the functions of a stage for given numbers of rows and tokens, ahead of time.

Which of them a stage has, and when they run, is the stage's business.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import numpy as np
from jax import lax

from stages.attention import Slot, empty_slot
from stages.compile import abstract, abstracts, compiled
from stages.config import Qwen3Config
from stages.formats import Shape
from stages.functions import Functions, kernel
from stages.mesh import Split
from stages.sampling import Sampling


class Spans(NamedTuple):
    """How many blocks one call takes through a stage."""

    decode: int
    prefill: int

    @classmethod
    def of(cls, config: Qwen3Config, blocks: int) -> "Spans":
        """On CPU one executable serves every block, so compiling takes as long for one as for many;
        but where a kernel is a block it is nothing to compile, and each call costs as much as a
        small product. Elsewhere the whole stage is one, for each call costs a launch."""
        if jax.default_backend() != "cpu":
            return cls(blocks, blocks)
        return cls(blocks if kernel(config) else 1, 1)


class Executables:
    """Of as many blocks as one call takes, of the head if there is one, and of their caches.

    Hidden states, tokens and positions are whole on every device, so numpy may give and read them.
    """

    def __init__(
        self, config: Qwen3Config, split: Split, *, spans: Spans, head: bool, context: int
    ):
        self._config, self._split = config, split
        self._functions = Functions(config, head=head)
        self._block = self._leaves(self._functions.block.names, config.block_leaves())
        self._spans = spans
        self._head: list[Any] = []
        if self._functions.head:
            self._head = self._leaves(self._functions.head.names, config.head_leaves())
        slot = jax.eval_shape(partial(empty_slot, config, context))
        self._slot: Slot = abstracts(slot, split.slot)

    def decode(self, rows: int, depth: int) -> Any:
        """Of rows with at most `depth` positions in the cache."""
        slots = [[self._slot] * rows] * self._spans.decode
        given = self._hiddens(rows), self._ints(rows), slots
        return self._advancing(partial(self._functions.decode, depth=depth), *given)

    def prefill(self, tokens: int, depth: int) -> Any:
        """Of a row with at most `depth` positions in the cache."""
        given = self._hiddens(tokens), self._ints(), [[self._slot]] * self._spans.prefill
        return self._advancing(partial(self._functions.prefill, depth=depth), *given)

    def sample(self, rows: int) -> Any:
        greedy = abstracts(Sampling.greedy(rows), self._split.whole)
        given = self._head, self._hiddens(rows), self._ints(rows), greedy
        return compiled(self._functions.sample, *given, out=self._split.whole)

    def enter(self, tokens: int) -> Any:
        given = self._head, self._ints(tokens)
        return compiled(self._functions.enter, *given, out=self._split.whole)

    def copy(self, positions: int) -> Any:
        """Of so many positions from one slot to another, which is given first and consumed."""

        def piece(start: jax.Array, target: jax.Array, source: jax.Array) -> jax.Array:
            some = lax.dynamic_slice_in_dim(source, start, positions, axis=1)
            return lax.dynamic_update_slice_in_dim(target, some, start, axis=1)

        def pieces(target: Slot, source: Slot, start: jax.Array) -> Slot:
            copied: Slot = jax.tree.map(partial(piece, start), target, source)
            return copied

        given = self._slot, self._slot, self._ints()
        return compiled(pieces, *given, donate=0, out=self._split.slot)

    def _advancing(self, function: Any, x: Any, at: Any, slots: Any) -> Any:
        out = self._split.whole, self._split.slot
        return compiled(function, [self._block] * len(slots), x, at, slots, donate=3, out=out)

    def _leaves(
        self, names: Sequence[str], leaves: Mapping[str, tuple[Shape, str]]
    ) -> list[jax.ShapeDtypeStruct]:
        return [abstract(*leaves[name], self._split.leaf(name, leaves[name][0])) for name in names]

    def _ints(self, *dims: int) -> jax.ShapeDtypeStruct:
        return abstract(dims, np.int32, self._split.whole)

    def _hiddens(self, n: int) -> jax.ShapeDtypeStruct:
        return abstract((n, self._config.hidden), self._config.dtype, self._split.whole)
