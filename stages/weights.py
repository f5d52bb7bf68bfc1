"""Put tensors of a checkpoint on devices, each from its own byte range; reads nothing else.

On CPU a tensor that lies aligned in its file is mapped and used where it is, without a copy or
anonymous memory; otherwise it is read once, into huge pages where there are some. Other devices
copy from the mapping, each of several only its part. A weight that is to sit in memory otherwise
than on disk is converted and kept (`stages.kept`); no more than one block, or the head, is in
memory twice. One device converts its own; several have it done in RAM.
"""

import mmap
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from functools import partial
from importlib import resources
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

from stages import cache, kept
from stages.checkpoint import CheckpointError, Tensor
from stages.config import DTYPES, Qwen3Config
from stages.convert import convert
from stages.formats import SCALES, WORDS
from stages.mesh import Split, whole_on

PAGE = mmap.PAGESIZE

ALIGNED = 64
"""XLA uses a host array where it is only if its address is a multiple of this."""

READERS = 2
"""Threads that read: one is bound by copying, a few more only by the disk or the memory."""

Weights = Mapping[str, Mapping[str, Tensor]]
"""Tensors of each weight, by part."""

Array = npt.NDArray[Any]
Bytes = npt.NDArray[np.uint8]


class Loader:
    """Loads tensors and counts their bytes.

    Raises CheckpointError when a file cannot be read or has become shorter than its header said.
    """

    def __init__(self, split: Split, on_bytes: Callable[[int], None]):
        self._split = split
        self._on_bytes = on_bytes
        self._converter = split.devices[0] if split.count == 1 else jax.devices("cpu")[0]
        self._files: dict[Path, mmap.mmap] = {}

    def load(self, tensor: Tensor) -> jax.Array:
        """All of it, where it can be converted."""
        array = self._array(tensor, partial(whole_on, self._converter))
        self._on_bytes(tensor.nbytes)
        return array

    def load_all(
        self, names: Sequence[str], weights: Weights, config: Qwen3Config
    ) -> list[jax.Array]:
        """The leaves of these names, on their devices."""
        tensors = [tensor for parts in weights.values() for tensor in parts.values()]
        if weights.keys() == set(names) and all(t.dtype == DTYPES[config.dtype] for t in tensors):
            plain = {name: weights[name]["weight"] for name in names}
            return self._arrays(plain, lambda tensor: self._on_bytes(tensor.nbytes))
        name = kept.named(tensors, _form(config))
        all_leaves = config.block_leaves() | config.head_leaves()
        wanted = {leaf: all_leaves[leaf] for leaf in names}
        found = kept.find(name, wanted)
        if found is None:
            with cache.turn(kept.FOLDER):
                found = kept.find(name, wanted)  # another process may have been quicker
                if found is None:
                    leaves = self._converted(names, weights, config)
                    if not kept.keep(name, leaves):
                        return [self._split.put(*leaf) for leaf in leaves.items()]
                    del leaves
                    found, tensors = kept.find(name, wanted), []  # which are counted by now
        if found is None:
            raise CheckpointError(f"{kept.FOLDER}: {name} is not what was kept; remove it")
        arrays = self._arrays({name: found[name] for name in names}, lambda tensor: None)
        for tensor in tensors:
            self._on_bytes(tensor.nbytes)
        return arrays

    def _arrays(
        self, leaves: Mapping[str, Tensor], on_loaded: Callable[[Tensor], None]
    ) -> list[jax.Array]:
        """Several at a time; on_loaded is called here, in order."""
        arrays = []
        puts = [partial(self._split.put, name) for name in leaves]
        with ThreadPoolExecutor(READERS) as readers:
            reading = readers.map(self._array, leaves.values(), puts)
            for tensor, array in zip(leaves.values(), reading, strict=True):
                arrays.append(array)
                on_loaded(tensor)
        return arrays

    def _array(self, tensor: Tensor, put: Callable[[Array], jax.Array]) -> jax.Array:
        view = self._mapped(tensor)
        on_cpu = self._split.devices[0].platform == "cpu"
        if not on_cpu or view.ctypes.data % ALIGNED == 0:
            view[::PAGE].max(initial=0)  # bring it into memory now, not during the first token
        else:
            view = _read(tensor)
        weights = view.view(jnp.dtype(WORDS[tensor.dtype])).reshape(tensor.shape)
        array = put(weights)
        if not on_cpu:
            self._let_go(tensor)
        return array

    def _converted(
        self, names: Sequence[str], weights: Weights, config: Qwen3Config
    ) -> dict[str, jax.Array]:
        """The leaves in the order of the names, one weight after the other."""
        leaves: dict[str, jax.Array] = {}
        for weight, parts in weights.items():
            scaled = f"{weight}.scale" in names
            for part, leaf in self._leaves(parts, config, scaled=scaled).items():
                leaves[weight if part == "weight" else f"{weight}.{part}"] = leaf
        return {name: leaves[name] for name in names}

    def _leaves(
        self, parts: Mapping[str, Tensor], config: Qwen3Config, *, scaled: bool
    ) -> dict[str, jax.Array]:
        loaded = {part: self.load(tensor) for part, tensor in parts.items()}
        as_is = [tensor.dtype for tensor in parts.values()] == [DTYPES[config.dtype]]
        if as_is and not scaled:
            return loaded
        for part in parts.keys() & SCALES:
            if not bool(jnp.isfinite(loaded[part]).all()):
                where = parts[part]
                raise CheckpointError(f"{where.file}: {part} at byte {where.start:,} is not finite")
        leaves = convert(loaded, config.stored, config.dtype, config.kept if scaled else None)
        for leaf in leaves.values():
            leaf.block_until_ready()
        del loaded
        for tensor in parts.values():
            self._let_go(tensor)
        return leaves

    def _let_go(self, tensor: Tensor) -> None:
        """Its bytes on disk need not stay in memory."""
        if hasattr(mmap, "MADV_DONTNEED"):
            start = -(-tensor.start // PAGE) * PAGE
            if start < tensor.stop:
                self._file(tensor.file).madvise(mmap.MADV_DONTNEED, start, tensor.stop - start)

    def _mapped(self, tensor: Tensor) -> Bytes:
        view = np.frombuffer(self._file(tensor.file), np.uint8)[tensor.start : tensor.stop]
        if view.size != tensor.nbytes:
            raise CheckpointError(f"{tensor.file} has become shorter since its header was read")
        return view

    def _file(self, path: Path) -> mmap.mmap:
        if path not in self._files:
            try:
                with path.open("rb") as file:
                    mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
            except (OSError, ValueError) as error:  # an empty file cannot be mapped: ValueError
                raise CheckpointError(f"{path} cannot be read: {error}") from None
            self._files.setdefault(path, mapped)  # another reader may have been quicker
        return self._files[path]


def _read(tensor: Tensor) -> Bytes:
    """Its bytes in memory of their own, which begins with a page."""
    memory = mmap.mmap(-1, tensor.nbytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANON)
    if hasattr(mmap, "MADV_HUGEPAGE"):
        memory.madvise(mmap.MADV_HUGEPAGE)  # most of the time goes into small pages' faults
    done = 0
    try:
        with tensor.file.open("rb", buffering=0) as file, memoryview(memory) as view:
            file.seek(tensor.start)
            while done < tensor.nbytes and (count := file.readinto(view[done:])):
                done += count
    except OSError as error:
        raise CheckpointError(f"{tensor.file} cannot be read: {error}") from None
    if done < tensor.nbytes:
        raise CheckpointError(f"{tensor.file} has become shorter since its header was read")
    return np.frombuffer(memory, np.uint8)


def _form(config: Qwen3Config) -> str:
    """All that decides what a weight is converted to, the code that does it included."""
    code = [
        resources.files("stages").joinpath(f).read_bytes() for f in ("convert.py", "formats.py")
    ]
    stored: Any = config.stored and asdict(config.stored)
    return repr((stored, config.dtype, config.kept, code))
