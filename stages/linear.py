"""The one place where a product with a weight matrix is chosen for the platform it runs on.

Knows no model: everything that multiplies by weights goes through `product`, so a faster kernel
for one platform has one place to enter.
"""

import jax
import jax.numpy as jnp
from jax import lax

LEAST_ROWS = {"cpu": 2}
"""XLA:CPU treats one row as a vector: bfloat16 is then widened matrix by matrix (10 times slower)
and float32 summed in another order. From two rows on a row's result is the same for any number."""

LEAST_ROWS_ELSEWHERE = 16
"""GPU libraries choose kernels by the number of rows; up to one tile they may as well be equal."""


def product(x: jax.Array, weight: jax.Array) -> jax.Array:
    """x [rows, in] by weight [out, in], as it lies in a checkpoint -> float32 [rows, out].

    x is rounded to the weight's dtype; sums are float32. A row's result does not depend on the
    other rows. Nor does it on how many there are: bitwise on CPU, where tests hold it to that;
    elsewhere up to LEAST_ROWS_ELSEWHERE, beyond which the library may sum in another order.
    """
    rows = x.shape[0]
    least = LEAST_ROWS.get(jax.default_backend(), LEAST_ROWS_ELSEWHERE)
    x = x.astype(weight.dtype)
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
