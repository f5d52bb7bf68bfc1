"""What this machine is and what it can hold. Imports no JAX unless a device must be asked."""

import hashlib
import platform
import uuid
from collections.abc import Sequence
from pathlib import Path

import psutil

from kafila import defaults


def machine_id(devices: Sequence[str] = ()) -> str:
    """Names this machine's RAM, or the memories of these of its devices: the machine comes first,
    and what two members share has one name.

    Digests, so that a report gives away neither serial numbers nor addresses.
    """
    machine, *memories = (
        hashlib.sha256(f"kafila machine|{_serial()}|{each}".encode()).hexdigest()
        for each in ("", *devices)
    )
    return ":".join([machine[:16], ",".join(each[:8] for each in memories)]).rstrip(":")


def _serial() -> str:
    for source in ("/etc/machine-id", "/var/lib/dbus/machine-id"):
        try:
            text = Path(source).read_text().strip()
        except OSError:
            continue
        if text:
            return text
    return f"{uuid.getnode():x}"


def host_memory() -> int:
    """RAM that members can use: what is available now, within the control group's limit, less the
    system's reserve. One byte where there is none, which the planner then refuses by name."""
    ram = psutil.virtual_memory()
    total, usable = int(ram.total), int(ram.available)
    limit = _cgroup_limit()
    if limit is not None and limit < total:
        total, usable = limit, min(usable, limit - _cgroup_used())
    reserve = max(defaults.RESERVE_BYTES, int(total * defaults.RESERVE_SHARE))
    return max(1, usable - reserve)


def _cgroup_limit() -> int | None:
    return _number(Path("/sys/fs/cgroup/memory.max"))


def _cgroup_used() -> int:
    return _number(Path("/sys/fs/cgroup/memory.current")) or 0


def _number(path: Path) -> int | None:
    try:
        text = path.read_text().strip()
    except OSError:
        return None
    return int(text) if text.isdigit() else None


def processor() -> str:
    """The CPU in its maker's words, with the number of cores this process may use."""
    name = platform.processor() or platform.machine()
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                name = line.partition(":")[2].strip()
                break
    except OSError:
        pass  # not Linux: the platform module's word will do
    affinity = getattr(psutil.Process(), "cpu_affinity", None)
    cores = len(affinity()) if affinity else psutil.cpu_count() or 1
    return f"{printable(name)}, {cores} core{'s' if cores != 1 else ''}"


def printable(text: str) -> str:
    """A maker's words on one line of characters that any terminal shows."""
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())
