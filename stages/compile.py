"""How stages compile: ahead of time, with donated caches and a persistent cache of executables.

Importing this module configures JAX for the process, before any device is touched.
"""

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy.typing as npt

_config: Any = jax.config  # JAX leaves it untyped

# A stage waits for each result, so queueing only adds thread switches: 4 us a small call, not 25.
_config.update("jax_cpu_enable_async_dispatch", False)

if _config.jax_compilation_cache_dir is None:
    # Of this user and machine alone: what lies there is run as code.
    _home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    _config.update("jax_compilation_cache_dir", str(_home / "kafila" / "xla"))
    # Many small executables: the default keeps only those that took a second.
    _config.update("jax_persistent_cache_min_compile_time_secs", 0.05)


def compiled(function: Callable[..., Any], *shapes: Any, donate: int | None = None) -> Any:
    """`function` compiled for arguments of these shapes; argument `donate` is consumed."""
    donated = () if donate is None else (donate,)
    return jax.jit(function, donate_argnums=donated).lower(*shapes).compile()


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
