"""The functions a stage compiles: blocks over rows or chunks, and what the head does around them.

Pure functions of flat leaves, hidden states and cache slots; which are compiled for which sizes and
when they run is the stage's business.
"""

from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp

from stages import kernels
from stages.attention import Slot, attend, attend_each
from stages.config import Qwen3Config
from stages.kernels import Kernels
from stages.model import Block, Definition, Head
from stages.rope import turns
from stages.sampling import Sampling, sample


def kernel(config: Qwen3Config) -> Kernels | None:
    """The kernels that decode a whole block; None where blocks are decoded in JAX."""
    return kernels.chosen() if config.dtype == "bfloat16" else None


class Functions:
    """The functions a stage compiles, over flat leaves."""

    def __init__(self, config: Qwen3Config, *, head: bool):
        self._config = config
        self.block = Definition(lambda: Block(config))
        self.head = Definition(lambda: Head(config)) if head else None

    def decode(
        self,
        blocks: Sequence[Sequence[jax.Array]],
        x: jax.Array,
        positions: jax.Array,
        slots: Sequence[Sequence[Slot]],
        *,
        depth: int,
    ) -> tuple[jax.Array, list[list[Slot]]]:
        """One token of each row: x [b, hidden], positions [b], at most `depth` and negative where a
        row is absent; slots of each block and row."""
        found = kernel(self._config)
        if found:
            return self._decode_by(found, blocks, x, positions, slots)

        def rows(old: Sequence[Slot]) -> Callable[..., tuple[jax.Array, list[Slot]]]:
            return lambda q, k, v: attend_each(q, k, v, old, positions, depth)

        new = []
        for leaves, old in zip(blocks, slots, strict=True):
            x, written = self.block(leaves)(x, positions, rows(old))
            new.append(written)
        return x, new

    def _decode_by(
        self,
        found: Kernels,
        blocks: Sequence[Sequence[jax.Array]],
        x: jax.Array,
        positions: jax.Array,
        slots: Sequence[Sequence[Slot]],
    ) -> tuple[jax.Array, list[list[Slot]]]:
        """`decode` with a kernel that computes a whole block."""
        config = self._config
        turned, new = turns(positions, config), []
        for leaves, old in zip(blocks, slots, strict=True):
            named = dict(zip(self.block.names, leaves, strict=True))
            x, caches = found.block(
                [named[name] for name in config.block_leaves()],
                x,
                positions,
                turned,
                [cache for slot in old for cache in slot],
                heads=config.heads,
                ffn=config.ffn,
                eps=config.eps,
            )
            new.append([Slot(*pair) for pair in zip(caches[::2], caches[1::2], strict=True)])
        return x, new

    def prefill(
        self,
        blocks: Sequence[Sequence[jax.Array]],
        x: jax.Array,
        start: jax.Array,
        slots: Sequence[Sequence[Slot]],
        *,
        depth: int,
    ) -> tuple[jax.Array, list[list[Slot]]]:
        """Successive tokens of one row: x [n, hidden] from start on, which is at most `depth`; its
        slot of each block."""
        positions = start + jnp.arange(x.shape[0])

        def one(old: Slot) -> Callable[..., tuple[jax.Array, Slot]]:
            return lambda q, k, v: attend(q, k, v, old, start, depth)

        new = []
        for leaves, (old,) in zip(blocks, slots, strict=True):
            x, written = self.block(leaves)(x, positions, one(old))
            new.append([written])
        return x, new

    def enter(self, head: Sequence[jax.Array], tokens: jax.Array) -> jax.Array:
        assert self.head is not None
        return self.head(head).enter(tokens)

    def logits(self, head: Sequence[jax.Array], x: jax.Array) -> jax.Array:
        assert self.head is not None
        return self.head(head).logits(x)

    def sample(
        self, head: Sequence[jax.Array], x: jax.Array, positions: jax.Array, sampling: Sampling
    ) -> tuple[jax.Array, jax.Array]:
        """x [b, hidden] of the positions before -> tokens for `positions` [b], embedded too."""
        assert self.head is not None
        module = self.head(head)
        tokens = sample(module.logits(x), positions, sampling)
        return tokens, module.enter(tokens)
