"""The planner's words: model, device, load, stage, plan. Plain values that know no file format.

Sizes are whole bytes, rates bytes per second. Times the planner computes are float microseconds;
whoever writes them down rounds.
"""

from dataclasses import dataclass
from typing import Literal

Path = Literal["direct", "relayed"]


@dataclass(frozen=True, slots=True)
class Model:
    """What planning needs of a checkpoint (DESIGN section 2): sizes, never weights.

    `head_read_bytes` is what the head reads per token (the unembedding), `head_resident_bytes`
    what it keeps (embedding, final norm, unembedding); `kv_bytes` is per token and block.
    """

    name: str
    blocks: int
    max_context: int
    block_bytes: int
    head_read_bytes: int
    head_resident_bytes: int
    kv_bytes: int


@dataclass(frozen=True, slots=True)
class Workspace:
    """Memory of a compiled stage beside weights and KV: base + rows*row + context*context_."""

    base_bytes: int
    row_bytes: int
    context_bytes: int

    def at(self, rows: int, context: int) -> int:
        """Bytes with `rows` requests a step and caches of `context` tokens."""
        return self.base_bytes + rows * self.row_bytes + context * self.context_bytes


@dataclass(frozen=True, slots=True)
class Device:
    """One member as its probe measured it.

    `machine` names the memory its room is part of, `machine_bytes` how large that memory is;
    `rows_ns` holds (rows, time of one block at that many rows) in rising order of rows, starting
    at one row; `rtt_us` is the round trip to the rendezvous, None when it was not timed.
    """

    name: str
    key: str
    machine: str
    machine_bytes: int
    bandwidth: int
    overhead_us: int
    rows_ns: tuple[tuple[int, int], ...]
    room_bytes: int
    runtime_bytes: int
    workspace: Workspace
    rtt_us: int | None


@dataclass(frozen=True, slots=True)
class Load:
    """What the plan is made for: `concurrency` requests of up to `context` tokens each."""

    context: int
    concurrency: int


@dataclass(frozen=True, slots=True)
class Division:
    """Block counts in the order the devices were given, and the slowest stage in microseconds."""

    counts: tuple[int, ...]
    bottleneck_us: float


@dataclass(frozen=True, slots=True)
class Edge:
    """The way from a stage to the next: `cost_us` is the round trip, None where nobody timed."""

    to: str
    path: Path
    cost_us: int | None


@dataclass(frozen=True, slots=True)
class Stage:
    """One member of the ring with what it holds and what that costs.

    `stage_us` is eq. 2 (one row, empty cache); `context_us` is added by reading one request's
    full KV cache. A ring of one has no edge.
    """

    device: Device
    blocks: range
    stage_us: float
    context_us: float
    need_bytes: int
    room_bytes: int
    edge: Edge | None


@dataclass(frozen=True, slots=True)
class Predictions:
    """Microseconds from the cost model.

    `bottleneck_us`: the slowest stage. `token_us`: between tokens of a lone request with an empty
    cache, `token_full_us` with a full one. `shared_token_us`: between tokens of each of
    `concurrency` requests with full caches.
    """

    bottleneck_us: float
    token_us: float
    token_full_us: float
    shared_token_us: float


@dataclass(frozen=True, slots=True)
class Plan:
    """A division that was decided, with everything derived from it; `ring[0]` is the head."""

    model: Model
    load: Load
    groups: int
    ring: tuple[Stage, ...]
    predictions: Predictions
    notes: tuple[str, ...]
