"""The kernels give what pure JAX gives, to the bit whatever shares the step; or are not there."""

import ctypes
import os
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stages import kernels
from stages.attention import Slot, attend_each
from stages.kernels import Kernels, build, check
from stages.linear import product, products

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


def multiplied(kind: Kernels | None, x: Array, *weights: Array) -> list[Array]:
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


def attended(
    kind: Kernels | None, q: Array, k: Array, v: Array, slots: list[Slot], positions: Array
) -> tuple[Array, list[Slot]]:
    with kernels.using(kind):
        o, new = jax.jit(attend_each)(q, k, v, slots, positions)
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
for kind in kernels.available():
    found = jax.jit(lambda: (kind.products(x, w), kind.attention(q, k, k, at, caches)))()
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


# ---- Where they are not there ---------------------------------------------------------------


HEADERS = Path(jax.ffi.include_dir())


@cache
def real_compiler() -> str:
    found = next(filter(None, map(shutil.which, build.COMPILERS)), None)
    assert found is not None
    return found


@pytest.fixture
def compilers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An otherwise empty PATH on which a test puts what it calls a compiler."""
    real_compiler()
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    return folder


def put(folder: Path, script: str) -> None:
    file = folder / "c++"
    file.write_text(f"#!/bin/sh\n{script}\n")
    file.chmod(0o755)


QUICK = (
    """case "$1" in --version) echo 1;; *) while [ "$1" != -o ]; do shift; done; {make};; esac"""
)
"""A compiler that takes no time."""


def test_no_compiler_no_kernels(compilers: Path, tmp_path: Path) -> None:
    assert build.library(HEADERS, tmp_path / "cache") is None
    assert kernels.available(tmp_path / "cache") == ()


@pytest.mark.parametrize("script", ["exit 1", QUICK.format(make="exit 1"), QUICK.format(make=":")])
def test_a_compiler_that_fails(compilers: Path, tmp_path: Path, script: str) -> None:
    put(compilers, script)
    assert build.library(HEADERS, tmp_path / "cache") is None


def test_headers_that_are_missing(compilers: Path, tmp_path: Path) -> None:
    put(compilers, f'exec {real_compiler()} "$@"')
    assert build.library(tmp_path / "none", tmp_path / "cache") is None


def test_built_once_and_again_when_damaged(compilers: Path, tmp_path: Path) -> None:
    folder, counted = tmp_path / "cache", tmp_path / "counted"
    put(compilers, QUICK.format(make=f'echo library > "$2"; echo >> {counted}'))
    file = build.library(HEADERS, folder)
    assert file is not None
    assert build.library(HEADERS, folder) == file
    assert counted.read_text() == "\n"
    assert folder.stat().st_mode & 0o777 == 0o700
    file.write_text("truncated")
    assert build.library(HEADERS, folder) == file
    assert file.read_text() == "library\n"
    put(compilers, QUICK.format(make='echo other > "$2"').replace("echo 1", "echo 2"))
    assert build.library(HEADERS, folder) not in (None, file), "another compiler, another library"


def test_what_is_no_library_is_not_loaded(compilers: Path, tmp_path: Path) -> None:
    put(compilers, QUICK.format(make='echo no library > "$2"'))
    assert kernels.available(tmp_path / "cache") == ()


def test_a_folder_that_others_may_write_to(compilers: Path, tmp_path: Path) -> None:
    folder = tmp_path / "cache"
    folder.mkdir()
    folder.chmod(0o777)
    put(compilers, QUICK.format(make='echo library > "$2"'))
    assert build.library(HEADERS, folder) is None


def test_the_check_passes_on_this_machine() -> None:
    assert [check.faults(kind) for kind in ALL] == [""] * len(ALL)
    assert kernels.best() == ALL[0]


def test_the_check_notices(monkeypatch: pytest.MonkeyPatch) -> None:
    right = Kernels.products
    monkeypatch.setattr(
        Kernels, "products", lambda self, x, w: [1.01 * y for y in right(self, x, w)]
    )
    assert "products" in check.faults(ALL[0])
    monkeypatch.undo()
    attention = Kernels.attention

    def forgets(self: Kernels, *given: Any) -> Any:
        return attention(self, *given)[0], given[-1]

    monkeypatch.setattr(Kernels, "attention", forgets)
    assert "attention" in check.faults(ALL[0])


def test_an_error_of_theirs_is_a_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(check, "POSITIONS", np.array([check.CONTEXT, -1, 66], np.int32))
    assert "beyond the cache" in check.faults(ALL[0])


def test_kernels_that_fail_their_check_are_not_used(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(check, "faults", lambda kind: "" if kind == ALL[-1] else "wrong")
    kernels.best.cache_clear()
    try:
        assert kernels.best() == ALL[-1]
    finally:
        kernels.best.cache_clear()


PROCESS = """
import sys
import jax, numpy as np
from stages import kernels
from stages.compile import abstracts, compiled
from stages.linear import product
x, w = np.ones((1, 256), "bfloat16"), np.ones((64, 256), "bfloat16")
def run(kind):
    with kernels.using(kind):
        return compiled(product, *abstracts((x, w)))(x, w)
print(*(float(np.asarray(run(kind))[0, 0]) for kind in (kernels.best(), None)))
"""


def test_executables_that_call_kernels_are_found_again_by_another_process(tmp_path: Path) -> None:
    """XLA's own cache: with kernels and without never mix, and a new process can call them."""
    settings = {
        "JAX_COMPILATION_CACHE_DIR": str(tmp_path),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
    }
    kept = []
    for _ in range(2):
        done = subprocess.run(
            [sys.executable, "-c", PROCESS],
            env=os.environ | settings,
            capture_output=True,
            text=True,
            check=True,
            timeout=120,
        )
        assert done.stdout.split() == ["256.0", "256.0"]
        kept.append(sorted(file.name for file in tmp_path.glob("*-cache")))
    assert kept[0] == kept[1]
    assert len([name for name in kept[0] if name.startswith("jit_product")]) == 2


def test_a_library_is_a_c_library() -> None:
    """What is loaded has nothing of Python's version in it."""
    file = build.library(HEADERS)
    assert file is not None
    assert ctypes.CDLL(str(file)).kafila_supported()
