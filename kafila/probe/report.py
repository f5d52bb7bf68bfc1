"""What a probe reports of one machine, and the `probes.yaml` that collects the reports.

Pure data and its file; how anything was measured is `kafila.probe.device`'s business.
"""

import hashlib
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, field_validator

from kafila import yamlfile
from kafila.defaults import MAX_MEMBERS
from kafila.manifest import Manifest
from kafila.plan import values
from kafila.plan.reach import PaperClass, paper_class
from kafila.schema import Address, Count, Key, Name, Strict, Whole, Words, build, without_absent
from kafila.words import gib, ms
from kafila.yamlfile import Document, Place

Rows = Annotated[dict[Count, Count], Field(min_length=1, max_length=16)]


def rows_from_one(rows: dict[int, int] | None) -> dict[int, int] | None:
    """Batch measurements must start at one row (all others are read relative to it) and rise."""
    if rows is None:
        return None
    if min(rows) != 1:
        raise ValueError("the measurements must include one row, as in {1: 93400, 2: 95100}")
    return dict(sorted(rows.items()))


class Workspace(Strict):
    """What a compiled stage needs beside weights and KV, from the compiler's own analysis.

    At r rows a step and caches of c tokens: base_bytes + r * row_bytes + c * context_bytes.
    """

    base_bytes: Whole
    row_bytes: Whole
    context_bytes: Whole


NatKind = PaperClass | Literal["none"]


class Nat(Strict):
    """How a member can be reached: RFC 4787's two behaviours, and where it stands."""

    mapping: values.Behaviour
    filtering: values.Behaviour
    blocked: bool = False
    """No UDP passes at all."""
    public: Words | None = None
    """Its IPv4 address as the rendezvous sees it."""
    networks: Annotated[tuple[Words, ...], Field(strict=False, max_length=16)] = ()
    """The local networks it is in, as in `192.168.1.0/24` or `192.168.1.0/24 at 1f0c9a7e`, which
    names its router."""
    ipv6: bool = False
    """It has a global IPv6 address that works."""
    translated: bool | None = None
    """False: its address outside is its own, so there is no NAT; None and left out: not known. For
    display: who may send to it is a matter of filtering, with a NAT or without."""

    _as_written = without_absent("translated")

    @property
    def kind(self) -> NatKind:
        """The paper's class of it, or none where there is no NAT."""
        alike = self.mapping == "endpoint-independent"
        return "none" if self.translated is False and alike else paper_class(self.value())

    def value(self) -> values.Nat:
        """The planner's view."""
        return values.Nat(**self.model_dump(exclude={"translated"}))


class Report(Strict):
    """One member's measurements. A spread is the range from the first to the third quartile.

    What could not be measured is None; the planner then knows less and says so.
    """

    name: Name
    key: Key
    """Ed25519 public key."""
    exchange_key: Key
    """X25519 public key."""
    platform: Words
    """JAX's word: cpu, cuda, metal."""
    hardware: Words
    """The device in its maker's words."""
    machine: Words
    """Names the memory that the room is part of: equal for members that share one memory."""
    machine_bytes: Count
    """What that memory can hold now for all members together, its reserve taken off."""
    version: Words
    protocol: Whole
    measured_for: Annotated[str, Field(pattern=r"^(standard|sha256:[0-9a-f]{64})$")]
    """The digest of the manifest whose shapes were measured, or the standard shapes."""
    bandwidth: Count | None = None
    """Effective bytes per second, with a stage's own access pattern."""
    bandwidth_spread: Whole | None = None
    overhead_us: Whole | None = None
    """Fixed dispatch cost of one stage call."""
    overhead_spread_us: Whole | None = None
    flops: Count | None = None
    """Operations per second in a prefill-sized product."""
    flops_spread: Whole | None = None
    rows_ns: Rows | None = None
    """Time of one block at that many rows a step; it starts at one row."""
    block_ns: Whole | None = None
    """What of a block's time is not reading, whatever its size; None and left out: not told apart
    from the bandwidth."""
    room_bytes: Count
    """What the device can really hold, its reserve taken off. The owner may write another."""
    runtime_bytes: Whole
    """What the process holds before any weight."""
    workspace: Workspace
    rtt_us: Whole | None = None
    """Median round trip to the rendezvous; None where there was none to time."""
    rtt_spread_us: Whole | None = None
    pairs_us: dict[Name, Whole] = Field(default={}, max_length=MAX_MEMBERS)
    """Measured round trips to other members; they replace the bounds that `rtt_us` gives."""
    upload: Count | None = None
    """Bytes per second it can send."""
    nat: Nat | None = None
    """None where it was not classified: taken for the strictest."""

    _rows = field_validator("rows_ns")(rows_from_one)
    _as_written = without_absent("block_ns")

    def device(self) -> values.Device:
        """The planner's view of this member."""
        return values.Device(
            name=self.name,
            key=self.key,
            machine=self.machine,
            machine_bytes=self.machine_bytes,
            bandwidth=self.bandwidth,
            overhead_us=self.overhead_us,
            flops=self.flops,
            rows_ns=tuple((self.rows_ns or {}).items()),
            block_ns=self.block_ns or 0,
            room_bytes=self.room_bytes,
            runtime_bytes=self.runtime_bytes,
            workspace=values.Workspace(**self.workspace.model_dump()),
            rtt_us=self.rtt_us,
            pairs_us=tuple(self.pairs_us.items()),
            upload=self.upload,
            nat=self.nat.value() if self.nat else values.Nat(),
        )


class Session(Strict):
    """Where the members met and can meet again; the session's id follows from their keys."""

    rendezvous: Address
    rendezvous_key: Key | None
    """None: its key is not known yet, and whoever answers there is believed."""


class Probes(Strict):
    """The whole file: reports in the order they came, the model they were made for."""

    format: Literal[1] = 1
    manifest: Manifest | None = None
    session: Session | None = None
    host: Name | None = None
    """Who opened the session: the anchor of head placement; otherwise the first report is."""
    reports: Annotated[
        tuple[Report, ...], Field(min_length=1, max_length=MAX_MEMBERS, strict=False)
    ]

    def digest(self) -> str:
        """Fingerprint of the reports, whatever their file looks like."""
        data = [report.model_dump(mode="json") for report in self.reports]
        canonical = json.dumps(data, sort_keys=True, separators=(",", ":"))
        return "sha256:" + hashlib.sha256(canonical.encode()).hexdigest()


def session_id(keys: Sequence[str]) -> str:
    """The id of the session of these members: SHA-256 over their sorted raw keys, in hex."""
    return hashlib.sha256(b"".join(sorted(bytes.fromhex(key) for key in keys))).hexdigest()


def read_probes(path: str | Path) -> Probes:
    """Read a report file; BadFile with file, line and what to write instead."""
    return _checked(yamlfile.read(path))


def parse_probes(text: str, source: str = "probes.yaml") -> Probes:
    """`read_probes` of text that is at hand."""
    return _checked(yamlfile.parse(text, source))


def _checked(document: Document) -> Probes:
    probes = build(Probes, document)
    names = [report.name for report in probes.reports]
    if probes.host is not None and probes.host not in names:
        raise document.problem(
            ("host",), f"the host {probes.host} has no report here; reports: {', '.join(names)}"
        )
    return probes


def write_probes(probes: Probes, path: str | Path) -> None:
    """Write a report file, or print it where `path` is `-`. Nothing is ever left half-written."""
    text = render_probes(probes)
    if str(path) == "-":
        sys.stdout.write(text)
    else:
        yamlfile.write(path, text)


def render_probes(probes: Probes) -> str:
    """The file's text: exact numbers, with what a person can read beside them."""
    data = probes.model_dump(mode="json")
    comments: dict[Place, str] = {}
    for position, report in enumerate(probes.reports):
        at = ("reports", position)
        notes: Mapping[str, str] = {
            "machine_bytes": gib(report.machine_bytes),
            "bandwidth": _measured(report.bandwidth, 1e9, "GB/s"),
            "overhead_us": _measured(report.overhead_us, 1e3, "ms"),
            "flops": _measured(report.flops, 1e12, "TFLOP/s"),
            "rows_ns": "rows a step: time of one block",
            "block_ns": "of it, what is not reading",
            "room_bytes": f"{gib(report.room_bytes)}; yours to lower",
            "runtime_bytes": gib(report.runtime_bytes),
            "rtt_us": "no rendezvous was timed" if report.rtt_us is None else ms(report.rtt_us),
        }
        comments |= {(*at, key): words for key, words in notes.items()}
    return yamlfile.render(
        data,
        comments=comments,
        headings={("format",): "Kafila report. `kafila plan` reads it."},
        inline=("rows_ns", "workspace", "nat", "pairs_us"),
    )


def _measured(number: int | None, scale: float, unit: str) -> str:
    return "not measured" if number is None else f"{number / scale:.2f} {unit}"
