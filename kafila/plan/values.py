"""The planner's words: model, device, load, stage, plan. Plain values that know no file format.

Sizes are whole bytes, rates bytes per second. Times the planner computes are float microseconds;
whoever writes them down rounds.
"""

from dataclasses import dataclass
from typing import Literal

Path = Literal["direct", "relayed"]
Behaviour = Literal[
    "endpoint-independent", "address-dependent", "address-and-port-dependent", "unknown"
]
"""Of a NAT, as RFC 4787 names them, for mapping and for filtering."""

Strategy = Literal["load", "bottleneck", "uniform", "memory", "bandwidth"]
Tier = Literal["full", "arithmetic", "working-set"]
Order = Literal["cost", "relays"]


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
    hidden: int
    itemsize: int
    """Bytes of a number in a hidden state, and of a weight unless `int8`."""
    int8: bool = False
    """Whether the blocks' matrices take a byte a weight."""

    @property
    def weight_bytes(self) -> int:
        """What one weight of a block takes."""
        return 1 if self.int8 else self.itemsize

    @property
    def wire_bytes(self) -> int:
        """What one token's activations are on an edge."""
        return self.hidden * self.itemsize


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
class Nat:
    """How a member can be reached: what its NAT does, and where it stands.

    `blocked`: no UDP at all. `public` is its address as the rendezvous sees it, `networks` are its
    local ones (with what names their router, where that is known), `ipv6` says that it has a global
    IPv6 address.
    """

    mapping: Behaviour = "unknown"
    filtering: Behaviour = "unknown"
    blocked: bool = False
    public: str | None = None
    networks: tuple[str, ...] = ()
    ipv6: bool = False


@dataclass(frozen=True, slots=True)
class Device:
    """One member as its probe measured it; what could not be measured is None or empty.

    `machine` names the machine and, after a colon, the memories that its room is equal parts of,
    with commas; RAM has no name. `machine_bytes` is what those can hold now for all members
    together, their reserve taken off; `flops` are operations per second of a
    prefill-sized product; `rows_ns` holds (rows, time of one block at that many rows) in rising
    order of rows, starting at one row, and `block_ns` is what of that time is not reading;
    `rtt_us` is the round trip to the rendezvous, `pairs_us` those to other members, by name;
    `upload` the bytes per second it can send.
    """

    name: str
    key: str
    machine: str
    machine_bytes: int
    bandwidth: int | None
    overhead_us: int | None
    flops: int | None
    rows_ns: tuple[tuple[int, int], ...]
    room_bytes: int
    runtime_bytes: int
    workspace: Workspace
    rtt_us: int | None
    pairs_us: tuple[tuple[str, int], ...] = ()
    upload: int | None = None
    nat: Nat = Nat()
    block_ns: int = 0

    @property
    def host(self) -> str:
        """The machine, whichever of its memories the room is part of."""
        return self.machine.partition(":")[0]

    @property
    def memories(self) -> tuple[str, ...]:
        """Each memory that holds an equal part, by a name of its own."""
        host, _, memories = self.machine.partition(":")
        return tuple(f"{host}:{memory}" for memory in dict.fromkeys(memories.split(",")))


@dataclass(frozen=True, slots=True)
class Load:
    """What the plan is made for: `concurrency` requests of up to `context` tokens each."""

    context: int
    concurrency: int


@dataclass(frozen=True, slots=True)
class Affine:
    """A device's stage cost fixed + n * per (per > 0) and its lim(i), the most blocks it holds."""

    fixed: float
    per: float
    limit: int

    def cost(self, blocks: int) -> float:
        """Stage time with that many blocks."""
        return self.fixed + blocks * self.per

    def most(self, bound: float) -> int:
        """The most blocks whose cost is within `bound`, exactly as `cost` rounds; 0 if none."""
        blocks = int(min(max((bound - self.fixed) / self.per, 0), self.limit))
        while blocks < self.limit and self.cost(blocks + 1) <= bound:
            blocks += 1
        while blocks > 0 and self.cost(blocks) > bound:
            blocks -= 1
        return blocks


@dataclass(frozen=True, slots=True)
class Division:
    """Block counts in the order the devices were given, and in how many groups requests travel.

    `cost_us` is what the strategy minimises: the slowest stage, or the time between tokens.
    """

    counts: tuple[int, ...]
    cost_us: float
    groups: int = 1


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
    full KV cache; `load_us` is a step with a group's rows and full caches. They are None where
    the member's bandwidth or overhead is missing. A ring of one has no edge.
    """

    device: Device
    blocks: range
    stage_us: float | None
    context_us: float | None
    load_us: float | None
    need_bytes: int
    room_bytes: int
    edge: Edge | None


@dataclass(frozen=True, slots=True)
class Predictions:
    """Microseconds from the cost model.

    `bottleneck_us`: the slowest stage. `token_us`: between tokens of a lone request with an empty
    cache, `token_full_us` with a full one. `shared_token_us`: between tokens of each of
    `concurrency` requests with full caches. `network_us`: once round the ring, which is part of
    `token_us`; None where an edge was not timed (it then counts nothing, and the others are lower
    bounds). `first_token_us`: from a prompt to its first token; None where arithmetic was not
    measured.
    """

    bottleneck_us: float
    token_us: float
    token_full_us: float
    shared_token_us: float
    network_us: float | None
    first_token_us: float | None


@dataclass(frozen=True, slots=True)
class Outlook:
    """What another strategy would do on the same ring: its head, one user, `concurrency` users."""

    head: str
    token_us: float
    shared_token_us: float


@dataclass(frozen=True, slots=True)
class Choice:
    """What is decided, by the planner or by hand: who comes after whom, over which path, and who
    holds how much. `ring[0]` is the head; `paths[i]` leads from `ring[i]` to the next."""

    ring: tuple[Device, ...]
    counts: tuple[int, ...]
    paths: tuple[Path, ...]
    groups: int


@dataclass(frozen=True, slots=True)
class Figures:
    """Everything that follows from a choice; predictions only where every stage can be priced."""

    ring: tuple[Stage, ...]
    predictions: Predictions | None


@dataclass(frozen=True, slots=True)
class Derived:
    """All that a plan says beside its decisions.

    `load_outlook` and `bottleneck_outlook` are the two strategies that use the cost model on this
    ring order, None where one does not fit; `warnings` say what speaks against the plan.
    """

    ring: tuple[Stage, ...]
    predictions: Predictions | None
    load_outlook: Outlook | None
    bottleneck_outlook: Outlook | None
    warnings: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Plan:
    """What was decided, how, and all that follows; `ring[0]` is the head.

    `forced`: it does not fit and was asked for all the same. `notes` say why it is as it is.
    """

    load: Load
    strategy: Strategy
    tier: Tier
    order: Order
    groups: int
    forced: bool
    notes: tuple[str, ...]
    derived: Derived

    @property
    def ring(self) -> tuple[Stage, ...]:
        """The stages in ring order."""
        return self.derived.ring

    @property
    def predictions(self) -> Predictions | None:
        """Of the cost model; None in a tier that prices no stage."""
        return self.derived.predictions
