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
POSITIONS = np.array([1098, -1, 66, 0, 31], np.int32)
HEADS, HIDDEN, FFN, EPS = KV_HEADS * SHARE, 40, 70, 1e-6
COUNT = 20
TOLERANCE = 2e-5
"""Of values around 1: float32 sums of some thousand products differ by less."""

ROUNDED = 2**-6
"""Of a block's, which rounds what it multiplies to 8 bits; now and then to the other neighbour."""

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
    numbers = [fine, fine[:, :COUNT], np.rint(2 * fine) * 0.5]
    numbers[2][:, 5:900:50] = np.nan, *[-np.inf] * 17
    q = normal(len(POSITIONS), KV_HEADS * SHARE, HEAD_DIM)
    k, v = normal(2, len(POSITIONS), KV_HEADS, HEAD_DIM)
    floats = [normal(KV_HEADS, CONTEXT, HEAD_DIM) for _ in range(2 * len(POSITIONS))]
    bits = [a.astype(jnp.bfloat16).view(np.uint16) for a in floats]
    hidden = normal(len(POSITIONS), HIDDEN).astype(jnp.bfloat16)
    blocks = [_weights(rng, int8) for int8 in (False, True)]
    angles = 3 * normal(len(POSITIONS), HEAD_DIM // 2)
    turns = np.cos(angles), np.sin(angles)

    def run(x: Any, weights: Any, fine: Any, int8s: Any, tokens: Any, caches: Any) -> Any:
        q, k, v, at = tokens

        def products(i: int, n: int) -> Any:
            some = slice(i, i + n)
            return kernels.products(x[some], weights) + kernels.products(fine[some], int8s)

        return (
            products(0, ROWS),
            [products(i, 1) for i in (0, ROWS - 1)],
            [kernels.attention(q, k, v, at, each) for each in caches],
            [through(w, at, caches[1]) for w in blocks],
            [kernels.top(each, COUNT) for each in numbers],
        )

    def through(weights: dict[str, Any], at: Any, caches: Any) -> Any:
        leaves = jax.tree.leaves(list(weights.values()))
        given: Any = leaves, hidden, at, turns, caches
        return kernels.block(*given, heads=HEADS, ffn=FFN, eps=EPS)

    given = x, weights, fine, int8s, (q, k, v, POSITIONS), (floats, bits)
    try:
        found = jax.tree.map(np.asarray, compiled(run, *abstracts(given))(*given))
    except jax.errors.JaxRuntimeError as error:
        return str(error).partition("\n")[0]
    products, alone, attention, blocked, largest = found
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
    for block, (y, extended) in zip(blocks, blocked, strict=True):
        if not _near(y, _block(block, hidden, turns, bits, extended), ROUNDED):
            return "a block is wrong"
    for each, (_, places) in zip(numbers, largest, strict=True):
        if not np.array_equal(places, np.argsort(-each, kind="stable")[:, :COUNT]):
            return "the largest are wrong"
    return ""


def _weights(rng: np.random.Generator, int8: bool) -> dict[str, Any]:
    """A block's weights as `Kernels.block` takes them: in order, matrices of int8 with a scale."""

    def norm(size: int) -> Array:
        return (1 + rng.standard_normal(size) / 4).astype(jnp.bfloat16)

    def matrix(out: int, size: int) -> Any:
        values = rng.standard_normal((out, size)) / size**0.5
        if not int8:
            return values.astype(jnp.bfloat16)
        scale = abs(values).max(1) / 127
        return np.rint(values / scale[:, None]).astype(np.int8), scale.astype(np.float32)

    own, of_kv = HEADS * HEAD_DIM, KV_HEADS * HEAD_DIM
    return {
        "input_norm": norm(HIDDEN),
        "q": matrix(own, HIDDEN),
        "k": matrix(of_kv, HIDDEN),
        "v": matrix(of_kv, HIDDEN),
        "q_norm": norm(HEAD_DIM),
        "k_norm": norm(HEAD_DIM),
        "o": matrix(HIDDEN, own),
        "post_norm": norm(HIDDEN),
        "gate": matrix(FFN, HIDDEN),
        "up": matrix(FFN, HIDDEN),
        "down": matrix(HIDDEN, FFN),
    }


def _block(
    weights: dict[str, Any],
    x: Array,
    turns: tuple[Array, Array],
    old: list[Array],
    new: list[Array],
) -> Array:
    """What a block should give."""
    cos, sin = (part[:, None].astype(np.float64) for part in turns)

    def norm(x: Array, name: str) -> Array:
        scaled: Array = x / np.sqrt((x * x).mean(-1, keepdims=True) + EPS) * _double(weights[name])
        return scaled

    def product(x: Array, name: str) -> Array:
        weight = weights[name]
        if isinstance(weight, tuple):
            values, scale = weight
            y: Array = _whole(x.astype(np.float32)) @ (_double(values) * scale[:, None]).T
        else:
            y = _double(x.astype(jnp.bfloat16)) @ _double(weight).T
        return y

    def turned(x: Array, name: str) -> Array:
        a, b = np.split(norm(x.reshape(len(x), -1, HEAD_DIM), name), 2, axis=-1)
        return np.concatenate([a * cos - b * sin, b * cos + a * sin], -1).astype(np.float32)

    stream = _double(x)
    h = norm(stream, "input_norm")
    q, k, v = (product(h, name) for name in ("q", "k", "v"))
    v = v.reshape(len(x), KV_HEADS, HEAD_DIM).astype(np.float32)
    mixed = _attention(turned(q, "q_norm"), turned(k, "k_norm"), v, old, new, ROUNDED)
    stream = stream + product(mixed.reshape(len(x), -1), "o")
    h = norm(stream, "post_norm")
    gate, up = product(h, "gate"), product(h, "up")
    return stream + product(gate / (1 + np.exp(-gate)) * up, "down")


def _whole(x: Array) -> Array:
    """x as products with int8 take it: multiples of what is 1/16383 of a row's largest."""
    unit = abs(x).max(1, keepdims=True) / np.float32(16383)
    whole: Array = np.rint(x / unit) * unit.astype(np.float64)
    return whole


def _attention(
    q: Array, k: Array, v: Array, old: list[Array], new: list[Array], tolerance: float = 0
) -> Array:
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
                if not _near(after[:, at], _double(added), tolerance):
                    return np.full(q.shape, np.nan)
                expected[:, at] = after[:, at]
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


def _near(found: Array, expected: Array, tolerance: float = TOLERANCE) -> bool:
    return bool(np.allclose(_double(found), expected, rtol=tolerance, atol=tolerance))
