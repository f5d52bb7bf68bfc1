"""The plan's edges against those that came up: what was predicted, what is, and why.

Plain values, and the words, objects and file that show them. Knows no socket.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from kafila import yamlfile
from kafila.errors import BadFile, KafilaError
from kafila.net.edge import Edge
from kafila.planfile import PlanFile
from kafila.session.edges import Outcome, planned
from kafila.words import counted, listed, ms


@dataclass(frozen=True, slots=True)
class Verified:
    """One edge of a member. Times are round trips in microseconds, None where nobody timed."""

    source: str
    to: str
    planned: str
    planned_us: int | None
    path: str | None
    """`direct` or `relayed`, as it is now; None: there is no edge."""
    rtt_us: int | None
    why: str
    """Why it is not direct, or why there is none; empty for a direct one."""

    @property
    def as_planned(self) -> bool:
        """As planned or better."""
        return self.path in ("direct", self.planned)


def verify(plan: PlanFile, me: int, outcomes: Mapping[int, Outcome]) -> list[Verified]:
    """The edges of member `me`, in ring order; a ring of two has one."""
    found = []
    before = (me - 1) % len(plan.ring)
    for other in sorted(outcomes, key=lambda other: other != before):
        outcome, edge = outcomes[other], planned(plan, me, other)
        names = (plan.ring[me].name, plan.ring[other].name)
        source, to = names if edge.to == names[1] else names[::-1]
        if isinstance(outcome, KafilaError):
            state: tuple[str | None, int | None, str] = None, None, str(outcome)
        else:
            path = outcome.path
            state = path.kind, path.rtt_us, "" if path.kind == "direct" else outcome.why
        found.append(Verified(source, to, edge.path, edge.cost_us, *state))
    return found


def table(found: Sequence[Verified]) -> str:
    """Predicted against actual, for people."""
    if not found:
        return "a ring of one has no edges"
    rows = [("edge", "planned", "", "came up", "", "why not direct")]
    for edge in found:
        rows.append(
            (
                f"{edge.source} -> {edge.to}",
                edge.planned,
                _time(edge.planned_us),
                edge.path or "not at all",
                _time(edge.rtt_us) if edge.path else "",
                edge.why.rstrip("."),
            )
        )
    widths = [max(len(row[column]) for row in rows) for column in range(5)]
    lines = []
    for row in rows:
        cells = [
            cell.rjust(width) if column in (2, 4) else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=False))
        ]
        lines.append("  ".join((*cells, row[5])).rstrip())
    return "\n".join(lines)


def _time(time_us: int | None) -> str:
    return "not timed" if time_us is None else ms(time_us)


def shortcoming(found: Sequence[Verified]) -> str | None:
    """What is worse than planned, but works."""
    worse = [f"{edge.source} -> {edge.to}" for edge in found if edge.path and not edge.as_planned]
    if not worse:
        return None
    return (
        f"{counted(len(worse), 'edge')} relayed where direct was planned ({listed(worse)}): tokens "
        "will take longer than predicted. The ring stays as it is; probe and plan again if this "
        "lasts"
    )


def broken(found: Sequence[Verified]) -> str | None:
    """Which edges there are not."""
    missing = [edge for edge in found if edge.path is None]
    if not missing:
        return None
    names = listed([f"{edge.source} -> {edge.to}" for edge in missing])
    return f"no edge {names}: {missing[0].why}"


def findings(plan: PlanFile, me: int, found: Sequence[Verified]) -> dict[str, Any]:
    """The verification for programs."""
    return {
        "plan": plan.digest.hex(),
        "member": plan.ring[me].name,
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "usable": all(edge.path for edge in found),
        "as_planned": all(edge.as_planned for edge in found),
        "edges": [{**asdict(edge), "as_planned": edge.as_planned} for edge in found],
    }


def beside(plan_file: Path, member: str) -> Path:
    """Where a member keeps its verification: plan.yaml -> plan.anna.edges.json."""
    return plan_file.with_name(f"{plan_file.stem}.{member}.edges.json")


def keep(path: Path, findings: Mapping[str, Any], say: Callable[[str], None]) -> None:
    """Write the verification where it is looked for; `say` why that is not possible."""
    if not findings["edges"]:
        return
    try:
        yamlfile.write(path, json.dumps(findings, indent=2) + "\n")
    except BadFile as problem:
        say(f"the verification is not kept: {problem}")


def traffic(plan: PlanFile, me: int, other: int, edge: Edge) -> dict[str, Any]:
    """How an edge stands while it serves: its path, and what went over which, both ways."""
    carried = {
        kind: edge.sent.get(kind, 0) + edge.received.get(kind, 0) for kind in ("direct", "relayed")
    }
    return {
        "to": plan.ring[other].name,
        "planned": planned(plan, me, other).path,
        "path": edge.path.kind,
        "rtt_us": edge.path.rtt_us,
        "why": "" if edge.path.kind == "direct" else edge.why,
        "direct_bytes": carried["direct"],
        "relayed_bytes": carried["relayed"],
        "relayed_share": round(carried["relayed"] / max(sum(carried.values()), 1), 4),
    }
