"""Draw the next token of each row on the device; knows logits, not models or requests.

A token depends on its row's logits and parameters, its seed and its position: not on the row it
sits in, the other rows, or how many there are.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
from jax import lax

from stages import kernels

FRONT = 1024
"""Tokens that are sorted first: sorting all 151,936 of Qwen3 takes 27 ms in XLA on CPU, the top
1,024 0.6 ms, and a draw that provably falls among these needs no more."""


class Sampling(NamedTuple):
    """Parameters of each row [b]; numpy or JAX arrays. The order is top-k, top-p, min-p."""

    temperature: npt.NDArray[np.float32]
    """0 takes the likeliest token; the first of equals."""
    top_k: npt.NDArray[np.int32]
    """Keep the k likeliest; 0 keeps all."""
    top_p: npt.NDArray[np.float32]
    """Keep the likeliest that together reach this share, at least one; 1 keeps all."""
    min_p: npt.NDArray[np.float32]
    """Drop what is less likely than this share of the likeliest; 0 drops none."""
    seed: npt.NDArray[np.uint32]

    @classmethod
    def greedy(cls, b: int) -> "Sampling":
        return cls(
            temperature=np.zeros(b, np.float32),
            top_k=np.zeros(b, np.int32),
            top_p=np.ones(b, np.float32),
            min_p=np.zeros(b, np.float32),
            seed=np.zeros(b, np.uint32),
        )


def sample(logits: jax.Array, positions: jax.Array, sampling: Sampling) -> jax.Array:
    """Tokens int32 [b] for these positions [b], from float32 logits [b, vocab].

    An infinite logit is the likeliest; of a row with a NaN any token may come.
    """
    best = _likeliest(logits)

    def row(args: tuple[jax.Array, jax.Array, jax.Array, Sampling]) -> jax.Array:
        best, logits, position, sampling = args
        token: jax.Array = lax.cond(
            sampling.temperature > 0,
            lambda: _draw(logits, position, sampling),
            lambda: best,
        )
        return token

    # Row by row, so that each row's sums are taken in the same order however many rows there are.
    tokens: jax.Array = lax.cond(
        jnp.any(sampling.temperature > 0),
        lambda: lax.map(row, (best, logits, positions, sampling)),
        lambda: best,
    )
    return tokens


def _top(x: jax.Array, count: int) -> tuple[jax.Array, jax.Array]:
    """The `count` largest of each row of x [b, n] and their places, those of equals in order."""
    found = kernels.chosen()
    if found:
        return found.top(x, count)
    values, places = lax.top_k(x, count)
    return values, places


def _likeliest(logits: jax.Array) -> jax.Array:
    """The first of each row's largest."""
    if kernels.chosen():
        return _top(logits, 1)[1][:, 0]
    # XLA:CPU takes argmax a number at a time (0.65 ms a row of Qwen3's vocabulary), but two
    # reductions by registers (0.15 ms).
    last = logits.shape[-1] - 1
    place = jnp.arange(last + 1, dtype=jnp.int32)
    top = logits.max(-1, keepdims=True)
    return jnp.where(logits == top, place, last).min(-1)


def _draw(logits: jax.Array, position: jax.Array, sampling: Sampling) -> jax.Array:
    """One row: logits [vocab], scalars otherwise."""
    best = logits.max()
    scaled = jnp.where(logits == best, 0, (logits - best) / sampling.temperature)
    total = jnp.exp(scaled).sum()
    uniform = jax.random.uniform(jax.random.fold_in(jax.random.key(sampling.seed), position))

    size = scaled.size
    limit = jnp.minimum(jnp.where(sampling.top_k > 0, sampling.top_k, size), size)
    # No filter can shrink the mass that is drawn from.
    free = (limit == size) & (sampling.top_p >= 1) & (sampling.min_p <= 0)

    def among(count: int) -> tuple[jax.Array, jax.Array]:
        """The token if it is one of the `count` likeliest, and whether that is certain."""
        top, tokens = (part[0] for part in _top(scaled[None], count))
        rank = jnp.arange(count)
        weights = jnp.where(rank < limit, jnp.exp(top), 0)
        heap = jnp.cumsum(weights)
        whole = jnp.where(limit <= count, heap[-1], total)  # the mass that top-k leaves
        # A share of 1 keeps all, whatever rounding makes of the last ones' sum.
        share = jnp.where(sampling.top_p < 1, sampling.top_p * whole, jnp.inf)
        kept = (rank < limit) & (heap - weights < share) & (weights >= sampling.min_p)
        last = jnp.maximum(kept.sum(), 1) - 1  # what is kept is a front of the ranks
        inside = (limit <= count) | ((limit == size) & (last < count - 1))
        point = uniform * jnp.where(inside, heap[last], total)
        chosen = jnp.minimum((heap <= point).sum(), last)
        return tokens[chosen], inside | (free & (point < heap[-1]))

    if size <= FRONT:
        return among(size)[0]
    token, sure = among(FRONT)
    drawn: jax.Array = lax.cond(sure, lambda: token, lambda: among(size)[0])
    return drawn
