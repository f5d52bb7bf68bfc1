"""Decoding on a CPU in C++: products of few rows, attention over the valid cache only, a whole
transformer block of both, and the likeliest tokens.

XLA calls them within its executables. They are there where a compiler is (see `build`) and their
results are right; elsewhere everything runs in pure JAX, which is slower.
"""

import ctypes
import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import jax
import numpy as np

from stages.compile import abstract
from stages.kernels import build, check

log = logging.getLogger(__name__)

SETS = ("avx512-bf16", "avx512", "avx2", "plain")
"""Instruction sets as `kernels.cc` numbers them, the best first."""

MOST_ROWS = 16
"""bfloat16 products of more rows are bound by arithmetic, and XLA's own are as fast."""


Matrix = jax.Array | tuple[jax.Array, jax.Array]
"""Of bfloat16 [out, in]; or of int8, and the scale [out] of its rows."""


@dataclass(frozen=True)
class Kernels:
    """The kernels as one instruction set runs them.

    A row's result is bitwise the same beside any rows, and whatever the number of threads.
    """

    name: str
    library: str
    """Digest of all that made the code: part of what XLA calls it, and so of its cache's keys."""

    def products(self, x: jax.Array, weights: Sequence[Matrix]) -> list[jax.Array]:
        """x [rows, in] by each of the weights, which are all of one kind -> float32 [rows, out].

        By bfloat16 [out, in] x is rounded to bfloat16. By int8 and the scale [out] of its rows,
        float32, x is taken as whole numbers, a row's largest value as 16383: sums of 1024 products
        are exact, and rounded where they are added. A row that is not finite gives NaN. These have
        the same bits on every instruction set.
        """
        outs = [(w[0] if isinstance(w, tuple) else w).shape[0] for w in weights]
        results = [abstract((x.shape[0], out), np.float32) for out in outs]
        call = jax.ffi.ffi_call(f"kafila_products_{self.library}", results)
        return list(call(x.astype(np.float32), *jax.tree.leaves(weights), set=self._set))

    def attention(
        self,
        q: jax.Array,
        k: jax.Array,
        v: jax.Array,
        positions: jax.Array,
        caches: Sequence[jax.Array],
    ) -> tuple[jax.Array, list[jax.Array]]:
        """One new token in each row, float32: q [rows, heads, head_dim], k and v [rows, kv_heads,
        head_dim]. `caches` are keys and values of each row in turn, [kv_heads, context, head_dim]:
        float32, or the bits of bfloat16. They are extended in place where they were donated.

        A row of negative position sees only itself and leaves its cache alone.
        """
        results = [abstract(a.shape, a.dtype) for a in (q, *caches)]
        aliases = {4 + i: 1 + i for i in range(len(caches))}
        call: Any = jax.ffi.ffi_call(
            f"kafila_attention_{self.library}", results, input_output_aliases=aliases
        )
        mixed, *extended = call(q, k, v, positions, *caches, set=self._set)
        return mixed, extended

    def block(
        self,
        weights: Sequence[jax.Array],
        x: jax.Array,
        positions: jax.Array,
        turns: tuple[jax.Array, jax.Array],
        caches: Sequence[jax.Array],
        *,
        heads: int,
        ffn: int,
        eps: float,
    ) -> tuple[jax.Array, list[jax.Array]]:
        """One new token of each row through a transformer block: x [rows, hidden] bfloat16 -> the
        same.

        `weights` are those of `Qwen3Config.block_leaves`, in that order. `turns` are cosines and
        sines of each position, float32 [rows, head_dim / 2]. Positions and caches, of the bits of
        bfloat16, are `attention`'s.
        """
        results = [abstract(a.shape, a.dtype) for a in (x, *caches)]
        first = 4 + len(weights)
        call: Any = jax.ffi.ffi_call(
            f"kafila_block_{self.library}",
            results,
            input_output_aliases={first + i: 1 + i for i in range(len(caches))},
        )
        sizes = {"heads": np.int32(heads), "ffn": np.int32(ffn), "eps": np.float32(eps)}
        y, *extended = call(x, positions, *turns, *weights, *caches, set=self._set, **sizes)
        return y, extended

    def top(self, x: jax.Array, count: int) -> tuple[jax.Array, jax.Array]:
        """The `count` largest of each row of float32 x [rows, n] and their places, int32: the
        largest first, of equals the first. A NaN is none of them."""
        results = [abstract((len(x), count), dtype) for dtype in (np.float32, np.int32)]
        call: Any = jax.ffi.ffi_call(f"kafila_top_{self.library}", results)
        values, places = call(x, set=self._set)
        return values, places

    @property
    def _set(self) -> np.int32:
        return np.int32(SETS.index(self.name))


_jax: Any = jax  # which leaves these untyped
_default: Any = object()
_choice: Any = _jax.make_user_context(default_value=_default)


def chosen() -> Kernels | None:
    """The kernels to trace with; None where everything is to be pure JAX. That includes a CPU that
    plays several devices, among which XLA cannot split a call."""
    if jax.default_backend() != "cpu" or jax.device_count() > 1:
        return None
    return best() if _choice.value is _default else _choice.value


@contextmanager
def using(kernels: Kernels | None) -> Iterator[None]:
    """Trace with these, or with none, instead of the best."""
    with _choice(kernels):
        yield


@cache
def best() -> Kernels | None:
    """The fastest kernels of this CPU whose results are right, built when there are none yet."""
    for kernels in available():
        wrong = check.faults(kernels)
        if not wrong:
            return kernels
        log.warning("kernels %s are not used: %s", kernels.name, wrong)
    return None


@cache
def available(folder: Path = build.FOLDER) -> tuple[Kernels, ...]:
    """All that this CPU can run, the best first, unchecked; none without a compiler."""
    file = build.library(Path(jax.ffi.include_dir()), folder)
    if file is None:
        return ()
    try:
        library = ctypes.CDLL(str(file))
    except OSError as error:
        log.info("no kernels: %s", error)
        return ()
    name = file.stem
    for function in ("products", "attention", "block", "top"):
        handler = getattr(library, f"kafila_{function}")
        jax.ffi.register_ffi_target(
            f"kafila_{function}_{name}", _jax.ffi.pycapsule(handler), platform="cpu"
        )
    library.kafila_supported.restype = ctypes.c_uint32
    supported = library.kafila_supported()
    return tuple(Kernels(kind, name) for i, kind in enumerate(SETS) if supported >> i & 1)
