"""A contiguous range of a model's blocks, loaded and compiled: the part one member computes.

Knows one group of rows at a time and the positions it is told; not requests, rings or networks.
Calls block until the result is there and are made from one thread.
"""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from itertools import islice
from typing import Any

import jax
import numpy as np
import numpy.typing as npt

from stages.attention import empty_slot
from stages.checkpoint import Checkpoint
from stages.config import Kept, Qwen3Config
from stages.executables import Executables, Spans
from stages.functions import Functions
from stages.kernels import MOST_ROWS
from stages.mesh import Split
from stages.sampling import Sampling
from stages.weights import Loader

PREFILL_CHUNK = 256
"""Tokens of one prefill call at most: the products are then bound by arithmetic, and a decode step
that waits behind one chunk waits a few steps' time, not a whole prompt's."""

PREFILL_BUCKETS = (32, PREFILL_CHUNK)
"""Chunks are padded to one of these; short prompts and last chunks are common."""

LEAST_DEPTH = 512
"""Where a call cannot read just the valid part of the cache, none is compiled to read less."""

Array = npt.NDArray[Any]
Progress = Callable[[str, int, int], None]


def decode_buckets(rows: int) -> list[int]:
    """Numbers of rows that a step is compiled for: powers of two, and all rows.

    On CPU a step of more than the kernels' MOST_ROWS is made in pieces: more rows at once save
    nothing there, and the bits stay the same.
    """
    if jax.default_backend() == "cpu":
        rows = min(rows, MOST_ROWS)
    return [*(b for b in (1 << i for i in range(rows.bit_length())) if b < rows), rows]


def prefill_buckets(context: int) -> list[int]:
    """Lengths that a chunk is compiled for; none is longer than the context."""
    return sorted({min(n, context) for n in PREFILL_BUCKETS})


def depth_buckets(context: int) -> list[int]:
    """Numbers of cached positions that a call is compiled for: it takes the next one up.

    On CPU attention reads the valid ones only, whatever the context. Elsewhere it reads the whole
    context or a quarter: a short conversation shall not pay for the long one that may come, yet
    each number is a stage to compile.
    """
    if jax.default_backend() == "cpu" or context < 4 * LEAST_DEPTH:
        return [context]
    return [-(-context // 4), context]


class Stage:
    """Blocks `blocks` of a checkpoint, with KV slots for `groups` times `rows` sequences.

    Every hidden state has `wire_dtype`. On CPU a row's result is bitwise the same in any row,
    beside any other rows and under any division of the blocks among like devices, and tests hold
    it to that. Elsewhere a row's result is the same but for the rounding of sums: the library's
    products may sum by the number of rows (see `stages.linear`), and so does attention by how much
    of the cache the longest row of a step makes it read. Several devices (`stages.mesh`) take sums
    in parts, which rounds them in another way, too.
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
        """Leaves are in the order of `Functions.block.names` and `Functions.head.names`, placed as
        `Split` has it; until the first call empty lists will do.

        Allocates the caches and compiles every executable.
        """
        self.hidden, self.vocab = config.hidden, config.vocab
        self.wire_dtype = np.dtype(config.dtype)
        self.context, self.groups, self.rows = context, groups, rows
        self.blocks = len(blocks)
        self._split = Split.of(config)
        self.devices = self._split.words
        self._empty_slot = partial(empty_slot, config, context, self._split.slot)
        self._place(blocks, head)
        self._spans = Spans.of(config, self.blocks)
        self._steps, self._chunks = decode_buckets(rows), prefill_buckets(context)
        self._depths = depth_buckets(context)
        self._decode: dict[tuple[int, int], Any] = {}
        self._prefill: dict[tuple[int, int], Any] = {}
        self._sample: dict[int, Any] = {}
        self._enter: dict[int, Any] = {}
        self._copy: Any = None
        self._piece = min(PREFILL_CHUNK, context)
        functions = Functions(config, head=head is not None)
        self._logits: Any = jax.jit(functions.logits)  # compiles when first called
        jobs = list(self._jobs(config))
        with ThreadPoolExecutor(1) as beside:  # to have the memory takes as long as some code
            slots = beside.submit(self._empty_slots)
            for done, job in enumerate(jobs):
                if on_progress:
                    on_progress("compiling", done, len(jobs))
                job()
            self._slots = slots.result()
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
        kept: Kept | None = None,
        on_progress: Progress | None = None,
    ) -> "Stage":
        """Load the tensors of these blocks (and the head's), allocate their caches, compile.

        `kept` says how block matrices sit in memory, where not in the model's dtype.
        on_progress is told ("loading", bytes, bytes in all) and ("compiling", k, n), from two
        threads: reading goes on while code is compiled.
        """
        config = replace(checkpoint.config, kept=kept)
        functions = Functions(config, head=head)
        own = [checkpoint.block_tensors(i) for i in blocks]
        top = checkpoint.head_tensors() if head else {}
        total = sum(
            tensor.nbytes
            for weights in [*own, top]
            for parts in weights.values()
            for tensor in parts.values()
        )
        done = 0

        def count(size: int) -> None:
            nonlocal done
            done += size
            if on_progress:
                on_progress("loading", done, total)

        loader = Loader(Split.of(config), count)
        names, head_names = functions.block.names, functions.head.names if functions.head else []

        def load() -> tuple[list[list[jax.Array]], list[jax.Array] | None]:
            leaves = [loader.load_all(names, weights, config) for weights in own]
            return leaves, loader.load_all(head_names, top, config) if head else None

        with ThreadPoolExecutor(1) as reader:
            loading = reader.submit(load)

            def tell(what: str, done: int, total: int) -> None:
                if loading.done():
                    loading.result()  # raises at once what went wrong
                if on_progress:
                    on_progress(what, done, total)

            stage = cls(
                config,
                [[]] * len(blocks),
                [] if head else None,
                context=context,
                groups=groups,
                rows=rows,
                on_progress=tell,
            )
            stage._place(*loading.result())
        return stage

    def prefill(self, group: int, row: int, start: int, x: Array) -> Array:
        """Successive tokens of one row: x [n, hidden] in wire dtype, or on the head tokens [n].

        n is at most `chunk`. Keys and values go to positions start to start + n - 1, attention
        sees all positions before. Returns [n, hidden].
        """
        n = len(x)
        if not 0 < n <= self.chunk or not 0 <= start <= self.context - n:
            raise ValueError(f"{n} tokens from position {start} in a context of {self.context}")
        bucket = next(b for b in self._chunks if n <= b)
        y: Any = _padded(x, bucket)
        if y.ndim == 1:
            y = self._enter[bucket](self._head, y.astype(np.int32))
        run = self._prefill[bucket, self._depth(start)]
        y = self._advance(run, self._spans.prefill, y, np.int32(start), group, [row])
        return np.asarray(y)[:n]

    def decode(self, group: int, positions: Array, x: Array) -> Array:
        """One token of each present row of a group.

        positions int32 [b] with -1 for an absent row, x [b, hidden], index i is row i of the group;
        b is at most `rows`. Returns [b, hidden]; absent rows hold nothing of meaning.
        """
        y = np.zeros((len(x), self.hidden), self.wire_dtype)
        for present, rows, at in self._pieces(positions):
            taken = _taken(x, present, len(rows))
            found = self._step(taken, at, group, rows)
            y[present] = np.asarray(found)[: present.size]
        return y

    def step(
        self, group: int, positions: Array, x: Array, sampling: Sampling
    ) -> tuple[Array, Array]:
        """On the head: draw the token for each position from the last block's x [b, hidden] of the
        position before, and take it through the own blocks. Returns (int32 [b], [b, hidden]).
        """
        tokens = np.zeros(len(x), np.int32)
        y = np.zeros((len(x), self.hidden), self.wire_dtype)
        for present, rows, at in self._pieces(positions):
            drawn, entered = self._sample[len(rows)](
                self._head,
                _taken(x, present, len(rows)),
                at,
                Sampling(*(_taken(np.asarray(a), present, len(rows)) for a in sampling)),
            )
            found = self._step(entered, at, group, rows)
            tokens[present] = np.asarray(drawn)[: present.size]
            y[present] = np.asarray(found)[: present.size]
        return tokens, y

    def copy(self, source: tuple[int, int], target: tuple[int, int], length: int) -> None:
        """Positions 0 to length - 1 of a slot (group, row) into another, and some after them.

        Piece by piece and in place: it takes as long as `length`, and no memory.
        """
        if source == target:
            return
        (group, row), (other_group, other_row) = source, target
        for block, other in zip(self._slots[group], self._slots[other_group], strict=True):
            for start in range(0, length, self._piece):
                other[other_row] = self._copy(other[other_row], block[row], np.int32(start))

    def logits(self, x: Array) -> Array:
        """On the head: float32 [b, vocab] of the last block's x [b, hidden]."""
        return np.asarray(self._logits(self._head, x))

    def _pieces(self, positions: Array) -> Iterator[tuple[Array, list[int], Array]]:
        """Which rows are present, so many at a time as one call takes; the rows of a step's bucket,
        those first; and the position of each: -1 where another row fills the bucket. What a step
        costs goes by the number of present rows."""
        if len(positions) > self.rows or positions.max(initial=-1) >= self.context:
            raise ValueError(
                f"positions {positions.tolist()} with {self.rows} rows and context {self.context}"
            )
        every, most = np.flatnonzero(positions >= 0), self._steps[-1]
        for start in range(0, every.size, most):
            present = every[start : start + most]
            bucket = next(b for b in self._steps if present.size <= b)
            rows = present.tolist()
            others = (row for row in range(self.rows) if row not in rows)
            at = np.full(bucket, -1, np.int32)
            at[: present.size] = positions[present]
            yield present, [*rows, *islice(others, bucket - present.size)], at

    def _step(self, x: Any, at: Array, group: int, rows: Sequence[int]) -> jax.Array:
        """One token of each of these rows of a group, at positions `at`."""
        run = self._decode[at.size, self._depth(at.max())]
        return self._advance(run, self._spans.decode, x, at, group, rows)

    def _depth(self, position: int) -> int:
        return next(depth for depth in self._depths if position <= depth)

    def _advance(
        self, run: Any, span: int, x: Any, at: Any, group: int, rows: Sequence[int]
    ) -> jax.Array:
        """Take x through the blocks, `span` at a time, with the slots of these rows of a group."""
        slots = self._slots[group]
        for i in range(0, self.blocks, span):
            some = slots[i : i + span]
            given = [[block[row] for row in rows] for block in some]
            x, written = run(self._leaves[i : i + span], x, at, given)
            for block, new in zip(some, written, strict=True):
                for row, slot in zip(rows, new, strict=True):
                    block[row] = slot
        y: jax.Array = x
        return y

    def _place(
        self, blocks: Sequence[Sequence[jax.Array]], head: Sequence[jax.Array] | None
    ) -> None:
        """Compute with these leaves from now on."""
        self._leaves, self._head = blocks, head

    def _empty_slots(self) -> list[list[list[Any]]]:
        """Caches by group, block and row."""
        return [
            [[self._empty_slot() for _ in range(self.rows)] for _ in range(self.blocks)]
            for _ in range(self.groups)
        ]

    def _jobs(self, config: Qwen3Config) -> Iterator[Callable[[], None]]:
        """Each compiles one executable."""
        code = Executables(
            config,
            self._split,
            spans=self._spans,
            head=self._head is not None,
            context=self.context,
        )

        def copy() -> None:
            self._copy = code.copy(self._piece)

        def keep(made: dict[Any, Any], size: Any, make: Callable[[], Any]) -> None:
            made[size] = make()

        yield copy
        for rows in self._steps:
            for depth in self._depths:
                made = partial(code.decode, rows, depth)
                yield partial(keep, self._decode, (rows, depth), made)
            if self._head is not None:
                yield partial(keep, self._sample, rows, partial(code.sample, rows))
        for tokens in self._chunks:
            for depth in self._depths:
                made = partial(code.prefill, tokens, depth)
                yield partial(keep, self._prefill, (tokens, depth), made)
            if self._head is not None:
                yield partial(keep, self._enter, tokens, partial(code.enter, tokens))


def _padded(x: Array, n: int) -> Array:
    """The first n rows of x, with zeros where there are fewer."""
    if len(x) == n:
        return x
    y = np.zeros((n, *x.shape[1:]), x.dtype)
    y[: min(n, len(x))] = x[:n]
    return y


def _taken(x: Array, present: Array, n: int) -> Array:
    """The present rows of x, and zeros up to n."""
    y = np.zeros((n, *x.shape[1:]), x.dtype)
    y[: present.size] = x[present]
    return y
