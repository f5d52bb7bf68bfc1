"""How stages compile: ahead of time, with donated caches and a persistent cache of executables.

Importing this module configures JAX for the process, before any device is touched.
"""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax

# A stage waits for each result, so queueing only adds thread switches: 4 us a small call, not 25.
jax.config.update("jax_cpu_enable_async_dispatch", False)

if jax.config.jax_compilation_cache_dir is None:
    # Of this user and machine alone: what lies there is run as code.
    _home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    jax.config.update("jax_compilation_cache_dir", str(_home / "kafila" / "xla"))
    # Many small executables: the default keeps only those that took a second.
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.05)


def compiled(function: Callable[..., Any], *shapes: Any, donate: int | None = None) -> Any:
    """`function` compiled for arguments of these shapes; argument `donate` is consumed."""
    donated = () if donate is None else (donate,)
    return jax.jit(function, donate_argnums=donated).lower(*shapes).compile()


def shape(array: jax.Array) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(array.shape, array.dtype)
