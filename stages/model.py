"""Qwen3's block and head in Flax NNX: which operations in which order, on which parameters.

A definition only: it is split once into a list of leaves, and compiled functions take that list.
Knows nothing of files, devices or caches; attention over the cache is handed in.
"""

from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar

import jax
import jax.numpy as jnp
from flax import nnx

from stages.config import Kept, Qwen3Config
from stages.formats import Shape
from stages.linear import Int8, Weight, mean, product, products
from stages.rope import rotate, turns

State = TypeVar("State")
Module = TypeVar("Module", bound=nnx.Module)

Attend = Callable[[jax.Array, jax.Array, jax.Array], tuple[jax.Array, State]]
"""q [n, heads, head_dim], k and v [n, kv_heads, head_dim] -> [n, heads, head_dim] and its state."""


class Norm(nnx.Module):
    """RMSNorm over the last axis, float32 in and out."""

    def __init__(self, shape: Shape, config: Qwen3Config):
        self.weight = nnx.Param(jnp.ones(shape, config.dtype))
        self.eps = config.eps

    def __call__(self, x: jax.Array) -> jax.Array:
        scale = jax.lax.rsqrt(mean(x * x) + self.eps)
        return x * scale * self.weight[...].astype(jnp.float32)


class Matrix(nnx.Module):
    """A linear map without bias; weight [out, in], in the model's dtype or kept in another."""

    def __init__(self, shape: Shape, config: Qwen3Config, kept: Kept | None = None):
        self.weight = nnx.Param(jnp.zeros(shape, kept or config.dtype))
        self.scale = nnx.Param(jnp.ones(shape[:1], jnp.float32)) if kept else None

    def __call__(self, x: jax.Array) -> jax.Array:
        return product(x, self.value)

    @property
    def value(self) -> Weight:
        weight = self.weight[...]
        return weight if self.scale is None else Int8(weight, self.scale[...])


def apply(matrices: Sequence[Matrix], x: jax.Array) -> list[jax.Array]:
    """Each of the matrices to the same x."""
    return products(x, *(matrix.value for matrix in matrices))


class Block(nnx.Module):
    """One transformer block. Attributes bear the short names of `Qwen3Config.block_shapes`, leaves
    those of `Qwen3Config.block_leaves`."""

    def __init__(self, config: Qwen3Config):
        self.config = config
        shapes = config.block_shapes()

        def matrix(name: str) -> Matrix:
            return Matrix(shapes[name], config, config.kept)

        self.input_norm = Norm(shapes["input_norm"], config)
        self.q = matrix("q")
        self.k = matrix("k")
        self.v = matrix("v")
        self.q_norm = Norm(shapes["q_norm"], config)
        self.k_norm = Norm(shapes["k_norm"], config)
        self.o = matrix("o")
        self.post_norm = Norm(shapes["post_norm"], config)
        self.gate = matrix("gate")
        self.up = matrix("up")
        self.down = matrix("down")

    def __call__(
        self, x: jax.Array, positions: jax.Array, attend: Attend[State]
    ) -> tuple[jax.Array, State]:
        """x [n, hidden] in the model's dtype at positions [n] -> the same, and attention's state.

        The residual stream is float32 inside the block and the model's dtype at its boundary,
        so a boundary inside a stage rounds as one between stages does.
        """
        n, head_dim = x.shape[0], self.config.head_dim
        stream = x.astype(jnp.float32)
        h = self.input_norm(stream)
        q, k, v = (y.reshape(n, -1, head_dim) for y in apply((self.q, self.k, self.v), h))
        q, k = self.q_norm(q), self.k_norm(k)
        turned = turns(positions, self.config)
        q, k = rotate(q, turned), rotate(k, turned)
        with jax.named_scope("attention"):
            mixed, state = attend(q, k, v)
        stream += self.o(mixed.reshape(n, -1))
        h = self.post_norm(stream)
        with jax.named_scope("mlp"):
            gate, up = apply((self.gate, self.up), h)
            stream += self.down(jax.nn.silu(gate) * up)
        return stream.astype(x.dtype), state


class Head(nnx.Module):
    """Embedding, final norm, unembedding; one matrix for both when tied.

    Attributes bear the short names of `Qwen3Config.head_shapes`.
    """

    def __init__(self, config: Qwen3Config):
        shapes = config.head_shapes()
        self.embed = Matrix(shapes["embed"], config)
        self.norm = Norm(shapes["norm"], config)
        self.unembed = None if config.tied else Matrix(shapes["unembed"], config)

    def enter(self, tokens: jax.Array) -> jax.Array:
        """tokens [n] -> [n, hidden] in the model's dtype."""
        return self.embed.weight[...][tokens]

    def logits(self, x: jax.Array) -> jax.Array:
        """x [n, hidden] after the last block -> float32 [n, vocab]."""
        h = self.norm(x.astype(jnp.float32))
        return (self.embed if self.unembed is None else self.unembed)(h)


class Definition(Generic[Module]):
    """A module split into structure and leaves: `names` says which leaf is which tensor."""

    def __init__(self, make: Callable[[], Module]):
        graph, state = nnx.split(nnx.eval_shape(make))
        paths = [path for path, _ in nnx.to_flat_state(state)]
        self.names: list[str] = [
            ".".join(str(part) for part in path if part != "weight") for path in paths
        ]
        self._graph = graph
        self._structure = jax.tree.structure(state)

    def __call__(self, leaves: Sequence[jax.Array]) -> Module:
        """The module with these leaves, to be called while tracing."""
        state: Any = jax.tree.unflatten(self._structure, leaves)
        return nnx.merge(self._graph, state)
