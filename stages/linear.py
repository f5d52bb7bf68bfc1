"""The one place where a product with a weight matrix is chosen for the platform it runs on.

Knows no model: everything that multiplies by weights goes through `products`.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from stages import kernels

LEAST_ROWS = {"cpu": 2}
"""XLA:CPU treats one row as a vector: bfloat16 is then widened matrix by matrix (10 times slower)
and float32 summed in another order. From two rows on a row's result is the same for any number."""

LEAST_ROWS_ELSEWHERE = 16
"""GPU libraries choose kernels by the number of rows; up to one tile they may as well be equal."""


MOST_INPUTS = (2**31 - 1) // 128**2
"""Of a product in whole numbers: sums of so many hold in 32 bits whatever they are of."""


class Int8(NamedTuple):
    """A weight of int8 [out, in], each row of which is to be multiplied by its float32 scale."""

    values: jax.Array
    scale: jax.Array


Weight = jax.Array | Int8


def product(x: jax.Array, weight: Weight) -> jax.Array:
    """x [rows, in] by weight [out, in], as it lies in a checkpoint -> float32 [rows, out].

    x is rounded to the weight's dtype (for Int8 to bfloat16 or finer); sums are float32 or exact. A
    row's result does not depend on the other rows. Nor does it on how many there are: bitwise on
    CPU, where tests hold it to that (bfloat16 with `stages.kernels` up to their MOST_ROWS, and
    among all larger numbers); elsewhere up to LEAST_ROWS_ELSEWHERE, beyond which the library may
    sum in another order.
    """
    return products(x, weight)[0]


def products(x: jax.Array, *weights: Weight) -> list[jax.Array]:
    """The product of x with each of the weights, which are all of one kind: the same as one by one,
    in fewer calls."""
    found = kernels.chosen()
    matrices = [weight for weight in weights if not isinstance(weight, Int8)]
    if not matrices:
        int8s = [weight for weight in weights if isinstance(weight, Int8)]
        if found:  # faster than XLA's for any number of rows
            return found.products(x, int8s)
        return [_int8(x, weight) for weight in int8s]
    dtype = matrices[0].dtype
    if found and dtype == jnp.bfloat16 and x.shape[0] <= kernels.MOST_ROWS:
        return found.products(x, matrices)
    x = x.astype(dtype)
    return [_dot(x, weight) for weight in matrices]


def _int8(x: jax.Array, weight: Int8) -> jax.Array:
    """In pure JAX. Few rows are bound by reading the weight, which XLA:CPU would widen in memory
    first."""
    rows, inputs = x.shape
    few = rows <= kernels.MOST_ROWS and inputs <= MOST_INPUTS
    if jax.default_backend() == "cpu" and few:
        return _fixed_point(x, weight)
    # Each of its values is exactly a bfloat16.
    return _dot(x.astype(jnp.bfloat16), weight.values.astype(jnp.bfloat16)) * weight.scale


def _fixed_point(x: jax.Array, weight: Int8) -> jax.Array:
    """x as two int8 a value: 16 bits, of which a row's largest value uses all. Sums are exact.

    A row that is not finite gives NaN (of which XLA:CPU's maximum knows nothing).
    """
    rows = x.shape[0]
    step = jnp.max(jnp.abs(x), axis=1, keepdims=True) / (127 << 8)
    step = jnp.where(jnp.isfinite(x).all(axis=1, keepdims=True), step, jnp.nan)
    whole = jnp.round(x / jnp.where(step > 0, step, 1)).astype(jnp.int32)
    high = (whole + 128) >> 8
    low = whole - (high << 8)
    y = lax.dot_general(
        jnp.concatenate([high, low]).astype(jnp.int8),
        weight.values,
        (((1,), (1,)), ((), ())),
        preferred_element_type=jnp.int32,
    ).astype(jnp.float32)
    return (y[:rows] * 256 + y[rows:]) * step * weight.scale


def _dot(x: jax.Array, weight: jax.Array) -> jax.Array:
    rows = x.shape[0]
    least = LEAST_ROWS.get(jax.default_backend(), LEAST_ROWS_ELSEWHERE)
    if rows < least:
        x = jnp.pad(x, ((0, least - rows), (0, 0)))
    y: jax.Array = lax.dot_general(
        x,
        weight,
        (((1,), (1,)), ((), ())),
        # GPUs would round float32 to TF32.
        precision=lax.Precision.HIGHEST if weight.dtype == jnp.float32 else None,
        preferred_element_type=jnp.float32,
    )
    return y[:rows]


def mean(x: jax.Array) -> jax.Array:
    """Mean of float32 x [..., n] over its last axis -> [..., 1].

    XLA:CPU sums in an order that depends on the number of rows, unless it sums as a product.
    """
    n = x.shape[-1]
    if jax.default_backend() != "cpu":
        return x.mean(-1, keepdims=True)
    means = product(x.reshape(-1, n), jnp.full((2, n), 1 / n, jnp.float32))
    return means[:, :1].reshape(*x.shape[:-1], 1)
