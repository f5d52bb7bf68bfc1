"""Network namespaces of Linux: made, entered by a thread, removed, and found again after a crash.

Knows no NATs and no addresses. Needs root. A name tells which process made it, so that a later run
may remove what a killed one left behind and leave alone what a living one uses.
"""

import ctypes
import itertools
import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path

PREFIX = "kafila"
_CLONE_NEWNET = 0x40000000
_FOLDER = Path("/run/netns")
_libc = ctypes.CDLL(None, use_errno=True)
_runs = itertools.count(1)


class Namespace:
    """One named network namespace, its loopback device up. End it with `remove`."""

    def __init__(self, name: str) -> None:
        self.name = name
        ip("netns", "add", name)
        ip("-n", name, "link", "set", "lo", "up")

    @contextmanager
    def entered(self) -> Iterator[None]:
        """This thread is in the namespace: sockets it makes and processes it starts stay there."""
        with Path("/proc/thread-self/ns/net").open() as before:
            with (_FOLDER / self.name).open() as there:
                _enter(there.fileno())
            try:
                yield
            finally:
                _enter(before.fileno())

    def ip(self, *words: str) -> None:
        """Run `ip WORDS` in it."""
        ip("-n", self.name, *words)

    def set(self, key: str, value: int) -> None:
        """Set a kernel variable, as in net/ipv4/ip_forward."""
        with self.entered():
            (Path("/proc/sys") / key).write_text(str(value))

    def remove(self) -> None:
        """End its processes and delete it."""
        _remove(self.name)


def ip(*words: str) -> str:
    """Run `ip WORDS`; raises OSError with what it said if it fails."""
    done = subprocess.run(["ip", *words], capture_output=True, text=True, check=False)
    if done.returncode:
        raise OSError(f"ip {' '.join(words)}: {done.stderr.strip()}")
    return done.stdout


def prefix() -> str:
    """A new prefix for the names of one lab."""
    return f"{PREFIX}-{os.getpid()}-{next(_runs)}-"


def remove_leftovers() -> list[str]:
    """Remove the namespaces whose maker is gone, and the processes in them; returns the names."""
    gone = [name for name in _names() if not Path("/proc", name.split("-")[1]).exists()]
    for name in gone:
        _remove(name)
    return gone


@cache
def why_not() -> str | None:
    """Why no lab can be built here; None where it can."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    if not Path("/dev/net/tun").exists():
        return "there is no /dev/net/tun"
    try:
        trial = Namespace(f"{prefix()}trial")
    except OSError as error:
        return f"no network namespace can be made: {error}"
    try:
        with trial.entered():
            subprocess.run(["nft", "add table ip nat"], capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError) as error:
        return f"nftables does not work here: {error}"
    finally:
        trial.remove()
    return None


def _names() -> list[str]:
    names = (path.name for path in _FOLDER.glob(f"{PREFIX}-*-*-*"))
    return [name for name in names if name.split("-")[1].isdigit()]


def _remove(name: str) -> None:
    """What does not exist is removed already."""
    if not (_FOLDER / name).exists():
        return
    try:
        for pid in ip("netns", "pids", name).split():
            with suppress(ProcessLookupError):
                os.kill(int(pid), signal.SIGKILL)
        ip("netns", "del", name)
    except OSError:
        if (_FOLDER / name).exists():  # otherwise another run was faster
            raise


def _enter(namespace: int) -> None:
    if _libc.setns(namespace, _CLONE_NEWNET) != 0:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))
