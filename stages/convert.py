"""From weights as they lie on disk to weights as they sit in memory, where the two differ.

Element by element and on the device: float32 between, rounded once. The same bits on every machine.
"""

from collections.abc import Mapping
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp

from stages.compile import abstract, compiled
from stages.config import Kept
from stages.formats import Awq, Format, Fp8, Shape

Parts = Mapping[str, jax.Array]
"""Last word of a tensor's name -> what it holds; see `stages.formats`."""


def convert(
    parts: Parts, stored: Format | None, dtype: str, kept: Kept | None
) -> dict[str, jax.Array]:
    """The leaves of one weight: "weight" in `dtype`; or in int8, with float32 "scale" [out].

    What is no matrix is always in `dtype`.
    """
    kinds = tuple((name, array.shape, str(array.dtype)) for name, array in parts.items())
    leaves: dict[str, jax.Array] = _conversion(kinds, stored, dtype, kept)(parts)
    return leaves


@cache
def _conversion(
    kinds: tuple[tuple[str, Shape, str], ...], stored: Format | None, dtype: str, kept: Kept | None
) -> Any:
    """Compiled once for all weights of a kind."""

    def run(parts: Parts) -> dict[str, jax.Array]:
        weight = dequantised(parts, stored)
        if kept is None or weight.ndim != 2:
            return {"weight": weight.astype(dtype)}
        values, scale = int8(weight)
        return {"weight": values, "scale": scale}

    return compiled(run, {name: abstract(shape, kind) for name, shape, kind in kinds})


def dequantised(parts: Parts, stored: Format | None) -> jax.Array:
    """The weight in float32; a matrix as [out, in]."""
    match stored:
        case Fp8(block=block) if "weight_scale_inv" in parts:
            return _fp8(parts["weight"], parts["weight_scale_inv"], block)
        case Awq(group=group) if "qweight" in parts:
            return _awq(parts["qweight"], parts["qzeros"], parts["scales"], group)
    return parts["weight"].astype(jnp.float32)


def int8(weight: jax.Array) -> tuple[jax.Array, jax.Array]:
    """float32 [out, in] -> int8 of that shape and scale float32 [out]; weight = int8 * scale.

    The largest of a row becomes 127 or -127.
    """
    scale = jnp.max(jnp.abs(weight), axis=1) / 127
    steps = weight / jnp.where(scale > 0, scale, 1)[:, None]
    return jnp.round(steps).astype(jnp.int8), scale


def _fp8(values: jax.Array, scale: jax.Array, block: tuple[int, int]) -> jax.Array:
    """Blocks at the end may be cut off."""
    out, into = values.shape
    (down, across), (rows, columns) = scale.shape, (min(block[0], out), min(block[1], into))
    padding = (0, down * rows - out), (0, across * columns - into)
    blocks = jnp.pad(values.astype(jnp.float32), padding).reshape(down, rows, across, columns)
    weight = blocks * scale.astype(jnp.float32)[:, None, :, None]
    return weight.reshape(down * rows, across * columns)[:out, :into]


def _awq(values: jax.Array, zeros: jax.Array, scale: jax.Array, group: int) -> jax.Array:
    into, out = values.shape[0], scale.shape[1]
    steps = _nibbles(values).reshape(-1, group, out) - _nibbles(zeros)[:, None]
    weight = steps.astype(jnp.float32) * scale.astype(jnp.float32)[:, None]
    return weight.reshape(into, out).T


def _nibbles(words: jax.Array) -> jax.Array:
    """int32 [n, out / 8] -> the eight values of each in the order of outputs, int32 [n, out]."""
    shifts = jnp.array([4 * Awq.ORDER.index(output) for output in range(8)], jnp.int32)
    return ((words[:, :, None] >> shifts) & 15).reshape(len(words), -1)
