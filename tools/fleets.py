"""Report files of fleets that could exist, from public figures of their devices.

`python -m tools.fleets FLEET MODEL > probes.yaml` writes one; `planfiles/` holds the plans. Rates
are what a stage gets of a device (70 to 92 per cent of its maker's bandwidth), rooms what is left
of its memory beside the system. No real machine, address or key is in them.
"""

import hashlib
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from kafila import PROTOCOL, __version__
from kafila.manifest import Manifest
from kafila.plan.values import Behaviour
from kafila.probe.report import Nat, Probes, Report, Session, Workspace, render_probes
from stages.config import Qwen3Config

GIB = 1 << 30
FLAT = {1: 1.0, 2: 1.01, 4: 1.02, 8: 1.05, 16: 1.12}
RISING = {1: 1.0, 2: 1.03, 4: 1.09, 8: 1.24, 16: 1.6}
"""How a block's time grows with the rows of a step: on a graphics card, on a laptop's."""


@dataclass(frozen=True)
class Kind:
    """A device: rates in GB/s and TFLOP/s, overhead in microseconds, room and runtime in GiB."""

    platform: str
    hardware: str
    bandwidth: float
    overhead_us: int
    flops: float
    room: float
    runtime: float
    rows: Mapping[int, float] = field(default_factory=lambda: FLAT)


RTX_4090 = Kind("cuda", "NVIDIA GeForce RTX 4090", 925, 38, 150, 22.1, 0.5)
RTX_3090 = Kind("cuda", "NVIDIA GeForce RTX 3090", 860, 44, 68, 22.1, 0.5)
RTX_4060 = Kind("cuda", "NVIDIA GeForce RTX 4060 Ti", 262, 42, 42, 14.7, 0.5)
A40_12 = Kind("cuda", "NVIDIA A40-12Q", 598, 41, 112, 10.9, 0.5)
A40_24 = Kind("cuda", "NVIDIA A40-24Q", 598, 41, 112, 21.9, 0.5)
H100_40 = Kind("cuda", "NVIDIA H100 80GB HBM3 MIG 3g.40gb", 1510, 34, 310, 37.8, 0.53)
M3_PRO = Kind("metal", "Apple M3 Pro", 136, 95, 6.1, 11.8, 0.23, RISING)


def mac(hardware: str, bandwidth: float, flops: float, memory: float) -> Kind:
    """A Mac whose graphics may use three quarters of its memory."""
    return Kind("metal", hardware, bandwidth, 85, flops, memory * 0.75, 0.23, RISING)


@dataclass(frozen=True)
class Place:
    """Where a member stands: round trip to the rendezvous in ms, NAT, uplink in Mbit/s, if slow."""

    rtt: float
    mapping: Behaviour = "endpoint-independent"
    filtering: Behaviour = "address-and-port-dependent"
    public: str = ""
    network: str = ""
    uplink: float | None = None


def lan(rtt: float) -> Place:
    """One private network."""
    return Place(rtt, "address-and-port-dependent", public="203.0.113.7", network="192.168.7.0/24")


def home(rtt: float, site: int, uplink: float) -> Place:
    """Behind a home router, as most are."""
    public = f"198.51.100.{site}"
    return Place(rtt, public=public, network="192.168.1.0/24", uplink=uplink)


def strict(rtt: float, site: int, uplink: float | None = None) -> Place:
    """Behind a NAT that maps by destination: a campus, a phone network."""
    public, network = f"198.51.100.{site}", f"10.{site}.0.0/16"
    mapping: Behaviour = "address-and-port-dependent"
    return Place(rtt, mapping, public=public, network=network, uplink=uplink)


FLEETS: dict[str, dict[str, tuple[Kind, Place]]] = {
    "lan": {
        "anna": (RTX_4090, lan(79.1)),
        "lab": (H100_40, lan(78.65)),
        "bert": (M3_PRO, lan(80.4)),
        "shelf": (A40_12, lan(79.3)),
    },
    "region": {
        "anna": (RTX_4090, home(79.4, 11, 40)),
        "lab": (H100_40, home(84.1, 12, 1000)),
        "bert": (M3_PRO, home(114.8, 13, 20)),
        "shelf": (A40_12, home(88.2, 14, 1000)),
        "dora": (RTX_3090, home(97.6, 15, 50)),
    },
    "world": {
        "bert": (M3_PRO, strict(118.0, 21, 20)),
        "anna": (RTX_4090, home(24.2, 22, 40)),
        "lab": (H100_40, strict(31.0, 23)),
        "shelf": (A40_24, strict(31.6, 23)),
        "dora": (RTX_3090, home(187.3, 24, 50)),
        "emil": (RTX_4060, strict(121.5, 25, 100)),
    },
    "macs": {
        "m3max": (mac("Apple M3 Max", 264.4, 12.5, 36), lan(20.1)),
        "ultra": (mac("Apple M3 Ultra", 344.0, 25, 96), lan(20.3)),
        "studio": (mac("Apple M2 Max", 308.7, 12, 64), lan(20.2)),
        "m4max": (mac("Apple M4 Max", 351.2, 16, 96), lan(20.4)),
        "pro": (mac("Apple M4 Pro", 177.6, 9, 36), lan(20.6)),
    },
}
"""The first of each opened the session."""

_QWEN3 = {
    "8b": (4096, 36, 32, 12288),
    "14b": (5120, 40, 40, 17408),
    "32b": (5120, 64, 64, 25600),
}
"""hidden, blocks, heads, ffn; the rest is equal."""


def manifest(size: str) -> Manifest:
    """The manifest of Qwen/Qwen3-SIZE, from its configuration."""
    hidden, blocks, heads, ffn = _QWEN3[size]
    config = Qwen3Config.from_dict(
        {
            "model_type": "qwen3",
            "architectures": ["Qwen3ForCausalLM"],
            "hidden_size": hidden,
            "num_hidden_layers": blocks,
            "num_attention_heads": heads,
            "num_key_value_heads": 8,
            "head_dim": 128,
            "intermediate_size": ffn,
            "vocab_size": 151936,
            "rms_norm_eps": 1e-6,
            "rope_theta": 1000000,
            "tie_word_embeddings": False,
            "max_position_embeddings": 40960,
            "torch_dtype": "bfloat16",
            "hidden_act": "silu",
            "attention_bias": False,
        }
    )
    wide, narrow = heads * 128, 8 * 128
    block = 2 * hidden * (wide + narrow) + 3 * hidden * ffn + 2 * hidden + 2 * 128
    matrix, norm = config.vocab * hidden, hidden
    return Manifest(
        name=f"Qwen/Qwen3-{size.upper()}",
        revision=None,
        digest=config.digest,
        dtype="bfloat16",
        blocks=blocks,
        hidden=hidden,
        heads=heads,
        kv_heads=8,
        head_dim=128,
        ffn=ffn,
        vocab=config.vocab,
        tied=False,
        max_context=config.max_positions,
        block_bytes=2 * block,
        head_read_bytes=2 * (matrix + norm),
        head_resident_bytes=2 * (2 * matrix + norm),
        kv_bytes=config.kv_bytes,
    )


def fleet(name: str, size: str) -> Probes:
    """The reports of a fleet that probed for Qwen3-SIZE."""
    model = manifest(size)
    members = FLEETS[name]
    return Probes(
        manifest=model,
        session=Session(rendezvous="meet.example.org:4710", rendezvous_key=_digest("meet")),
        host=next(iter(members)),
        reports=tuple(_report(who, kind, at, model) for who, (kind, at) in members.items()),
    )


def _report(name: str, kind: Kind, at: Place, model: Manifest) -> Report:
    bandwidth, flops = round(kind.bandwidth * 1e9), round(kind.flops * 1e12)
    one = model.block_bytes * 1e9 / bandwidth
    measured: dict[str, Any] = {
        "bandwidth": bandwidth,
        "bandwidth_spread": bandwidth * 6 // 1000,
        "overhead_us": kind.overhead_us,
        "overhead_spread_us": kind.overhead_us // 20,
        "flops": flops,
        "flops_spread": flops // 50,
        "rows_ns": {rows: round(one * more) for rows, more in kind.rows.items()},
    }
    return Report(
        name=name,
        key=_digest(f"key of {name}"),
        exchange_key=_digest(f"exchange key of {name}"),
        platform=kind.platform,
        hardware=kind.hardware,
        machine=_digest(f"machine of {name}")[:16],
        machine_bytes=round(kind.room * GIB),
        version=__version__,
        protocol=PROTOCOL,
        measured_for=model.digest,
        room_bytes=round(kind.room * GIB),
        runtime_bytes=round(kind.runtime * GIB),
        workspace=Workspace(base_bytes=48 << 20, row_bytes=8 * model.vocab, context_bytes=4096),
        rtt_us=round(at.rtt * 1000),
        rtt_spread_us=900,
        upload=None if at.uplink is None else round(at.uplink * 125_000),
        nat=Nat(
            mapping=at.mapping, filtering=at.filtering, public=at.public, networks=(at.network,)
        ),
        **measured,
    )


def _digest(words: str) -> str:
    return hashlib.sha256(f"kafila example: {words}".encode()).hexdigest()


if __name__ == "__main__":
    if len(sys.argv) != 3 or sys.argv[1] not in FLEETS or sys.argv[2] not in _QWEN3:
        sys.exit(f"usage: python -m tools.fleets {{{','.join(FLEETS)}}} {{{','.join(_QWEN3)}}}")
    sys.stdout.write(render_probes(fleet(*sys.argv[1:])))
