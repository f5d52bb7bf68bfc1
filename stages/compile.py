"""How stages compile: ahead of time, with donated caches and a persistent cache of executables.

Importing this module configures JAX for the process, before any device is touched.
"""

import logging
import threading
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy.typing as npt
from jax.sharding import NamedSharding

from stages import cache

log = logging.getLogger(__name__)

_config: Any = jax.config  # JAX leaves it untyped

# A stage waits for each result, so queueing only adds thread switches: 4 us a small call, not 25.
_config.update("jax_cpu_enable_async_dispatch", False)

CACHE = cache.FOLDER / "xla"

_alone = threading.Lock()
"""Recording warnings is the process' state; a stage compiles while a thread of its own converts."""

_BROKEN = "Error reading persistent compilation cache entry"
"""How JAX's warning of an entry begins that it could not read; it has compiled anew then."""

if _config.jax_compilation_cache_dir is None:  # unless the user chose another place
    if refused := cache.refused(CACHE):
        log.warning("every start compiles anew: %s", refused)
    else:
        _config.update("jax_compilation_cache_dir", str(CACHE))
    # Many small executables: the default keeps only those that took a second.
    _config.update("jax_persistent_cache_min_compile_time_secs", 0.05)


def compiled(
    function: Callable[..., Any], *shapes: Any, donate: int | None = None, out: Any = None
) -> Any:
    """`function` compiled for arguments of these shapes; argument `donate` is consumed.

    `out` is the sharding of each result, None where the arguments have none.

    One process at a time compiles: members of one machine often need the same executable, and all
    but the first then find it in the cache. And JAX writes an entry in place, so none reads one
    that is half written.
    """
    donated = () if donate is None else (donate,)
    lowered = jax.jit(function, donate_argnums=donated, out_shardings=out).lower(*shapes)
    with _alone, cache.turn(CACHE), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        executable = lowered.compile()
        broken = [w for w in caught if str(w.message).startswith(_BROKEN)]
        if broken:
            log.info("%s; the cache begins anew", broken[0].message)
            _clear()
    for warning in caught:
        if warning not in broken:
            warnings.warn_explicit(
                warning.message, warning.category, warning.filename, warning.lineno
            )
    return executable


def _clear() -> None:
    """Remove all entries: JAX never writes over one, so one that a killed process left half
    written would be compiled in vain at every start."""
    if _config.jax_compilation_cache_dir == str(CACHE):  # another place is the user's
        for entry in CACHE.glob("*-cache"):
            entry.unlink(missing_ok=True)


def abstract(
    dims: Sequence[int], dtype: npt.DTypeLike, sharding: NamedSharding | None = None
) -> jax.ShapeDtypeStruct:
    """Stands for an array in `compiled`."""
    make: Any = jax.ShapeDtypeStruct
    struct: jax.ShapeDtypeStruct = make(tuple(dims), dtype, sharding=sharding)
    return struct


def abstracts(tree: Any, sharding: NamedSharding | None = None) -> Any:
    """The same nesting with each array made abstract: split as it is, or else as said."""

    def one(array: Any) -> jax.ShapeDtypeStruct:
        own = getattr(array, "sharding", None)
        of = own if isinstance(own, NamedSharding) else sharding
        return abstract(array.shape, array.dtype, of)

    return jax.tree.map(one, tree)


def workspace(executable: Any) -> int:
    """Bytes that a compiled function needs on each device beside its arguments: temporaries and
    new results."""
    memory = executable.memory_analysis()
    return int(memory.temp_size_in_bytes + memory.output_size_in_bytes - memory.alias_size_in_bytes)
