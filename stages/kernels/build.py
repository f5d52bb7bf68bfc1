"""Builds the kernels' C++ with whatever compiler is at hand, once, and keeps the result.

A library is named by all that made it: source, XLA's headers, compiler and its version. Nothing
here raises: where there is no compiler, or it fails, there is no library. Imports no JAX.
"""

import hashlib
import logging
import platform
import shutil
import subprocess
import tempfile
from importlib import resources
from pathlib import Path

from stages import cache

log = logging.getLogger(__name__)

FOLDER = cache.FOLDER / "kernels"

COMPILERS = ("c++", "g++", "clang++")

SOURCES = (
    "kernels.cc",
    "common.h",
    "lanes.h",
    "rows.h",
    "products.h",
    "attention.h",
    "top.h",
    "team.h",
    "block.h",
)

FLAGS = ("-std=c++17", "-O3", "-ffp-contract=fast", "-fno-math-errno", "-fPIC", "-shared")

BUILD_SECONDS = 100.0
"""It takes 10 s here. Others wait `cache.LOCK_SECONDS` for it, which is longer."""


def library(headers: Path, folder: Path = FOLDER) -> Path | None:
    """The library built against XLA's `headers`, or None.

    The file's own digest lies beside it, so that a damaged one is built again, not loaded.
    """
    compiler = next(filter(None, map(shutil.which, COMPILERS)), None)
    if compiler is None:
        return None
    if refused := cache.refused(folder):
        log.warning("no kernels: %s", refused)
        return None
    try:
        name = _name(compiler, headers)
        file, seal = folder / f"{name}.so", folder / f"{name}.sha256"
        if not _sealed(file, seal):
            with cache.turn(folder):
                if not _sealed(file, seal):  # another process may have built it meanwhile
                    _build(compiler, headers, file)
                    seal.write_text(_digest(file))
    except subprocess.CalledProcessError as error:
        said = error.stderr.decode(errors="replace").strip().splitlines()[-1:]
        log.warning("no kernels, %s fails: %s", compiler, "".join(said) or error)
        return None
    except (OSError, subprocess.SubprocessError) as error:
        log.info("no kernels: %s", error)
        return None
    return file


def _name(compiler: str, headers: Path) -> str:
    made = hashlib.sha256(repr((FLAGS, platform.machine(), compiler)).encode())
    version = subprocess.run(
        [compiler, "--version"], capture_output=True, check=True, timeout=BUILD_SECONDS
    )
    made.update(version.stdout)
    for source in SOURCES:
        made.update(resources.files(__package__).joinpath(source).read_bytes())
    for header in sorted((headers / "xla" / "ffi" / "api").glob("*.h")):
        made.update(header.read_bytes())
    return made.hexdigest()[:32]


def _build(compiler: str, headers: Path, file: Path) -> None:
    """Compile into a file of its own, then put it in place whole."""
    with (
        resources.as_file(resources.files(__package__)) as sources,
        tempfile.TemporaryDirectory(dir=file.parent) as room,
    ):
        made = Path(room) / file.name
        command = [compiler, *FLAGS, "-isystem", str(headers), str(sources / SOURCES[0])]
        subprocess.run(
            [*command, "-o", str(made)], capture_output=True, check=True, timeout=BUILD_SECONDS
        )
        made.replace(file)


def _sealed(file: Path, seal: Path) -> bool:
    try:
        return seal.read_text() == _digest(file)
    except (OSError, UnicodeDecodeError):
        return False


def _digest(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()
