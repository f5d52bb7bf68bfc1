"""Measures this machine's device for a model's shapes and writes it down as a report.

How a block computes is `stages`' business: the same code that will serve is what is timed here.
"""

import fcntl
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from kafila import PROTOCOL, __version__, defaults
from kafila.errors import UsageProblem
from kafila.manifest import Manifest
from kafila.net.identity import Identity
from kafila.probe import machine
from kafila.probe.report import Report, Workspace

OnProgress = Callable[[str, int, int], None]
"""What is being measured, how many measurements are done, how many there are."""


def measure(
    name: str, identity: Identity, manifest: Manifest | None, on_progress: OnProgress
) -> Report:
    """This machine's report, for the shapes of `manifest` or else the standard ones.

    Takes seconds. Members on one machine measure one after the other, else each would see the
    others' load as its own slowness.
    """
    with _turn():
        from stages import kernels
        from stages.measure import Shapes, measure_device

        shapes = Shapes.standard() if manifest is None else Shapes.of(manifest)
        found = measure_device(shapes, on_progress)
        chosen = kernels.chosen()
        computing = (
            f"{machine.processor()}, {chosen.name} kernels" if chosen else machine.processor()
        )
        if found.device_bytes is None:
            usable = machine.host_memory()
        else:  # devices with memories of their own
            usable = int(found.device_bytes * (1 - defaults.DEVICE_RESERVE_SHARE))
    return Report(
        name=name,
        key=identity.key.hex(),
        exchange_key=identity.exchange_key.hex(),
        platform=found.platform,
        hardware=machine.printable(found.device) or computing,
        machine=machine.machine_id(found.device_ids),
        machine_bytes=usable,
        version=__version__,
        protocol=PROTOCOL,
        measured_for="standard" if manifest is None else manifest.digest,
        bandwidth=found.bandwidth,
        bandwidth_spread=found.bandwidth_spread,
        overhead_us=found.overhead_us,
        overhead_spread_us=found.overhead_spread_us,
        flops=found.flops,
        flops_spread=found.flops_spread,
        rows_ns=found.rows_ns,
        block_ns=found.block_ns,
        room_bytes=usable,
        runtime_bytes=found.runtime_bytes,
        workspace=Workspace(
            base_bytes=found.workspace_base,
            row_bytes=found.workspace_row,
            context_bytes=found.workspace_context,
        ),
    )


@contextmanager
def _turn() -> Iterator[None]:
    """Wait until no other probe of this user measures on this machine."""
    path = Path(defaults.CACHE).expanduser() / "probe.lock"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise UsageProblem(f"{path}: {(error.strerror or str(error)).lower()}") from None
    try:
        deadline = time.monotonic() + defaults.PROBE_TURN_SECONDS
        while True:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise UsageProblem(
                        f"another probe has been measuring on this machine for "
                        f"{defaults.PROBE_TURN_SECONDS:.0f} s; end it and probe again"
                    ) from None
                time.sleep(0.05)
        yield
    finally:
        os.close(handle)
