"""`python -m tools.natlab.probing probe ...`: `kafila probe ...`, but that no device is measured.

All but the device is real: session, code, round trips, NAT. It takes two seconds instead of twenty.
"""

from kafila.cli import main
from kafila.manifest import Manifest
from kafila.net.identity import Identity
from kafila.probe import device
from kafila.probe.device import OnProgress
from kafila.probe.report import Report
from tools.loopback import handmade


def _measure(
    name: str, identity: Identity, manifest: Manifest | None, on_progress: OnProgress
) -> Report:
    assert manifest is not None
    return handmade(name, identity, manifest, machine="the lab's")


if __name__ == "__main__":
    device.measure = _measure
    main()
