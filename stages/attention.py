"""Attention of one slot's new tokens over its KV cache, which it also extends.

A slot is the cache of one sequence in one block: keys and values, each [kv_heads, context,
head_dim]. Which positions hold something is known by position alone, so nothing is ever cleared.
Knows nothing of weights, rows or blocks.
"""

from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from stages import kernels
from stages.config import Qwen3Config

PIECE = 256
"""Cached positions read at once on CPU: 0.5 MB of keys at Qwen3's shapes, which stays in the cache
of a core. Only pieces below the sequence's position are read."""

FLOAT_MAX = float(np.finfo(np.float32).max)

MASKED = -1e30
"""A masked score: far below any real one, yet finite, so that two of them subtract to zero."""


class Slot(NamedTuple):
    """One sequence's keys and values in one block, each [kv_heads, context, head_dim].

    bfloat16 is kept as its bits: XLA:CPU widens a whole bfloat16 buffer to move a row of it.
    """

    keys: jax.Array
    values: jax.Array


class Partial(NamedTuple):
    """Softmax-weighted values over some of the positions, not yet divided by the weights' sum."""

    top: jax.Array
    """Largest score, [kv_heads, rows, 1]."""
    total: jax.Array
    """Sum of exp(score - top), [kv_heads, rows, 1]."""
    values: jax.Array
    """Sum of exp(score - top) * value, [kv_heads, rows, head_dim]."""


def empty_slot(
    config: Qwen3Config, context: int, sharding: jax.sharding.Sharding | None = None
) -> Slot:
    dims = config.kv_heads, context, config.head_dim
    kept = "uint16" if config.dtype == "bfloat16" else config.dtype
    keys, values = (jnp.zeros(dims, kept, device=sharding) for _ in Slot._fields)
    return Slot(keys, values)


def attend(
    q: jax.Array, k: jax.Array, v: jax.Array, slot: Slot, start: jax.Array, depth: int
) -> tuple[jax.Array, Slot]:
    """New tokens at positions start, start + 1, ... see each other causally and all before them.

    q [n, heads, head_dim], k and v [n, kv_heads, head_dim], float32; start is a scalar, at most
    `depth`.
    Returns float32 [n, heads, head_dim] and the slot with the new keys and values written.
    A negative start is an absent token, n = 1: it reads nothing of the slot and leaves it as it is.
    """
    n, heads, head_dim = q.shape
    kv_heads = k.shape[1]
    share = heads // kv_heads
    new = Slot(_bits(k, slot), _bits(v, slot))
    # One row a query head and token, those of one KV head together.
    q = q.reshape(n, kv_heads, share, head_dim).swapaxes(0, 1).reshape(kv_heads, -1, head_dim)
    rows = max(n * share, 2)  # a single row would take XLA:CPU's slow way, see linear.py
    q = jnp.pad(q, ((0, 0), (0, rows - n * share), (0, 0))).astype(_floats(new.keys).dtype)
    token = jnp.arange(rows)[:, None] // share
    part = _over(q, new, jnp.arange(n) <= token)
    part = _over_cache(q, slot, start, depth, part)
    o = (part.values / part.total)[:, : n * share]
    o = o.reshape(kv_heads, n, share, head_dim).swapaxes(0, 1).reshape(n, heads, head_dim)
    # Write after reading, or XLA copies the cache. It drops optimisation barriers before it
    # schedules, so the place to write depends on the result, in a way only infinity would tell.
    at, present = jnp.maximum(start, 0) + (o[0, 0, 0] > FLOAT_MAX), start >= 0
    keys = _write(slot.keys, new.keys, at, present)
    return o, Slot(keys, _write(slot.values, new.values, at, present))


def attend_each(
    q: jax.Array,
    k: jax.Array,
    v: jax.Array,
    slots: Sequence[Slot],
    positions: jax.Array,
    depth: int,
) -> tuple[jax.Array, list[Slot]]:
    """One new token in each of several slots, as `attend` has it; positions [n]."""
    found = kernels.chosen()
    if found:
        caches = [cache for slot in slots for cache in slot]
        o, new = found.attention(q, k, v, positions, caches)
        return o, [Slot(*pair) for pair in zip(new[::2], new[1::2], strict=True)]
    # Each row by itself: faster on CPU than one batched product, and never dependent on its
    # neighbours.
    done = [
        attend(q[i : i + 1], k[i : i + 1], v[i : i + 1], slot, positions[i], depth)
        for i, slot in enumerate(slots)
    ]
    return jnp.concatenate([o for o, _ in done]), [slot for _, slot in done]


def _over_cache(q: jax.Array, slot: Slot, start: jax.Array, depth: int, part: Partial) -> Partial:
    """Add the cached positions below start.

    What this needs beside the cache does not grow with it on CPU: one piece's scores at a time.
    """
    context = slot.keys.shape[1]
    if jax.default_backend() != "cpu":  # a loop there costs more than reading what is masked
        read = Slot(slot.keys[:, :depth], slot.values[:, :depth])
        return _merge(part, _over(q, read, jnp.arange(depth) < start))
    size = min(PIECE, context)

    def add(i: jax.Array, part: Partial) -> Partial:
        first = jnp.minimum(i * size, context - size)  # the last piece may overlap its neighbour
        piece = Slot(*(lax.dynamic_slice_in_dim(a, first, size, axis=1) for a in slot))
        at = first + jnp.arange(size)
        return _merge(part, _over(q, piece, (at >= i * size) & (at < start)))

    pieces = (jnp.maximum(start, 0) + size - 1) // size
    whole: Partial = lax.fori_loop(0, pieces, add, part)
    return whole


def _over(q: jax.Array, slot: Slot, seen: jax.Array) -> Partial:
    """q [kv_heads, rows, head_dim] over positions t where seen (broadcast to [rows, t])."""
    keys, values = _floats(slot.keys), _floats(slot.values)
    scores = jnp.einsum("krd,ktd->krt", q, keys, preferred_element_type=jnp.float32)
    scores = jnp.where(seen, scores * q.shape[-1] ** -0.5, MASKED)
    top = scores.max(-1, keepdims=True)
    weights = jnp.exp(scores - top)
    mixed = jnp.einsum(
        "krt,ktd->krd", weights.astype(values.dtype), values, preferred_element_type=jnp.float32
    )
    return Partial(top, weights.sum(-1, keepdims=True), mixed)


def _merge(a: Partial, b: Partial) -> Partial:
    """Over the positions of both. Exact zeros come of a part that is masked throughout."""
    top = jnp.maximum(a.top, b.top)
    x, y = jnp.exp(a.top - top), jnp.exp(b.top - top)
    return Partial(top, a.total * x + b.total * y, a.values * x + b.values * y)


def _write(cache: jax.Array, new: jax.Array, at: jax.Array, present: jax.Array) -> jax.Array:
    """Put new [kv_heads, n, head_dim] at position `at`; what passes the cache's end is padding.

    A single token that is not present leaves what is there.
    """
    context, n = cache.shape[1], new.shape[1]
    if n > 1:
        first = jnp.minimum(at, context - n)
        shift = at - first
        old = lax.dynamic_slice_in_dim(cache, first, n, axis=1)
        moved = lax.dynamic_slice_in_dim(jnp.concatenate([new, new], 1), n - shift, n, axis=1)
        new = jnp.where(jnp.arange(n)[:, None] < shift, old, moved)
        at = first
    else:
        new = jnp.where(present, new, lax.dynamic_slice_in_dim(cache, at, 1, axis=1))
    return lax.dynamic_update_slice_in_dim(cache, new, at, axis=1)


def _bits(x: jax.Array, slot: Slot) -> jax.Array:
    """Float32 x [n, kv_heads, head_dim] as the slot keeps it, [kv_heads, n, head_dim]."""
    x = x.swapaxes(0, 1)
    if slot.keys.dtype == jnp.uint16:
        return lax.bitcast_convert_type(x.astype(jnp.bfloat16), jnp.uint16)
    return x.astype(slot.keys.dtype)


def _floats(x: jax.Array) -> jax.Array:
    return lax.bitcast_convert_type(x, jnp.bfloat16) if x.dtype == jnp.uint16 else x
