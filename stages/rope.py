"""Rotary position embedding, half-split as Qwen3 has it, with YaRN; knows nothing of attention."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

from stages.config import Qwen3Config, Yarn


def frequencies(config: Qwen3Config) -> tuple[npt.NDArray[np.float32], float]:
    """Radians per position of each pair of dimensions [head_dim / 2]; factor on cos and sin.

    YaRN (Peng et al. 2023, section 3.2) divides slow frequencies by its factor, leaves fast ones
    as they are and ramps between.
    """
    powers = np.arange(0, config.head_dim, 2, dtype=np.float64) / config.head_dim
    turns = config.rope_theta**-powers
    if config.yarn is None:
        return turns.astype(np.float32), 1.0
    stretched = turns / config.yarn.factor
    ramp = _ramp(config.yarn, config.head_dim, config.rope_theta)
    mixed = stretched * ramp + turns * (1 - ramp)
    return mixed.astype(np.float32), config.yarn.attention_factor


def _ramp(yarn: Yarn, head_dim: int, theta: float) -> npt.NDArray[np.float64]:
    """0 where a pair keeps its frequency, 1 where it is stretched; [head_dim / 2]."""

    def pair_turning(rotations: float) -> float:
        """The pair of dimensions that turns this often over the original positions."""
        wavelengths = yarn.original_positions / (rotations * 2 * math.pi)
        return head_dim * math.log(wavelengths) / (2 * math.log(theta))

    low, high = pair_turning(yarn.beta_fast), pair_turning(yarn.beta_slow)
    if yarn.truncate:
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, head_dim - 1)
    width = high - low or 0.001
    return np.clip((np.arange(head_dim // 2) - low) / width, 0, 1)


def turns(positions: jax.Array, config: Qwen3Config) -> tuple[jax.Array, jax.Array]:
    """Cosines and sines by which positions [n] turn pairs of dimensions, [n, head_dim / 2]."""
    per_position, factor = frequencies(config)
    angles = positions.astype(jnp.float32)[:, None] * per_position
    return jnp.cos(angles) * factor, jnp.sin(angles) * factor


def rotate(x: jax.Array, by: tuple[jax.Array, jax.Array]) -> jax.Array:
    """Turn x [n, heads, head_dim] (float32) by `turns` of each n."""
    cos, sin = (part[:, None] for part in by)
    a, b = jnp.split(x, 2, axis=-1)
    return jnp.concatenate([a * cos - b * sin, b * cos + a * sin], axis=-1)
