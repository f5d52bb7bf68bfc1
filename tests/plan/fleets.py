"""Fleets for the planner's tests, in plain values and as report files."""

import hashlib
from pathlib import Path
from typing import Any

from kafila.manifest import Manifest
from kafila.plan.values import Device, Load, Model, Nat, Workspace
from kafila.probe import report as files

PLANFILES = Path(__file__).parents[2] / "planfiles"
LAN = PLANFILES / "lan-qwen3-8b.probes.yaml"

GB = 10**9
ROOMY = 10**15

MACS = {"m3max": 264.4, "ultra": 344.0, "studio": 308.7, "m4max": 351.2, "pro": 177.6}
"""Five Macs with their measured bandwidths in GB/s."""


def key(name: str) -> str:
    return hashlib.sha256(name.encode()).hexdigest()


def model(blocks: int = 4, **changes: Any) -> Model:
    sizes = {"block_bytes": GB, "head_read_bytes": 0, "head_resident_bytes": 0, "kv_bytes": 1}
    shape = {"max_context": 1 << 20, "hidden": 1000, "itemsize": 2}
    return Model(**{"name": "tiny", "blocks": blocks, **shape, **sizes, **changes})


def device(name: str, bandwidth: float = 100 * GB, **changes: Any) -> Device:
    plain = {
        "key": key(name),
        "machine": name,
        "machine_bytes": ROOMY,
        "overhead_us": 0,
        "flops": 10**14,
        "rows_ns": ((1, 1000),),
        "room_bytes": ROOMY,
        "runtime_bytes": 0,
        "workspace": Workspace(0, 0, 0),
        "rtt_us": None,
        "nat": PERMISSIVE,
    }
    return Device(**{"name": name, "bandwidth": round(bandwidth), **plain, **changes})


ONE = Load(context=1, concurrency=1)


def macs(**changes: Any) -> list[Device]:
    """On one private network, with the memory they were sold with as their room."""
    return [
        device(name, speed * GB, **{"room_bytes": memory * GB, **changes})
        for (name, speed), memory in zip(MACS.items(), (36, 96, 64, 96, 36), strict=True)
    ]


PERMISSIVE = Nat("endpoint-independent", "endpoint-independent")
ORDINARY = Nat("endpoint-independent", "address-and-port-dependent")
RESTRICTIVE = Nat("address-and-port-dependent", "address-and-port-dependent")


def report(name: str, **changes: Any) -> files.Report:
    plain = {
        "key": key("sign " + name),
        "exchange_key": key("exchange " + name),
        "platform": "cpu",
        "hardware": "a plausible processor",
        "machine": "machine of " + name,
        "machine_bytes": 12 * 2**30,
        "version": "0.1.0",
        "protocol": 1,
        "measured_for": "standard",
        "bandwidth": 30 * GB,
        "bandwidth_spread": GB,
        "overhead_us": 50,
        "overhead_spread_us": 2,
        "flops": 10**12,
        "flops_spread": 10**10,
        "rows_ns": {1: 90_000, 2: 95_000, 4: 130_000},
        "room_bytes": 12 * 2**30,
        "runtime_bytes": 2**28,
        "workspace": files.Workspace(base_bytes=2**24, row_bytes=2**20, context_bytes=2**10),
        "nat": files.Nat(mapping="endpoint-independent", filtering="endpoint-independent"),
    }
    return files.Report(**{"name": name, **plain, **changes})


def manifest(**changes: Any) -> Manifest:
    sizes = {
        "name": "tiny",
        "revision": None,
        "digest": "sha256:" + key("tiny"),
        "dtype": "bfloat16",
        "blocks": 12,
        "hidden": 256,
        "heads": 4,
        "kv_heads": 2,
        "head_dim": 64,
        "ffn": 512,
        "vocab": 4096,
        "tied": True,
        "max_context": 8192,
        "block_bytes": 3 * 2**20,
        "head_read_bytes": 2**21,
        "head_resident_bytes": 2**21,
        "kv_bytes": 512,
    }
    return Manifest(**{**sizes, **changes})


def probes(*names: str, **changes: Any) -> files.Probes:
    reports = tuple(report(name) for name in names)
    return files.Probes(**{"manifest": manifest(), "reports": reports, **changes})
