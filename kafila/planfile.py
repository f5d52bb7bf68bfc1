"""The plan file: its model, strict reader and digest.

Knows what a plan says, not how it is worded (`kafila.plantext`), made (`kafila.plan`) or derived
anew after an edit (`kafila.derive`).
"""

import hashlib
import json
from collections.abc import Iterator
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, field_validator

from kafila import yamlfile
from kafila.defaults import MAX_CONCURRENCY, MAX_MEMBERS
from kafila.plan import values
from kafila.probe.report import Nat, Rows, Workspace, rows_from_one, session_id
from kafila.schema import (
    Address,
    Count,
    Digest,
    Figure,
    Key,
    Name,
    Strict,
    Whole,
    Words,
    build,
    without_absent,
)
from kafila.yamlfile import Document, Place
from stages.config import LIMITS, Kept

Requests = Annotated[int, Field(ge=1, le=MAX_CONCURRENCY)]
BlockRange = Annotated[str, Field(pattern=r"^[0-9]{1,9}-[0-9]{1,9}$")]


class Model(Strict):
    """The manifest's part that planning and serving compare; `manifest` is its digest."""

    name: Words
    revision: Words | None
    manifest: Digest
    dtype: Words
    stored: Words | None = None
    """How block matrices lie on disk; left out where that is dtype."""
    kept: Kept | None = None
    """How block matrices sit in memory; left out where that is dtype."""
    blocks: Annotated[int, Field(ge=1, le=LIMITS["blocks"])]
    hidden: Annotated[int, Field(ge=1, le=LIMITS["hidden"])]
    vocab: Annotated[int, Field(ge=1, le=LIMITS["vocab"])]
    max_context: Annotated[int, Field(ge=1, le=LIMITS["max_positions"])]
    block_bytes: Count
    head_read_bytes: Count
    head_resident_bytes: Count
    kv_bytes: Count

    _as_written = without_absent("stored", "kept")


class Session(Strict):
    """Who meets where, and what for. `id` follows from the members' keys.

    `opener` opened the session: the head, unless another is better by more than a margin.
    """

    id: Key
    opener: Name
    rendezvous: Address | None
    rendezvous_key: Key | None
    context: Count
    concurrency: Requests


class Edge(Strict):
    """To the next member of the ring, as predicted.

    `cost_us` is a round trip, null where nobody timed.
    """

    to: Name
    path: Literal["direct", "relayed"]
    cost_us: Figure | None


class Edges(Strict):
    """How members look for direct paths, where that is not the ordinary way.

    `birthday`: where one of two NATs gives every destination another port, many sockets knock at
    many of its ports (docs/nat.md). Both ends must do it, so it is in the digest.
    """

    punch: Literal["birthday"]


class Measured(Strict):
    """The part of a member's report that its figures are derived from."""

    machine: Words
    machine_bytes: Count
    """What the memory it shares can hold for all members together."""
    bandwidth: Count | None
    overhead_us: Whole | None
    flops: Count | None
    rows_ns: Rows | None
    block_ns: Whole | None = None
    runtime_bytes: Whole
    workspace: Workspace
    rtt_us: Whole | None
    pairs_us: dict[Name, Whole]
    upload: Count | None
    nat: Nat | None

    _rows = field_validator("rows_ns")(rows_from_one)
    _as_written = without_absent("block_ns")


class Member(Strict):
    """A stage of the ring: who it is, what it holds, what that costs and needs."""

    name: Name
    key: Key
    exchange_key: Key
    platform: Words
    blocks: BlockRange
    stage_us: Figure | None
    context_us: Figure | None
    load_us: Figure | None
    need_bytes: Figure
    room_bytes: Count
    edge: Edge | None
    measured: Measured

    @property
    def block_range(self) -> range:
        """The blocks it holds."""
        first, last = self.blocks.split("-")
        return range(int(first), int(last) + 1)


class Outlook(Strict):
    """What a strategy does on this ring: see `kafila.plan.values.Outlook`."""

    head: Name
    token_us: Figure
    shared_token_us: Figure


class Strategies(Strict):
    """The two strategies that use the cost model, side by side; null where one does not fit."""

    load: Outlook | None
    bottleneck: Outlook | None


class Predictions(Strict):
    """See `kafila.plan.values.Predictions`; approximate where other shapes were measured.

    All times are null unless the tier is full.
    """

    bottleneck_us: Figure | None
    token_us: Figure | None
    token_full_us: Figure | None
    shared_token_us: Figure | None
    network_us: Figure | None
    first_token_us: Figure | None
    approximate: bool
    strategies: Strategies


class PlanFile(Strict):
    """A whole plan. `ring[0]` is the head."""

    format: Literal[1]
    model: Model
    session: Session
    head: Name
    strategy: values.Strategy
    tier: values.Tier
    order: values.Order
    groups: Requests
    forced: bool
    """It was asked for although it does not fit."""
    edges: Edges | None = None
    """None, and left out of the file, where nothing was asked for."""
    ring: Annotated[tuple[Member, ...], Field(min_length=1, max_length=MAX_MEMBERS, strict=False)]
    predictions: Predictions
    warnings: Annotated[tuple[Words, ...], Field(strict=False)]
    """What speaks against the plan; follows from the rest of it."""
    notes: Annotated[tuple[Words, ...], Field(strict=False)]
    reports: Digest
    """Of the reports the plan was made from."""

    _as_written = without_absent("edges")

    @property
    def digest(self) -> bytes:
        """SHA-256 of the plan's canonical JSON: the same whatever its comments and layout."""
        canonical = json.dumps(
            self.model_dump(mode="json"),
            sort_keys=True,
            separators=(",", ":"),
            ensure_ascii=False,
        )
        return hashlib.sha256(canonical.encode()).digest()


def read(path: str | Path) -> PlanFile:
    """Read a plan; BadFile with file, line and what to write instead."""
    return _checked(yamlfile.read(path))


def parse(text: str, source: str = "plan.yaml") -> PlanFile:
    """`read` of text that is at hand."""
    return _checked(yamlfile.parse(text, source))


def _checked(document: Document) -> PlanFile:
    plan = build(PlanFile, document)
    for place, message in faults(plan):
        raise document.problem(place, message)
    return plan


def faults(plan: PlanFile) -> Iterator[tuple[Place, str]]:
    """What no single field can tell: (place, what to write instead), in the order of the file.

    Figures that follow from others (stage times, needs) are not compared here: editing is normal,
    and `kafila check` derives them anew.
    """
    names = [member.name for member in plan.ring]
    if plan.session.context > plan.model.max_context:
        yield (
            ("session", "context"),
            f"{plan.model.name} reaches {plan.model.max_context} tokens; "
            f"write at most that, not {plan.session.context}",
        )
    if plan.groups > plan.session.concurrency:
        yield (
            ("groups",),
            f"{plan.groups} groups of {plan.session.concurrency} requests leave some empty; "
            f"write at most {plan.session.concurrency}",
        )
    if plan.head not in names:
        yield ("head",), f"no member is named {plan.head}; {_nearest(plan.head, names)}"
    elif plan.head != names[0]:
        yield (
            ("head",),
            f"the head must be first in the ring, which starts with {names[0]}: write head: "
            f"{names[0]} or move {plan.head} to the front",
        )
    if plan.session.opener not in names:
        yield (
            ("session", "opener"),
            f"no member is named {plan.session.opener}; {_nearest(plan.session.opener, names)}",
        )
    yield from _duplicates(plan)
    yield from _range_faults(plan)
    yield from _edge_faults(plan, names)
    wanted = session_id([member.key for member in plan.ring])
    if plan.session.id != wanted:
        yield ("session", "id"), f"not the digest of the members' keys; write id: {wanted}"


def _duplicates(plan: PlanFile) -> Iterator[tuple[Place, str]]:
    for field, meaning in (("name", "name"), ("key", "key")):
        first: dict[str, str] = {}
        for position, member in enumerate(plan.ring):
            value = getattr(member, field)
            if value in first:
                yield (
                    ("ring", position, field),
                    f"two members have the {meaning} {value}; every member needs its own",
                )
            first[value] = member.name


def _range_faults(plan: PlanFile) -> Iterator[tuple[Place, str]]:
    start = 0
    for position, member in enumerate(plan.ring):
        at = ("ring", position, "blocks")
        blocks, last = member.block_range, position == len(plan.ring) - 1
        stop = max(blocks.stop, start + 1)
        instead = f"write {start}-{plan.model.blocks - 1 if last else stop - 1}"
        if len(blocks) == 0:
            yield at, f"{member.blocks} ends before it starts; {instead}"
            return
        if blocks.start > start:
            gap = _span(start, blocks.start - 1)
            yield at, f"nobody before {member.name} holds {gap}; {instead}"
            return
        if blocks.start < start:
            before = plan.ring[position - 1].name
            overlap = _span(blocks.start, min(start, blocks.stop) - 1)
            yield at, f"{before} and {member.name} both hold {overlap}; {instead}"
            return
        if blocks.stop > plan.model.blocks:
            yield (
                at,
                (
                    f"{plan.model.name} has the blocks 0-{plan.model.blocks - 1}, "
                    f"and {member.blocks} goes past them"
                ),
            )
            return
        start = blocks.stop
    if start < plan.model.blocks:
        yield (
            ("ring", len(plan.ring) - 1, "blocks"),
            f"nobody holds {_span(start, plan.model.blocks - 1)}; {instead}",
        )


def _edge_faults(plan: PlanFile, names: list[str]) -> Iterator[tuple[Place, str]]:
    for position, member in enumerate(plan.ring):
        at = ("ring", position, "edge")
        if len(names) == 1:
            if member.edge is not None:
                yield at, "a ring of one has no edges; write edge: null"
            return
        after = names[(position + 1) % len(names)]
        if member.edge is None:
            yield at, f"the edge from {member.name} to {after} is missing; write its group of keys"
        elif member.edge.to not in names:
            yield (*at, "to"), f"no member is named {member.edge.to}; write to: {after}"
        elif member.edge.to != after:
            yield (*at, "to"), f"the next in the ring after {member.name} is {after}; write that"


def _span(first: int, last: int) -> str:
    return f"block {first}" if first == last else f"blocks {first}-{last}"


def _nearest(name: str, names: list[str]) -> str:
    close = get_close_matches(name, names, n=1)
    return f"did you mean {close[0]}?" if close else f"the members are {', '.join(names)}"


def device(member: Member) -> values.Device:
    """The planner's view of a member, from what the plan keeps of its report."""
    measured = member.measured
    return values.Device(
        name=member.name,
        key=member.key,
        machine=measured.machine,
        machine_bytes=measured.machine_bytes,
        bandwidth=measured.bandwidth,
        overhead_us=measured.overhead_us,
        flops=measured.flops,
        rows_ns=tuple((measured.rows_ns or {}).items()),
        block_ns=measured.block_ns or 0,
        room_bytes=member.room_bytes,
        runtime_bytes=measured.runtime_bytes,
        workspace=values.Workspace(**measured.workspace.model_dump()),
        rtt_us=measured.rtt_us,
        pairs_us=tuple(measured.pairs_us.items()),
        upload=measured.upload,
        nat=measured.nat.value() if measured.nat else values.Nat(),
    )
