"""Weights that had to be converted, kept as they sit in memory: the next start only maps them.

One safetensors file for each block, in the user's cache; a file is complete or not there. Knows
neither formats nor devices.
"""

import fcntl
import hashlib
import json
import logging
import math
import os
import shutil
import struct
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from functools import cache as cached
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from stages import cache
from stages.checkpoint import CheckpointError, Tensor, identity, read_header
from stages.formats import WORDS, Shape

log = logging.getLogger(__name__)

FOLDER = cache.FOLDER / "weights"

SPARE_BYTES = 1 << 30
"""Of the disk, that stay free whatever is kept."""

UNUSED_SECONDS = 30 * 86_400
"""What has not been loaded for so long is removed."""

PAGE = 4096
"""Where the first tensor begins."""

_HEADERS = {word: header for header, word in WORDS.items()}
"""numpy's word for a dtype -> a tensor header's."""


def named(sources: Iterable[Tensor], form: str) -> str:
    """The name of what is made of these tensors by `form`; another when one of their files changes.

    Its first half says where they lie, its second what files those are. Raises CheckpointError when
    one cannot be looked at.
    """
    place = hashlib.sha256(form.encode())
    files = hashlib.sha256()
    seen: set[Path] = set()
    for tensor in sources:
        file = tensor.file.absolute()
        place.update(repr((str(file), tensor.dtype, tensor.shape, tensor.start)).encode())
        if file not in seen:
            seen.add(file)
            files.update(repr(identity(file)).encode())
    return f"{place.hexdigest()[:32]}-{files.hexdigest()[:32]}"


def find(name: str, leaves: Mapping[str, tuple[Shape, str]]) -> dict[str, Tensor] | None:
    """Where the arrays of that name lie; None if they are not kept, in these shapes and dtypes."""
    file = _file(name)
    try:
        tensors = read_header(file)
        with suppress(OSError):
            os.utime(file)
    except CheckpointError:
        return None
    found = {leaf: (tensor.shape, WORDS.get(tensor.dtype)) for leaf, tensor in tensors.items()}
    return tensors if found == dict(leaves) else None


def keep(name: str, arrays: Mapping[str, Any]) -> bool:
    """Write these arrays under that name; False, said in the log, where that cannot be."""
    file = _file(name)
    part = file.with_suffix(f".{os.getpid()}.part")
    try:
        FOLDER.mkdir(mode=0o700, parents=True, exist_ok=True)
        tidy(name)
        size = sum(array.nbytes for array in arrays.values())
        free = shutil.disk_usage(FOLDER).free
        if free - size < SPARE_BYTES:
            _say(f"less than {SPARE_BYTES >> 30} GiB of its disk would stay free")
            return False
        try:
            _write(part, arrays)
            part.replace(file)
        finally:
            part.unlink(missing_ok=True)
    except OSError as error:
        _say((error.strerror or str(error)).lower())
        return False
    return True


def tidy(name: str = "") -> None:
    """Remove what no start used for long, and what a process that was killed left half written.

    With the name of what is to be kept now: also what was made of the same place when other files
    lay there.
    """
    place = name.partition("-")[0]
    with suppress(OSError):  # nothing was ever kept
        for file in FOLDER.iterdir():
            with suppress(OSError):  # another process may be quicker
                if _useless(file, place):
                    file.unlink()


def _useless(file: Path, place: str) -> bool:
    idle = time.time() - file.stat().st_mtime
    if file.suffix == ".safetensors":
        replaced = bool(place) and file.name.startswith(f"{place}-")
        return replaced or idle > UNUSED_SECONDS
    return file.suffix == ".part" and not _being_written(file, idle)


def _being_written(file: Path, idle: float) -> bool:
    """Whether a living process writes to it, or just did: it opens the file before it can lock it,
    and not every file system has locks."""
    if idle < cache.LOCK_SECONDS:
        return True
    with file.open("rb") as f:
        try:
            fcntl.flock(f, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        except OSError:
            return False
    return False


def _say(why: str) -> None:
    """Once, not for every block."""
    _warn(f"converted weights are not kept in {FOLDER}, so each start converts them: {why}")


@cached
def _warn(line: str) -> None:
    log.warning(line)


def _file(name: str) -> Path:
    return FOLDER / f"{name}.safetensors"


def _write(file: Path, arrays: Mapping[str, Any]) -> None:
    header: dict[str, Any] = {}
    start = 0
    for name, array in arrays.items():
        stop = start + array.nbytes
        header[name] = {
            "dtype": _HEADERS[str(array.dtype)],
            "shape": list(array.shape),
            "data_offsets": [start, stop],
        }
        start = stop
    text = json.dumps(header).encode()
    text = text.ljust(math.ceil((8 + len(text)) / PAGE) * PAGE - 8)
    with file.open("wb") as f:
        with suppress(OSError):  # some network file systems have no locks
            fcntl.flock(f, fcntl.LOCK_EX | fcntl.LOCK_NB)  # until this is over, or killed
        f.write(struct.pack("<Q", len(text)) + text)
        for array in arrays.values():
            values: npt.NDArray[Any] = np.asarray(array)
            f.write(values.reshape(-1).view(np.uint8).data)
        f.flush()
        os.fsync(f.fileno())  # or after a power cut the name may be there, and zeros under it
