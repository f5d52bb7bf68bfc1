"""Random weights of a given shape, for measuring: no checkpoint, nothing a model would say."""

import jax
import numpy as np

from stages.config import Qwen3Config
from stages.formats import Shape
from stages.functions import Functions


def block(config: Qwen3Config, seed: int = 0) -> list[jax.Array]:
    """Leaves of one block, in the order a stage takes them."""
    leaves = config.block_leaves()
    return _leaves([leaves[name] for name in Functions(config, head=False).block.names], seed)


def head(config: Qwen3Config, seed: int = 0) -> list[jax.Array]:
    """Leaves of the head, in the order a stage takes them."""
    definition = Functions(config, head=True).head
    assert definition is not None
    return _leaves([config.head_leaves()[name] for name in definition.names], seed)


def _leaves(leaves: list[tuple[Shape, str]], seed: int) -> list[jax.Array]:
    """Norms and scales are ones; matrices keep their input's variance, unless they are integers.
    A few values repeat: making a gigabyte of them should not take longer than measuring with it."""
    draw = np.random.default_rng(seed).standard_normal(65_521, dtype=np.float32)
    made = []
    for shape, dtype in leaves:
        if len(shape) == 1:
            values = np.ones(shape, dtype)
        else:
            spread = 32 if dtype == "int8" else 1 / np.sqrt(shape[-1])
            values = np.resize(np.clip(draw * spread, -127, 127).astype(dtype), shape)
        made.append(jax.device_put(values))
    return made
