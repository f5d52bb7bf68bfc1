"""Reports, a manifest and plans of no real machine."""

from collections.abc import Sequence

from kafila import PROTOCOL, __version__
from kafila.derive import plan_probes
from kafila.manifest import Manifest
from kafila.net.identity import Identity
from kafila.planfile import PlanFile
from kafila.probe.report import Probes, Report, Workspace

MANIFEST = Manifest(
    name="example/tiny",
    revision=None,
    digest="sha256:" + "0" * 64,
    dtype="float32",
    blocks=12,
    hidden=64,
    heads=4,
    kv_heads=2,
    head_dim=16,
    ffn=128,
    vocab=512,
    tied=True,
    max_context=8192,
    block_bytes=200_000,
    head_read_bytes=131_328,
    head_resident_bytes=131_328,
    kv_bytes=256,
)


def report(name: str, key: bytes, exchange_key: bytes = bytes(32)) -> Report:
    """A report like any other, of a member with these keys."""
    return Report(
        name=name,
        key=key.hex(),
        exchange_key=exchange_key.hex(),
        platform="cpu",
        hardware=f"the processor of {name}",
        machine=f"machine of {name}",
        machine_bytes=1 << 34,
        version=__version__,
        protocol=PROTOCOL,
        measured_for="standard",
        bandwidth=20_000_000_000,
        bandwidth_spread=1_000_000_000,
        overhead_us=50,
        overhead_spread_us=5,
        flops=100_000_000_000,
        flops_spread=1_000_000_000,
        rows_ns={1: 10_000, 2: 11_000, 4: 12_000},
        room_bytes=1 << 33,
        runtime_bytes=200_000_000,
        workspace=Workspace(base_bytes=1_000_000, row_bytes=1000, context_bytes=100),
        rtt_us=900,
        rtt_spread_us=40,
    )


def plan(members: Sequence[tuple[str, Identity]], context: int = 512) -> PlanFile:
    """A plan for these members, as `kafila plan` makes it."""
    reports = tuple(report(name, who.key, who.exchange_key) for name, who in members)
    probes = Probes(manifest=MANIFEST, host=members[0][0], reports=reports)
    return plan_probes(probes, context=context, concurrency=2)
