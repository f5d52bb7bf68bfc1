"""A contiguous range of a model's blocks, loaded and compiled: the part one member computes.

Knows one group of rows at a time and the positions it is told; not requests, rings or networks.
Calls block until the result is there and are made from one thread.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import jax
import numpy as np
import numpy.typing as npt

from stages.attention import empty_slot
from stages.checkpoint import Checkpoint
from stages.compile import abstract, abstracts, compiled
from stages.config import Qwen3Config
from stages.functions import Functions
from stages.sampling import Sampling
from stages.weights import Loader

PREFILL_CHUNK = 256
"""Tokens of one prefill call at most: the products are then bound by arithmetic, and a decode step
that waits behind one chunk waits a few steps' time, not a whole prompt's."""

PREFILL_BUCKETS = (32, PREFILL_CHUNK)
"""Chunks are padded to one of these; short prompts and last chunks are common."""

Array = npt.NDArray[Any]
Progress = Callable[[str, int, int], None]


def decode_buckets(rows: int) -> list[int]:
    """Numbers of rows that a step is compiled for: powers of two, and all rows."""
    return [*(b for b in (1 << i for i in range(rows.bit_length())) if b < rows), rows]


def prefill_buckets(context: int) -> list[int]:
    """Lengths that a chunk is compiled for; none is longer than the context."""
    return sorted({min(n, context) for n in PREFILL_BUCKETS})


class Stage:
    """Blocks `blocks` of a checkpoint, with KV slots for `groups` times `rows` sequences.

    Every hidden state has `wire_dtype`. On CPU a row's result is bitwise the same in any row,
    beside any other rows and under any division of the blocks among like devices, and tests hold
    it to that. Elsewhere the same is meant, but is at the mercy of the library's products (see
    `stages.linear`), and no test has shown it.
    """

    chunk = PREFILL_CHUNK

    def __init__(
        self,
        config: Qwen3Config,
        blocks: Sequence[Sequence[jax.Array]],
        head: Sequence[jax.Array] | None,
        *,
        context: int,
        groups: int,
        rows: int,
        on_progress: Progress | None = None,
    ):
        """Leaves are in the order of `Functions.block.names` and `Functions.head.names`.

        Allocates the caches and compiles every executable.
        """
        self.hidden, self.vocab = config.hidden, config.vocab
        self.wire_dtype = np.dtype(config.dtype)
        self.context, self.groups, self.rows = context, groups, rows
        self.blocks = len(blocks)
        self._functions = Functions(config, head=head is not None)
        self._head = head
        # On CPU one executable serves every block, so compiling takes as long for one as for many.
        # Elsewhere the whole stage is one, for each call costs a launch.
        span = 1 if jax.default_backend() == "cpu" else len(blocks)
        self._spans = [blocks[i : i + span] for i in range(0, len(blocks), span)]
        # Caches by group, span, block and row.
        self._slots = [
            [
                [[empty_slot(config, context) for _ in range(rows)] for _ in leaves]
                for leaves in self._spans
            ]
            for _ in range(groups)
        ]
        self._decode: dict[int, Any] = {}
        self._prefill: dict[int, Any] = {}
        self._sample: dict[int, Any] = {}
        self._enter: dict[int, Any] = {}
        self._logits: Any = jax.jit(self._functions.logits)  # compiles when first called
        jobs = list(self._jobs())
        for done, job in enumerate(jobs):
            if on_progress:
                on_progress("compiling", done, len(jobs))
            job()
        if on_progress:
            on_progress("compiling", len(jobs), len(jobs))

    @classmethod
    def open(
        cls,
        checkpoint: Checkpoint,
        blocks: range,
        *,
        head: bool,
        context: int,
        groups: int,
        rows: int,
        on_progress: Progress | None = None,
    ) -> "Stage":
        """Load the tensors of these blocks (and the head's), allocate their caches, compile.

        on_progress is told ("loading", bytes, bytes in all) and ("compiling", k, n).
        """
        config = checkpoint.config
        functions = Functions(config, head=head)
        own = [checkpoint.block_tensors(i) for i in blocks]
        top = checkpoint.head_tensors() if head else {}
        total = sum(t.stop - t.start for tensors in [*own, top] for t in tensors.values())
        done = 0

        def count(size: int) -> None:
            nonlocal done
            done += size
            if on_progress:
                on_progress("loading", done, total)

        loader = Loader(jax.devices()[0], count)
        names = functions.block.names
        return cls(
            config,
            [loader.load_all(names, tensors) for tensors in own],
            loader.load_all(functions.head.names, top) if functions.head else None,
            context=context,
            groups=groups,
            rows=rows,
            on_progress=on_progress,
        )

    def prefill(self, group: int, row: int, start: int, x: Array) -> Array:
        """Successive tokens of one row: x [n, hidden] in wire dtype, or on the head tokens [n].

        n is at most `chunk`. Keys and values go to positions start to start + n - 1, attention
        sees all positions before. Returns [n, hidden].
        """
        n = len(x)
        if not 0 < n <= self.chunk or not 0 <= start <= self.context - n:
            raise ValueError(f"{n} tokens from position {start} in a context of {self.context}")
        bucket = next(b for b in self._prefill if n <= b)
        y: Any = _padded(x, bucket)
        if y.ndim == 1:
            y = self._enter[bucket](self._head, y.astype(np.int32))
        y = self._advance(self._prefill[bucket], y, np.int32(start), group, slice(row, row + 1))
        return np.asarray(y)[:n]

    def decode(self, group: int, positions: Array, x: Array) -> Array:
        """One token of each present row of a group.

        positions int32 [b] with -1 for an absent row, x [b, hidden], index i is row i of the group;
        b is at most `rows`. Returns [b, hidden]; absent rows hold nothing of meaning.
        """
        at = self._bucketed(positions)
        bucket = len(at)
        y = self._advance(self._decode[bucket], _padded(x, bucket), at, group, slice(bucket))
        return _padded(np.asarray(y), len(x))

    def step(
        self, group: int, positions: Array, x: Array, sampling: Sampling
    ) -> tuple[Array, Array]:
        """On the head: draw the token for each position from the last block's x [b, hidden] of the
        position before, and take it through the own blocks. Returns (int32 [b], [b, hidden]).
        """
        at = self._bucketed(positions)
        bucket = len(at)
        tokens, y = self._sample[bucket](
            self._head,
            _padded(x, bucket),
            at,
            Sampling(*(_padded(np.asarray(a), bucket) for a in sampling)),
        )
        y = self._advance(self._decode[bucket], y, at, group, slice(bucket))
        return _padded(np.asarray(tokens), len(x)), _padded(np.asarray(y), len(x))

    def logits(self, x: Array) -> Array:
        """On the head: float32 [b, vocab] of the last block's x [b, hidden]."""
        return np.asarray(self._logits(self._head, x))

    def _bucketed(self, positions: Array) -> Array:
        """The positions as far as the bucket of the last present row, -1 where a row is absent."""
        present = np.flatnonzero(positions >= 0)
        if len(positions) > self.rows or positions.max(initial=-1) >= self.context:
            raise ValueError(
                f"positions {positions.tolist()} with {self.rows} rows and context {self.context}"
            )
        last = int(present[-1]) + 1 if present.size else 1
        at = np.full(next(b for b in self._decode if last <= b), -1, np.int32)
        at[present] = positions[present]
        return at

    def _advance(self, run: Any, x: Any, at: Any, group: int, rows: slice) -> jax.Array:
        """Take x through the blocks, with the slots of these rows of a group."""
        for leaves, slots in zip(self._spans, self._slots[group], strict=True):
            x, written = run(leaves, x, at, [block[rows] for block in slots])
            for block, new in zip(slots, written, strict=True):
                block[rows] = new
        y: jax.Array = x
        return y

    def _jobs(self) -> Iterator[Callable[[], None]]:
        """Each compiles one executable."""
        functions = self._functions
        leaves, slot = abstracts(self._spans[0]), abstracts(self._slots[0][0][0][0])

        def ints(*dims: int) -> jax.ShapeDtypeStruct:
            return abstract(dims, np.int32)

        def hiddens(n: int) -> jax.ShapeDtypeStruct:
            return abstract((n, self.hidden), self.wire_dtype)

        def slots(rows: int) -> Any:
            return [[slot] * rows for _ in leaves]

        def decode(b: int) -> None:
            shapes = leaves, hiddens(b), ints(b), slots(b)
            self._decode[b] = compiled(functions.decode, *shapes, donate=3)

        def prefill(n: int) -> None:
            shapes = leaves, hiddens(n), ints(), slots(1)
            self._prefill[n] = compiled(functions.prefill, *shapes, donate=3)

        def sampled(b: int) -> None:
            shapes = hiddens(b), ints(b), abstracts(Sampling.greedy(b))
            self._sample[b] = compiled(functions.sample, abstracts(self._head), *shapes)

        def enter(n: int) -> None:
            self._enter[n] = compiled(functions.enter, abstracts(self._head), ints(n))

        head = self._head is not None
        for b in decode_buckets(self.rows):
            yield from (partial(f, b) for f in ((decode, sampled) if head else (decode,)))
        for n in prefill_buckets(self.context):
            yield from (partial(f, n) for f in ((prefill, enter) if head else (prefill,)))


def _padded(x: Array, n: int) -> Array:
    """The first n rows of x, with zeros where there are fewer."""
    if len(x) == n:
        return x
    y = np.zeros((n, *x.shape[1:]), x.dtype)
    y[: min(n, len(x))] = x[:n]
    return y
