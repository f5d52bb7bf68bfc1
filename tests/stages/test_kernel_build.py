"""Kernels are built once, checked each time, and not there where that cannot be."""

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

from stages import kernels
from stages.kernels import Kernels, build, check

ALL = kernels.available()

pytestmark = pytest.mark.skipif(not ALL, reason="no C++ compiler, so no kernels")

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


def test_a_compiler_that_fails_is_heard(
    compilers: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    put(compilers, QUICK.format(make="echo some lines >&2; echo no such word >&2; exit 1"))
    assert build.library(HEADERS, tmp_path / "cache") is None
    assert "c++ fails: no such word" in caplog.text


def test_a_folder_that_cannot_be_made(
    compilers: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    put(compilers, QUICK.format(make="exit 1"))
    (tmp_path / "cache").touch()
    assert build.library(HEADERS, tmp_path / "cache" / "kernels") is None
    assert "cannot be made (Not a directory); XDG_CACHE_HOME" in caplog.text


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
    monkeypatch.undo()
    block = Kernels.block

    def unturned(
        self: Kernels, w: Any, x: Any, at: Any, turns: Any, *rest: Any, **sizes: Any
    ) -> Any:
        cos, sin = turns
        return block(self, w, x, at, (jnp.ones_like(cos), 0 * sin), *rest, **sizes)

    monkeypatch.setattr(Kernels, "block", unturned)
    assert "block" in check.faults(ALL[0])
    monkeypatch.undo()
    top = Kernels.top

    def swapped(self: Kernels, x: Any, count: int) -> Any:
        values, places = top(self, x, count)
        return values, places[:, ::-1]

    monkeypatch.setattr(Kernels, "top", swapped)
    assert "largest" in check.faults(ALL[0])


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
