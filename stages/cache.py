"""The folder in which this user's compiled code is kept, and turns at writing to it.

What lies there is run as code: it is of this user and machine alone. Imports no JAX.
"""

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

LOCK_SECONDS = 120.0
"""Wait this long for another process that compiles; the largest executable takes a tenth on CPU."""

FOLDER = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "kafila"


def refused(folder: Path) -> str:
    """Make the folder if need be. Why it will not do, in a clause; empty if it is this user's and
    nobody else can write to it."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = folder.stat()
    except OSError as error:
        return f"{folder} cannot be made ({error.strerror}); XDG_CACHE_HOME names another place"
    if status.st_uid != os.getuid() or status.st_mode & 0o022:
        return f"{folder} is not this user's alone; chmod go-w it, or remove it"
    return ""


@contextmanager
def turn(folder: Path) -> Iterator[None]:
    """One process at a time, in a folder that is made if need be.

    Without a lock (the folder cannot be written or locked, or its holder hangs) two may do the same
    work.
    """
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        handle = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
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
            except OSError:  # some network file systems have no locks
                break
        yield
    finally:
        os.close(handle)
