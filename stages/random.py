"""Random weights of a given shape, for measuring: no checkpoint, nothing a model would say."""

import jax
import numpy as np

from stages.config import Qwen3Config
from stages.formats import Shape
from stages.functions import Functions
from stages.mesh import Split


def block(config: Qwen3Config, seed: int = 0) -> list[jax.Array]:
    """Leaves of one block, in the order a stage takes them."""
    return _leaves(config, Functions(config, head=False).block.names, config.block_leaves(), seed)


def head(config: Qwen3Config, seed: int = 0) -> list[jax.Array]:
    """Leaves of the head, in the order a stage takes them."""
    definition = Functions(config, head=True).head
    assert definition is not None
    return _leaves(config, definition.names, config.head_leaves(), seed)


def _leaves(
    config: Qwen3Config, names: list[str], leaves: dict[str, tuple[Shape, str]], seed: int
) -> list[jax.Array]:
    """Norms and scales are ones; matrices keep their input's variance, unless they are integers.
    A few values repeat: making a gigabyte of them should not take longer than measuring with it."""
    draw = np.random.default_rng(seed).standard_normal(65_521, dtype=np.float32)
    split, made = Split.of(config), []
    for name in names:
        shape, dtype = leaves[name]
        if len(shape) == 1:
            values = np.ones(shape, dtype)
        else:
            spread = 32 if dtype == "int8" else 1 / np.sqrt(shape[-1])
            values = np.resize(np.clip(draw * spread, -127, 127).astype(dtype), shape)
        made.append(split.put(name, values))
    return made
