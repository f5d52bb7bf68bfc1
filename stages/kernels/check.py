"""Are a library's results right on this machine? Asked each time before it is used.

Shapes are small and odd: what is left over beside whole registers and tiles, rows that are absent,
heads that share their keys. References are numpy's, in double precision.
"""

from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

from stages.compile import abstracts, compiled

if TYPE_CHECKING:
    from stages.kernels import Kernels

ROWS, IN, OUTS = 7, 1101, (9, 4)
KV_HEADS, SHARE, HEAD_DIM, CONTEXT = 2, 3, 24, 1100
POSITIONS = np.array([1098, -1, 66], np.int32)
TOLERANCE = 2e-5
"""Of values around 1: float32 sums of some thousand products differ by less."""

Array = npt.NDArray[Any]


def faults(kernels: "Kernels") -> str:
    """What is wrong with them; empty if nothing is."""
    rng = np.random.default_rng(0)

    def normal(*dims: int) -> Array:
        return rng.standard_normal(dims).astype(np.float32)

    x = normal(ROWS, IN).astype(jnp.bfloat16)
    weights = [(normal(out, IN) / IN**0.5).astype(jnp.bfloat16) for out in OUTS]
    fine = normal(ROWS, IN)
    int8s = [
        (rng.integers(-128, 128, (out, IN)).astype(np.int8), abs(normal(out)) / IN) for out in OUTS
    ]
    q = normal(len(POSITIONS), KV_HEADS * SHARE, HEAD_DIM)
    k, v = normal(2, len(POSITIONS), KV_HEADS, HEAD_DIM)
    floats = [normal(KV_HEADS, CONTEXT, HEAD_DIM) for _ in range(2 * len(POSITIONS))]
    bits = [a.astype(jnp.bfloat16).view(np.uint16) for a in floats]

    def run(x: Any, weights: Any, fine: Any, int8s: Any, tokens: Any, caches: Any) -> Any:
        q, k, v, at = tokens

        def products(i: int, n: int) -> Any:
            some = slice(i, i + n)
            return kernels.products(x[some], weights) + kernels.int8_products(fine[some], int8s)

        return (
            products(0, ROWS),
            [products(i, 1) for i in (0, ROWS - 1)],
            [kernels.attention(q, k, v, at, each) for each in caches],
        )

    given = x, weights, fine, int8s, (q, k, v, POSITIONS), (floats, bits)
    try:
        found = jax.tree.map(np.asarray, compiled(run, *abstracts(given))(*given))
    except jax.errors.JaxRuntimeError as error:
        return str(error).partition("\n")[0]
    products, alone, attention = found
    expected = [_double(x) @ _double(weight).T for weight in weights]
    expected += [_whole(fine) @ (_double(w) * scale[:, None]).T for w, scale in int8s]
    if not all(map(_near, products, expected)):
        return "products are wrong"
    for row, ys in zip((0, ROWS - 1), alone, strict=True):
        if any(a[0].tobytes() != b[row].tobytes() for a, b in zip(ys, products, strict=True)):
            return "a row's product depends on its neighbours"
    for caches, (mixed, extended) in zip((floats, bits), attention, strict=True):
        if not _near(mixed, _attention(q, k, v, caches, extended)):
            return "attention is wrong"
    return ""


def _whole(x: Array) -> Array:
    """x as products with int8 take it: multiples of what is 1/16383 of a row's largest."""
    unit = abs(x).max(1, keepdims=True) / np.float32(16383)
    whole: Array = np.rint(x / unit) * unit.astype(np.float64)
    return whole


def _attention(q: Array, k: Array, v: Array, old: list[Array], new: list[Array]) -> Array:
    """What attention should give; NaN where a cache was not extended as it should be."""
    rows = []
    for row, at in enumerate(POSITIONS):
        seen = []
        for token, before, after in (
            (k, old[2 * row], new[2 * row]),
            (v, old[2 * row + 1], new[2 * row + 1]),
        ):
            added = (
                token[row].astype(jnp.bfloat16).view(np.uint16)
                if before.dtype == np.uint16
                else token[row]
            )
            expected = before.copy()
            if at >= 0:
                expected[:, at] = added
            if expected.tobytes() != after.tobytes():
                return np.full(q.shape, np.nan)
            seen.append(_double(expected[:, : at + 1] if at >= 0 else added[:, None]))
        keys, values = seen
        queries = q[row].reshape(KV_HEADS, SHARE, HEAD_DIM).astype(np.float64)
        scores = np.einsum("kgd,ktd->kgt", queries, keys) / HEAD_DIM**0.5
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        weights /= weights.sum(-1, keepdims=True)
        rows.append(np.einsum("kgt,ktd->kgd", weights, values).reshape(-1, HEAD_DIM))
    return np.stack(rows)


def _double(x: Array) -> Array:
    return (x.view(jnp.bfloat16) if x.dtype == np.uint16 else x).astype(np.float64)


def _near(found: Array, expected: Array) -> bool:
    return bool(np.allclose(found, expected, rtol=TOLERANCE, atol=TOLERANCE))
