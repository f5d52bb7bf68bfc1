"""How stages compile: ahead of time, with donated caches and a persistent cache of executables.

Importing this module configures JAX for the process, before any device is touched.
"""

import fcntl
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import jax
import numpy.typing as npt

LOCK_SECONDS = 120.0
"""Wait this long for another process that compiles; the largest executable takes a tenth on CPU."""

_config: Any = jax.config  # JAX leaves it untyped

# A stage waits for each result, so queueing only adds thread switches: 4 us a small call, not 25.
_config.update("jax_cpu_enable_async_dispatch", False)

# Of this user and machine alone: what lies there is run as code.
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "kafila" / "xla"

if _config.jax_compilation_cache_dir is None:  # unless the user chose another place
    _config.update("jax_compilation_cache_dir", str(CACHE))
    # Many small executables: the default keeps only those that took a second.
    _config.update("jax_persistent_cache_min_compile_time_secs", 0.05)


def compiled(function: Callable[..., Any], *shapes: Any, donate: int | None = None) -> Any:
    """`function` compiled for arguments of these shapes; argument `donate` is consumed."""
    donated = () if donate is None else (donate,)
    lowered = jax.jit(function, donate_argnums=donated).lower(*shapes)
    with _alone():
        return lowered.compile()


def abstract(dims: Sequence[int], dtype: npt.DTypeLike) -> jax.ShapeDtypeStruct:
    """Stands for an array in `compiled`."""
    make: Any = jax.ShapeDtypeStruct
    struct: jax.ShapeDtypeStruct = make(tuple(dims), dtype)
    return struct


def abstracts(tree: Any) -> Any:
    """The same nesting with each array made abstract."""
    return jax.tree.map(lambda array: abstract(array.shape, array.dtype), tree)


def workspace(executable: Any) -> int:
    """Bytes that a compiled function needs beside its arguments: temporaries and new results."""
    memory = executable.memory_analysis()
    return int(memory.temp_size_in_bytes + memory.output_size_in_bytes - memory.alias_size_in_bytes)


@contextmanager
def _alone() -> Iterator[None]:
    """One process at a time compiles into the persistent cache.

    Members of one machine often need the same executable: all but the first then find it there. And
    JAX writes an entry in place, so none reads one that is half written. Without a lock (the folder
    cannot be written, or its holder hangs) compiling only takes longer.
    """
    try:
        CACHE.mkdir(mode=0o700, parents=True, exist_ok=True)
        handle = os.open(CACHE / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError:
        yield
        return
    try:
        deadline = time.monotonic() + LOCK_SECONDS
        while time.monotonic() < deadline:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                time.sleep(0.01)
        yield
    finally:
        os.close(handle)
