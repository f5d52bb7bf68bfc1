"""The kernels give what pure JAX gives, to the bit whatever shares the step."""

import dataclasses
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stages import kernels
from stages.attention import Slot, attend_each
from stages.compile import abstract
from stages.config import Qwen3Config
from stages.functions import Functions
from stages.kernels import SETS, Kernels
from stages.linear import Int8, product, products

Array = np.ndarray[Any, Any]

ALL = kernels.available()

pytestmark = pytest.mark.skipif(not ALL, reason="no C++ compiler, so no kernels")

each = pytest.mark.parametrize("kind", ALL, ids=lambda kind: kind.name)


def normal(seed: int, *dims: int) -> Array:
    drawn: Array = np.random.default_rng(seed).standard_normal(dims, dtype=np.float32)
    return drawn


def bfloat16(x: Array) -> Array:
    rounded: Array = x.astype(jnp.bfloat16)
    return rounded


def double(x: Any) -> Array:
    x = np.asarray(x)
    wide: Array = (x.view(jnp.bfloat16) if x.dtype == np.uint16 else x).astype(np.float64)
    return wide


def multiplied(kind: Kernels | None, x: Array, *weights: Array | Int8) -> list[Array]:
    with kernels.using(kind):
        return [np.asarray(y) for y in jax.jit(products)(x, *weights)]


@each
@settings(max_examples=12)
@given(
    rows=st.integers(1, 16),
    size=st.integers(1, 2300),
    outs=st.lists(st.integers(1, 21), min_size=1, max_size=3),
)
def test_products_of_any_shape(kind: Kernels, rows: int, size: int, outs: list[int]) -> None:
    x = bfloat16(normal(rows, rows, size))
    weights = [bfloat16(normal(out, out, size) / size**0.5) for out in outs]
    ys = multiplied(kind, x, *weights)
    pure = multiplied(None, x, *weights)
    for y, other, weight in zip(ys, pure, weights, strict=True):
        exact = double(x) @ double(weight).T
        np.testing.assert_allclose(y, exact, rtol=0, atol=2e-5)
        # At least as near as XLA's own product is, but for the last places.
        assert np.abs(y - exact).max() <= np.abs(other - exact).max() + 2e-6


@each
@pytest.mark.parametrize(("size", "out"), [(1024, 3072), (3072, 512), (1100, 37)])
def test_a_rows_product_has_the_same_bits_beside_any_rows(
    kind: Kernels, size: int, out: int
) -> None:
    x, weight = bfloat16(normal(0, 16, size)), bfloat16(normal(1, out, size))
    (whole,) = multiplied(kind, x, weight)
    for rows in (1, 2, 3, 4, 5, 7, 8, 12):
        (part,) = multiplied(kind, x[16 - rows :], weight)
        assert part.tobytes() == whole[16 - rows :].tobytes()
    fused = multiplied(kind, x, weight[:5], weight)
    assert fused[1].tobytes() == whole.tobytes()


@each
def test_not_numbers_and_infinities_come_through(kind: Kernels) -> None:
    x = bfloat16(normal(0, 2, 64))
    x[0, 3], x[1, 5] = np.nan, np.inf
    (y,) = multiplied(kind, x, np.ones((5, 64), jnp.bfloat16))
    assert np.isnan(y[0]).all()
    assert np.isposinf(y[1]).all()


def test_many_rows_and_float32_are_left_to_xla() -> None:
    def calls(x: Array, weight: Array) -> bool:
        return "kafila_products" in jax.jit(product).lower(x, weight).as_text()

    weight = bfloat16(normal(0, 8, 64))
    assert calls(bfloat16(normal(0, kernels.MOST_ROWS, 64)), weight)
    assert not calls(bfloat16(normal(0, kernels.MOST_ROWS + 1, 64)), weight)
    assert not calls(normal(0, 1, 64), normal(0, 8, 64))
    with kernels.using(None):
        assert not calls(bfloat16(normal(0, 1, 64)), weight)


# ---- int8 ------------------------------------------------------------------------------------


def counted(x: Array, weight: Int8) -> Array:
    """The product in whole numbers of any size: rounded once for each 1024 inputs."""
    values, scale = (np.asarray(part) for part in weight)
    unit = abs(x).max(1, keepdims=True) / np.float32(16383)
    whole = np.rint(x / np.where(unit > 0, unit, 1)).astype(np.int64)
    total = np.zeros((len(x), len(values)), np.float32)
    for k in range(0, x.shape[1], 1024):
        exact = whole[:, k : k + 1024] @ values[:, k : k + 1024].T.astype(np.int64)
        total += exact.astype(np.float32)
    found: Array = total * (unit * scale)
    return found


def int8s(seed: int, out: int, size: int) -> Int8:
    draw = np.random.default_rng(seed)
    values = draw.integers(-128, 128, (out, size)).astype(np.int8)
    return Int8(values, draw.random(out, np.float32) / size)  # type: ignore[arg-type]


def same_bits(a: Array, b: Array) -> bool:
    return a.dtype == b.dtype and a.tobytes() == b.tobytes()


@each
@settings(max_examples=12)
@given(
    rows=st.integers(1, 40),
    size=st.integers(1, 2300),
    outs=st.lists(st.integers(1, 21), min_size=1, max_size=3),
)
def test_int8_products_are_exact_to_the_last_bit(
    kind: Kernels, rows: int, size: int, outs: list[int]
) -> None:
    x, weights = normal(rows, rows, size), [int8s(out, out, size) for out in outs]
    for y, weight in zip(multiplied(kind, x, *weights), weights, strict=True):
        assert same_bits(y, counted(x, weight))


@each
@pytest.mark.parametrize(("size", "out"), [(1024, 3072), (3072, 512), (1100, 37)])
def test_a_rows_int8_product_has_the_same_bits_beside_any_rows(
    kind: Kernels, size: int, out: int
) -> None:
    x, weight = normal(0, 40, size), int8s(1, out, size)
    (whole,) = multiplied(kind, x, weight)
    assert same_bits(whole, counted(x, weight))
    for rows in (1, 2, 3, 4, 5, 7, 8, 12, 16, 17):
        (part,) = multiplied(kind, x[40 - rows :], weight)
        assert same_bits(part, whole[40 - rows :])
    fused = multiplied(kind, x, int8s(2, 5, size), weight)
    assert same_bits(fused[1], whole)


@each
def test_int8_products_of_extremes(kind: Kernels) -> None:
    size = 5000
    x = np.zeros((7, size), np.float32)
    x[1], x[2], x[3] = 1, np.finfo(np.float32).max / size / 200, 1e-30
    x[4:, 77] = 1e-45, np.finfo(np.float32).tiny, 1e-20
    values = np.full((9, size), -128, np.int8)
    values[4:] = 127
    values[8] = 0
    weight = Int8(values, np.ones(9, np.float32))  # type: ignore[arg-type]
    (y,) = multiplied(kind, x, weight)
    exact = double(x) @ double(values).T
    assert not y[0].any(), "a row of zeros"
    assert not y[:, 8].any(), "a weight of zeros"
    # What is less than the least normal number times 16383 is nothing.
    np.testing.assert_allclose(y, exact, rtol=1e-6, atol=16383 * 128 * 1.2e-38)
    np.testing.assert_allclose(y[[1, 2, 3, 6]], exact[[1, 2, 3, 6]], rtol=1e-6)


@each
@pytest.mark.parametrize("lost", [np.nan, np.inf, -np.inf])
def test_an_int8_product_shows_what_is_not_finite(kind: Kernels, lost: float) -> None:
    """In the rows that have it, as the pure path does."""
    x, weight = normal(0, 5, 1100), int8s(1, 6, 1100)
    expected = counted(x, weight)
    for at in (0, 1099):
        x[1, at] = x[4, at] = lost
        (y,), (pure,) = multiplied(kind, x, weight), multiplied(None, x, weight)
        assert np.isnan(y[[1, 4]]).all()
        assert np.isnan(pure[[1, 4]]).all()
        assert same_bits(y[[0, 2, 3]], expected[[0, 2, 3]])
    np.asarray(weight.scale)[2] = lost
    (y,) = multiplied(kind, normal(0, 5, 1100), weight)
    assert not np.isfinite(y[:, 2]).any()
    assert np.isfinite(y[:, :2]).all()


def test_int8_is_never_left_to_xla() -> None:
    def calls(x: Array) -> bool:
        return "kafila_products" in jax.jit(product).lower(x, int8s(0, 8, 64)).as_text()

    assert calls(normal(0, 1, 64))
    assert calls(normal(0, 100, 64))
    with kernels.using(None):
        assert not calls(normal(0, 1, 64))


# ---- Attention -------------------------------------------------------------------------------


def attended(
    kind: Kernels | None, q: Array, k: Array, v: Array, slots: list[Slot], positions: Array
) -> tuple[Array, list[Slot]]:
    with kernels.using(kind):
        run = jax.jit(partial(attend_each, depth=slots[0].keys.shape[1]))
        o, new = run(q, k, v, slots, positions)
    return np.asarray(o), jax.tree.map(np.asarray, new)


def slots_of(seed: int, rows: int, dims: tuple[int, ...], dtype: str) -> list[Slot]:
    made = [normal(seed + i, *dims) for i in range(2 * rows)]
    if dtype == "bfloat16":
        made = [bfloat16(a).view(np.uint16) for a in made]
    return [Slot(*pair) for pair in zip(made[::2], made[1::2], strict=True)]  # type: ignore[arg-type]


def reference(q: Array, k: Array, v: Array, slot: Slot, at: int) -> Array:
    """One row in double precision; `slot` after the token was added."""
    keys, values = (double(a)[:, : at + 1] for a in slot)
    kv_heads, _, head_dim = keys.shape
    queries = double(q).reshape(kv_heads, -1, head_dim)
    scores = np.einsum("kgd,ktd->kgt", queries, keys) / head_dim**0.5
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    mixed = np.einsum("kgt,ktd->kgd", weights, values) / weights.sum(-1)[..., None]
    found: Array = mixed.reshape(-1, head_dim)
    return found


@each
@settings(max_examples=8)
@given(
    kv_heads=st.integers(1, 3),
    share=st.integers(1, 9),
    head_dim=st.sampled_from([2, 16, 20, 64, 128, 136]),
    context=st.sampled_from([1, 5, 31, 32, 33, 300, 2100]),
    rows=st.integers(1, 3),
    dtype=st.sampled_from(["bfloat16", "float32"]),
    data=st.data(),
)
def test_attention_of_any_shape(
    kind: Kernels,
    kv_heads: int,
    share: int,
    head_dim: int,
    context: int,
    rows: int,
    dtype: str,
    data: st.DataObject,
) -> None:
    places = st.lists(st.integers(-1, context - 1), min_size=rows, max_size=rows)
    positions = np.array(data.draw(places), np.int32)
    q = 3 * normal(1, rows, kv_heads * share, head_dim)
    k, v = normal(2, 2, rows, kv_heads, head_dim)
    slots = slots_of(3, rows, (kv_heads, context, head_dim), dtype)
    o, new = attended(kind, q, k, v, slots, positions)
    pure, same = attended(None, q, k, v, slots, positions)
    for a, b in zip(jax.tree.leaves(new), jax.tree.leaves(same), strict=True):
        assert a.tobytes() == b.tobytes()
    for row, at in enumerate(positions):
        if at < 0:
            assert o[row].tobytes() == pure[row].tobytes(), "it sees itself alone"
            continue
        exact = reference(q[row], k[row], v[row], new[row], at)
        np.testing.assert_allclose(o[row], exact, rtol=0, atol=1e-5)
        # The pure path rounds queries and weights to the cache's bfloat16.
        np.testing.assert_allclose(o[row], pure[row], atol=0.05 if dtype == "bfloat16" else 1e-5)


@each
def test_a_rows_attention_has_the_same_bits_beside_any_rows(kind: Kernels) -> None:
    rows, positions = 5, np.array([2047, 3, -1, 1024, 700], np.int32)
    q, (k, v) = normal(1, rows, 16, 128), normal(2, 2, rows, 8, 128)
    slots = slots_of(3, rows, (8, 2048, 128), "bfloat16")
    whole, new = attended(kind, q, k, v, slots, positions)
    for row in range(rows):
        one = slice(row, row + 1)
        o, alone = attended(kind, q[one], k[one], v[one], slots[one], positions[one])
        assert o.tobytes() == whole[one].tobytes()
        for a, b in zip(alone[0], new[row], strict=True):
            assert np.asarray(a).tobytes() == np.asarray(b).tobytes()


def test_a_position_beyond_the_cache_is_an_error_not_a_write() -> None:
    slots = slots_of(3, 1, (2, 8, 16), "bfloat16")
    k = normal(2, 1, 2, 16)
    with pytest.raises(Exception, match="beyond the cache"):
        attended(ALL[0], normal(1, 1, 4, 16), k, k, slots, np.array([8], np.int32))


@each
@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
@pytest.mark.parametrize(
    ("where", "lost"),
    [
        *((where, np.nan) for where in ("q", "k", "v", "keys", "values")),
        *((where, np.inf) for where in ("q", "v", "values")),
    ],
)
def test_attention_shows_what_is_not_finite(
    kind: Kernels, dtype: str, where: str, lost: float
) -> None:
    """Where the pure path does."""
    rows, positions = 4, np.array([0, 40, 1100, 300], np.int32)
    given = {"q": normal(1, rows, 6, 24), "k": normal(2, rows, 3, 24), "v": normal(3, rows, 3, 24)}
    slots = slots_of(4, rows, (3, 1200, 24), dtype)
    if where in given:
        given[where][1:3, 1, 5] = lost
    else:
        bits = np.asarray(lost, jnp.bfloat16).view(np.uint16) if dtype == "bfloat16" else lost
        for row, at in ((1, 7), (2, 1024), (3, 301)):  # the last is beyond its row
            getattr(slots[row], where)[1, at, 5] = bits
    q, k, v = given.values()
    o, _ = attended(kind, q, k, v, slots, positions)
    pure, _ = attended(None, q, k, v, slots, positions)
    assert not np.isfinite(pure[1:3]).all()
    assert (np.isfinite(o) == np.isfinite(pure))[:3].all()
    assert np.isfinite(o[3]).all(), "what is beyond the row is not read"


X, W, Y = ((3, 64), "float32"), ((8, 64), "bfloat16"), ((3, 8), "float32")
W8, S = ((8, 64), "int8"), ((8,), "float32")
Q, K, AT = ((3, 4, 16), "float32"), ((3, 2, 16), "float32"), ((3,), "int32")
C, C2 = ((2, 9, 16), "float32"), ((2, 9, 16), "uint16")
Shaped = tuple[tuple[int, ...], str]


def weights_of(config: Qwen3Config) -> list[Shaped]:
    return list(config.block_leaves().values())


TINY = Qwen3Config(
    blocks=1,
    hidden=40,
    ffn=70,
    heads=4,
    kv_heads=2,
    head_dim=16,
    vocab=50,
    eps=1e-6,
    rope_theta=1e6,
    yarn=None,
    tied=True,
    dtype="bfloat16",
    max_positions=64,
)
BX, TURN = ((3, 40), "bfloat16"), ((3, 8), "float32")
BLOCK = [BX, AT, TURN, TURN, *weights_of(TINY), *[C2] * 6]
BLOCK8 = [BX, AT, TURN, TURN, *weights_of(dataclasses.replace(TINY, kept="int8")), *[C2] * 6]


def but(given: list[Shaped], place: int, *other: Shaped) -> list[Shaped]:
    """The same with one replaced, or left out."""
    return [*given[:place], *other, *given[place + 1 :]]


REFUSED = "(shapes|caches|weights) of (a product|attention|a block|the largest)|[Bb]uffer"

FLOATS, INTS = ((3, 5), "float32"), ((3, 5), "int32")
FIT: list[tuple[str, list[Shaped], list[Shaped]]] = [
    ("top", [X], [FLOATS, INTS]),
    ("products", [X, W], [Y]),
    ("products", [X, W8, S], [Y]),
    ("attention", [Q, K, K, AT, *[C] * 6], [Q, *[C] * 6]),
    ("attention", [Q, K, K, AT, *[C2] * 6], [Q, *[C2] * 6]),
    ("block", BLOCK, [BX, *[C2] * 6]),
    ("block", BLOCK8, [BX, *[C2] * 6]),
]


def call(function: str, given: list[Shaped], results: list[Shaped]) -> None:
    first = {
        "products": len(given),
        "top": len(given),
        "attention": 4,
        "block": len(given) - len(results) + 1,
    }
    shared = {at: 1 + i for i, at in enumerate(range(first[function], len(given)))}
    found: Any = jax.ffi.ffi_call(
        f"kafila_{function}_{ALL[0].library}",
        [abstract(*each) for each in results],
        input_output_aliases=shared,
    )
    sizes: dict[str, Any] = {"set": np.int32(SETS.index(ALL[0].name))}
    if function == "block":
        sizes |= {"heads": np.int32(4), "ffn": np.int32(70), "eps": np.float32(1e-6)}
    arrays = [jnp.zeros(*each) for each in given]
    jax.tree.map(np.asarray, jax.jit(lambda *arrays: found(*arrays, **sizes))(*arrays))


@pytest.mark.parametrize(("function", "given", "results"), FIT)
def test_shapes_that_fit_are_computed(
    function: str, given: list[Shaped], results: list[Shaped]
) -> None:
    call(function, given, results)


@pytest.mark.parametrize(
    ("function", "given", "results"),
    [
        ("products", [X, ((8, 63), "bfloat16")], [Y]),
        ("products", [X, ((7, 64), "bfloat16")], [Y]),
        ("products", [X, ((8, 64, 1), "bfloat16")], [Y]),
        ("products", [X, ((8, 64), "float32")], [Y]),
        ("products", [X, W8], [Y]),
        ("products", [X, W, W], [Y]),
        ("products", [X, W], [Y, Y]),
        ("products", [((3, 0), "float32"), ((8, 0), "bfloat16")], [Y]),
        ("products", [X, W], [((8, 3), "float32")]),
        ("products", [((192,), "float32"), W], [Y]),
        ("products", [((3, 64), "bfloat16"), W], [Y]),
        ("products", [X, W8, ((1,), "float32")], [Y]),
        ("products", [X, W8, ((8,), "bfloat16")], [Y]),
        ("products", [X, ((8, 63), "int8"), S], [Y]),
        ("products", [X, W8, S], [((3, 7), "float32")]),
        ("products", [X, W8, S, W], [Y, Y]),
        ("top", [X], [FLOATS, FLOATS]),
        ("top", [X], [FLOATS, ((3, 4), "int32")]),
        ("top", [X], [((3, 65), "float32"), ((3, 65), "int32")]),
        ("top", [X], [((2, 5), "float32"), ((2, 5), "int32")]),
        ("top", [((192,), "float32")], [FLOATS, INTS]),
        ("top", [((3, 64), "bfloat16")], [FLOATS, INTS]),
        ("attention", [((3, 5, 16), "float32"), K, K, AT, *[C] * 6], [Q, *[C] * 6]),
        ("attention", [((3, 4, 8), "float32"), K, K, AT, *[C] * 6], [Q, *[C] * 6]),
        ("attention", [((2, 4, 16), "float32"), K, K, AT, *[C] * 6], [Q, *[C] * 6]),
        ("attention", [Q, K, ((3, 1, 16), "float32"), AT, *[C] * 6], [Q, *[C] * 6]),
        ("attention", [Q, K, K, ((2,), "int32"), *[C] * 6], [Q, *[C] * 6]),
        ("attention", [Q, K, K, AT, *[C] * 5], [Q, *[C] * 5]),
        ("attention", [Q, K, K, AT, *[C] * 5, C2], [Q, *[C] * 5, C2]),
        ("attention", [Q, K, K, AT, *[C] * 6], [K, *[C] * 6]),
        *(
            ("attention", [Q, K, K, AT, *caches], [Q, *caches])
            for caches in (
                [((2, 9, 8), "float32")] * 6,
                [((1, 9, 16), "float32")] * 6,
                [*[C] * 5, ((2, 8, 16), "float32")],
                [((2, 9, 16), "int32")] * 6,
            )
        ),
        *(
            ("block", but(whole, i, ((dims[0] + 1, *dims[1:]), dtype)), [BX, *[C2] * 6])
            for whole in (BLOCK, BLOCK8)
            for i, (dims, dtype) in enumerate(whole[:-6])
        ),
        *(
            ("block", but(whole, i, (dims, "float16")), [BX, *[C2] * 6])
            for whole in (BLOCK, BLOCK8)
            for i, (dims, dtype) in enumerate(whole[:-6])
        ),
        ("block", but(BLOCK, 6), [BX, *[C2] * 6]),
        ("block", [*BLOCK[:-6], *[C] * 6], [BX, *[C] * 6]),
        ("block", [*BLOCK[:-6], *[C2] * 5], [BX, *[C2] * 5]),
        ("block", BLOCK, [((3, 41), "bfloat16"), *[C2] * 6]),
    ],
)
def test_shapes_that_do_not_fit_are_refused(
    function: str, given: list[Shaped], results: list[Shaped]
) -> None:
    """Nothing is read or written then."""
    with pytest.raises(jax.errors.JaxRuntimeError, match=REFUSED):
        call(function, given, results)


# ---- The largest ------------------------------------------------------------------------------


def largest(kind: Kernels, x: Array, count: int) -> tuple[Array, Array]:
    values, places = jax.jit(partial(kind.top, count=count))(x)
    return np.asarray(values), np.asarray(places)


@each
@settings(max_examples=25)
@given(
    rows=st.integers(1, 3),
    n=st.integers(1, 3000),
    seed=st.integers(0, 99),
    kinds=st.sampled_from([3, 300, 10**6]),
    data=st.data(),
)
def test_the_largest_of_any_numbers(
    kind: Kernels, rows: int, n: int, seed: int, kinds: int, data: st.DataObject
) -> None:
    """As a stable sort has them, also where few differ."""
    count = data.draw(st.integers(1, n))
    draw = np.random.default_rng(seed)
    x = draw.permutation(np.linspace(-3, 3, kinds, dtype=np.float32))[
        draw.integers(0, kinds, (rows, n))
    ]
    x[draw.random(x.shape) < 0.02] = data.draw(st.sampled_from([0.0, -0.0, np.inf, -np.inf, 1e-45]))
    values, places = largest(kind, x, count)
    order = np.argsort(-x, axis=1, kind="stable")[:, :count]
    np.testing.assert_array_equal(places, order)
    np.testing.assert_array_equal(values, np.take_along_axis(x, order, 1))


@each
@pytest.mark.parametrize("count", [1, 5, 40, 2000])
def test_no_nan_is_among_the_largest(kind: Kernels, count: int) -> None:
    x = normal(0, 3, 2000)
    x[0, ::7], x[1, 3:], x[2] = np.nan, np.nan, np.nan
    values, places = largest(kind, x, count)
    for row, (value, place) in enumerate(zip(values, places, strict=True)):
        there = np.flatnonzero(~np.isnan(x[row]))
        order = there[np.argsort(-x[row, there], kind="stable")][:count]
        np.testing.assert_array_equal(place[: len(order)], order)
        assert (place[len(order) :] == 1999).all()
        assert (value[len(order) :] == -np.inf).all()


# ---- A block ---------------------------------------------------------------------------------


def through(
    kind: Kernels | None,
    config: Qwen3Config,
    leaves: list[Any],
    x: Array,
    positions: Array,
    slots: list[Slot],
) -> tuple[Array, list[Slot]]:
    decode = partial(Functions(config, head=False).decode, depth=slots[0].keys.shape[1])
    with kernels.using(kind):
        y, (new,) = jax.jit(decode)([leaves], x, positions, [slots])
    return np.asarray(y), jax.tree.map(np.asarray, new)


def ordered(config: Qwen3Config, leaves: dict[str, Any]) -> list[Any]:
    return [leaves[name] for name in Functions(config, head=False).block.names]


def leaves_of(config: Qwen3Config, seed: int) -> dict[str, Any]:
    draw = np.random.default_rng(seed)

    def one(dims: tuple[int, ...], dtype: str) -> Array:
        if dtype == "int8":
            return draw.integers(-127, 128, dims, np.int8)
        if dtype == "float32":
            scale: Array = (draw.random(dims, np.float32) + 1) / 100 / config.hidden**0.5
            return scale
        values = draw.standard_normal(dims, np.float32)
        return bfloat16(values / dims[-1] ** 0.5 if len(dims) > 1 else 1 + values / 4)

    return {name: one(*leaf) for name, leaf in config.block_leaves().items()}


@each
@settings(max_examples=5)
@given(
    hidden=st.sampled_from([8, 36, 64, 1030]),
    ffn=st.sampled_from([1, 40, 96]),
    kv_heads=st.integers(1, 3),
    share=st.integers(1, 4),
    head_dim=st.sampled_from([2, 10, 16, 64]),
    context=st.sampled_from([1, 33, 1100]),
    rows=st.integers(1, 9),
    kept=st.sampled_from([None, "int8"]),
    data=st.data(),
)
def test_a_block_of_any_shape(
    kind: Kernels,
    hidden: int,
    ffn: int,
    kv_heads: int,
    share: int,
    head_dim: int,
    context: int,
    rows: int,
    kept: Any,
    data: st.DataObject,
) -> None:
    config = dataclasses.replace(
        TINY,
        hidden=hidden,
        ffn=ffn,
        heads=kv_heads * share,
        kv_heads=kv_heads,
        head_dim=head_dim,
        kept=kept,
    )
    places = st.lists(st.integers(-1, context - 1), min_size=rows, max_size=rows)
    positions = np.array(data.draw(places), np.int32)
    leaves = ordered(config, leaves_of(config, 1))
    x = bfloat16(normal(2, rows, hidden))
    slots = slots_of(3, rows, (kv_heads, context, head_dim), "bfloat16")
    y, new = through(kind, config, leaves, x, positions, slots)
    pure, same = through(None, config, leaves, x, positions, slots)
    # Both round to bfloat16 what they multiply, the pure path more often.
    size = np.abs(double(pure)).max()  # what cancels was as large
    np.testing.assert_allclose(double(y), double(pure), rtol=0.02, atol=0.05 + 0.01 * size)
    for a, b, at in zip(new, same, positions, strict=True):
        for mine, other in zip(a, b, strict=True):
            np.testing.assert_allclose(double(mine), double(other), rtol=0.02, atol=0.02)
            rest = np.arange(context) != at
            assert same_bits(np.asarray(mine)[:, rest], np.asarray(other)[:, rest])


@each
@pytest.mark.parametrize("kept", [None, "int8"])
def test_a_row_comes_through_a_block_with_the_same_bits_beside_any_rows(
    kind: Kernels, kept: Any
) -> None:
    config = dataclasses.replace(TINY, hidden=1040, ffn=2050, kept=kept)
    rows = 16
    leaves = ordered(config, leaves_of(config, 1))
    x, slots = bfloat16(normal(2, rows, 1040)), slots_of(3, rows, (2, 1500, 16), "bfloat16")
    positions = np.array([1499, 0, -1, 1023, 1024, *range(7, 18)], np.int32)
    whole, new = through(kind, config, leaves, x, positions, slots)
    for some in (slice(0, 1), slice(2, 4), slice(0, 3), slice(1, 5), slice(4, 9), slice(4, 16)):
        y, part = through(kind, config, leaves, x[some], positions[some], slots[some])
        assert same_bits(y, whole[some])
        for a, b in zip(jax.tree.leaves(part), jax.tree.leaves(new[some]), strict=True):
            assert same_bits(a, b)


@each
@pytest.mark.parametrize("kept", [None, "int8"])
@pytest.mark.parametrize("lost", [np.nan, np.inf])
def test_a_block_shows_what_is_not_finite(kind: Kernels, kept: Any, lost: float) -> None:
    config = dataclasses.replace(TINY, kept=kept)
    named, x = leaves_of(config, 1), bfloat16(normal(2, 3, 40))
    slots, positions = slots_of(3, 3, (2, 9, 16), "bfloat16"), np.array([8, 3, -1], np.int32)
    clean, _ = through(kind, config, ordered(config, named), x, positions, slots)
    assert np.isfinite(double(clean)).all()
    broken = x.copy()
    broken[1, 7] = lost
    y, _ = through(kind, config, ordered(config, named), broken, positions, slots)
    assert not np.isfinite(double(y[1])).all()
    assert same_bits(y[[0, 2]], clean[[0, 2]])
    for name, leaf in named.items():
        if leaf.dtype == np.int8:
            continue
        changed = leaf.copy()
        changed[(1,) * leaf.ndim] = lost
        y, _ = through(kind, config, ordered(config, named | {name: changed}), x, positions, slots)
        assert not np.isfinite(double(y)).all(), name


THREADS = """
import hashlib, sys
import jax, jax.numpy as jnp, numpy as np
from stages import kernels
draw = np.random.default_rng(0)
x = draw.standard_normal((5, 1024)).astype(jnp.bfloat16)
w = [draw.standard_normal((n, 1024)).astype(jnp.bfloat16) for n in (3072, 1000)]
q = draw.standard_normal((2, 16, 128)).astype(np.float32)
k = draw.standard_normal((2, 8, 128)).astype(np.float32)
caches = [draw.standard_normal((8, 3000, 128)).astype(np.float32) for _ in range(4)]
at = np.array([2999, 1500], np.int32)
ints = [(draw.integers(-127, 128, a.shape).astype(np.int8), np.ones(len(a), "float32")) for a in w]
def narrow(*dims):
    return draw.standard_normal(dims).astype(jnp.bfloat16)
hidden, turn = narrow(9, 1024), np.full((9, 64), 0.7, np.float32)
many = np.arange(500, 509, dtype=np.int32)
sizes = [1024], [2048, 1024], [1024, 1024], [1024, 1024], [128], [128], [1024, 2048], [1024]
leaves = [narrow(*dims) for dims in (*sizes, [3000, 1024], [3000, 1024], [1024, 3000])]
halves = [narrow(8, 600, 128).view(np.uint16) for _ in range(18)]
logits = draw.standard_normal((3, 70000)).astype(np.float32)
for kind in kernels.available():
    found = jax.jit(lambda: (
        kind.products(x, w), kind.products(x, ints), kind.attention(q, k, k, at, caches),
        kind.block(leaves, hidden, many, (turn, turn), halves, heads=16, ffn=3000, eps=1e-6),
        kind.top(logits, 50),
    ))()
    bits = b"".join(np.asarray(a).tobytes() for a in jax.tree.leaves(found))
    print(kind.name, hashlib.sha256(bits).hexdigest())
"""


def test_the_number_of_threads_changes_no_bit() -> None:
    """XLA has a thread a core it may run on."""
    if not hasattr(os, "sched_setaffinity") or len(os.sched_getaffinity(0)) < 2:
        pytest.skip("one core")

    def run(cores: set[int]) -> str:
        command = [sys.executable, "-c", f"import os; os.sched_setaffinity(0, {cores})\n{THREADS}"]
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
        return done.stdout

    cores = sorted(os.sched_getaffinity(0))
    many = run(set(cores))
    assert len(many.splitlines()) == len(ALL)
    assert run({cores[0]}) == many


def test_calls_at_once_change_no_bit() -> None:
    """Helpers of one call hold the pool then, and those of another come when it is over."""
    kind, rows = ALL[0], 6
    config = dataclasses.replace(TINY, hidden=256, ffn=300)
    leaves = ordered(config, leaves_of(config, 1))
    x, slots = bfloat16(normal(2, rows, 256)), slots_of(3, rows, (2, 300, 16), "bfloat16")
    positions: Any = np.arange(250, 250 + rows, dtype=np.int32)
    logits = normal(4, 3, 40_000)
    matrix = bfloat16(normal(5, 400, 256))
    decode = partial(Functions(config, head=False).decode, depth=300)

    def step(x: Any, logits: Any, matrix: Any) -> Any:
        y, _ = decode([leaves], x, positions, [slots])
        return y, kind.top(logits, 30), kind.products(x, [matrix])

    with kernels.using(kind):
        run = jax.jit(step).lower(x, logits, matrix).compile()

    def bits(_: int) -> bytes:
        found = run(x, logits, matrix)
        return b"".join(np.asarray(part).tobytes() for part in jax.tree.leaves(found))

    expected = bits(0)
    with ThreadPoolExecutor(4) as threads:
        assert set(threads.map(bits, range(400))) == {expected}


def test_an_instruction_set_that_is_not_there_is_refused() -> None:
    for number in (-1, len(SETS), 1000):
        call: Any = jax.ffi.ffi_call(
            f"kafila_top_{ALL[0].library}", [abstract(*FLOATS), abstract(*INTS)]
        )
        with pytest.raises(jax.errors.JaxRuntimeError, match="no such instruction set"):
            np.asarray(call(normal(0, 3, 64), set=np.int32(number))[0])
