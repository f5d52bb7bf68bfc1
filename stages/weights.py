"""Put tensors of a checkpoint on a device, each from its own byte range; reads nothing else.

Files are mapped. On CPU a tensor that lies aligned in its file is used where it is, without a copy
or anonymous memory; otherwise, and on other devices, it is copied from the mapping one by one.
"""

import mmap
from collections.abc import Callable, Iterable
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

from stages.checkpoint import Tensor
from stages.config import DTYPES, CheckpointError

_DTYPES = {header: jnp.dtype(word) for word, header in DTYPES.items()}

PAGE = mmap.PAGESIZE


class Loader:
    """Loads tensors and counts their bytes.

    Raises CheckpointError when a file cannot be read or has become shorter than its header said.
    """

    def __init__(self, device: jax.Device, on_bytes: Callable[[int], None]):
        self._device = device
        self._on_bytes = on_bytes
        self._files: dict[Path, npt.NDArray[np.uint8]] = {}

    def load(self, tensor: Tensor) -> jax.Array:
        view = self._file(tensor.file)[tensor.start : tensor.stop]
        if view.size != tensor.stop - tensor.start:
            raise CheckpointError(f"{tensor.file} has become shorter since its header was read")
        view[::PAGE].max(initial=0)  # bring it into memory now, not during the first token
        weights = view.view(_DTYPES[tensor.dtype]).reshape(tensor.shape)
        # The array keeps the mapping alive; may_alias holds where device and alignment allow.
        array: jax.Array = jax.device_put(weights, self._device, may_alias=True)
        array.block_until_ready()
        self._on_bytes(view.size)
        return array

    def load_all(self, names: Iterable[str], tensors: dict[str, Tensor]) -> list[jax.Array]:
        return [self.load(tensors[name]) for name in names]

    def _file(self, path: Path) -> npt.NDArray[np.uint8]:
        if path not in self._files:
            try:
                with path.open("rb") as file:
                    mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
            except (OSError, ValueError) as error:  # an empty file cannot be mapped: ValueError
                raise CheckpointError(f"{path} cannot be mapped: {error}") from None
            self._files[path] = np.frombuffer(mapped, np.uint8)
        return self._files[path]
