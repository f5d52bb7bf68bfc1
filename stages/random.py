"""Random weights of a given shape, for measuring: no checkpoint, nothing a model would say."""

import jax
import numpy as np

from stages.config import Qwen3Config, Shape
from stages.functions import Functions


def block(config: Qwen3Config, seed: int = 0) -> list[jax.Array]:
    """Leaves of one block, in the order a stage takes them."""
    names = Functions(config, head=False).block.names
    return _leaves(config, [config.block_shapes()[name] for name in names], seed)


def head(config: Qwen3Config, seed: int = 0) -> list[jax.Array]:
    """Leaves of the head, in the order a stage takes them."""
    definition = Functions(config, head=True).head
    assert definition is not None
    return _leaves(config, [config.head_shapes()[name] for name in definition.names], seed)


def _leaves(config: Qwen3Config, shapes: list[Shape], seed: int) -> list[jax.Array]:
    """Norms are ones; matrices keep their input's variance. A few values repeat: making
    a gigabyte of them should not take longer than measuring with it."""
    draw = np.random.default_rng(seed).standard_normal(65_521, dtype=np.float32)
    made = []
    for shape in shapes:
        if len(shape) == 1:
            values = np.ones(shape, config.dtype)
        else:
            values = np.resize((draw / np.sqrt(shape[-1])).astype(config.dtype), shape)
        made.append(jax.device_put(values))
    return made
