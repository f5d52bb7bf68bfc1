"""Plans to explain and to compare: the committed ones, small ones, and any that can be edited."""

from itertools import pairwise
from typing import Any, get_args

from hypothesis import strategies as st

from kafila.derive import plan_probes, recheck
from kafila.errors import NotAdmitted, UsageProblem
from kafila.plan.make import Wishes
from kafila.plan.values import Strategy
from kafila.planfile import Member, PlanFile
from kafila.probe.report import Nat, Report
from tests.plan.fleets import PLANFILES, manifest, probes, report

PLANS = sorted(path for path in PLANFILES.glob("*.yaml") if not path.name.endswith(".probes.yaml"))


def fresh(plan: PlanFile) -> PlanFile:
    return recheck(plan).plan


def small(*reports: Report, strategy: Any = "load", **sizes: Any) -> PlanFile:
    """A plan of a 12-block model for these reports."""
    file = probes(manifest=manifest(**sizes), reports=reports)
    return plan_probes(file, context=64, concurrency=4, wishes=Wishes(strategy=strategy))


def divided(plan: PlanFile, *counts: int, **changes: Any) -> PlanFile:
    """The plan with so many blocks for each member and other `changes`, its figures fresh."""
    start = 0
    ring: list[Member] = []
    for member, count in zip(plan.ring, counts, strict=True):
        blocks = f"{start}-{start + count - 1}"
        ring.append(member.model_copy(update={"blocks": blocks}))
        start += count
    return fresh(plan.model_copy(update={"ring": tuple(ring), **changes}))


_whole = st.integers(0, 1 << 40)
_count = st.integers(1, 1 << 40)
_behaviour = st.sampled_from(
    ("endpoint-independent", "address-dependent", "address-and-port-dependent", "unknown")
)
_nats = st.none() | st.builds(
    Nat, mapping=_behaviour, filtering=_behaviour, blocked=st.booleans(), ipv6=st.booleans()
)


@st.composite
def reports(draw: st.DrawFn, name: str) -> Report:
    """Anything a probe might say, gaps included."""
    changes = {
        "bandwidth": draw(st.none() | _count),
        "overhead_us": draw(st.none() | _whole),
        "flops": draw(st.none() | _count),
        "rows_ns": draw(st.none() | st.just({1: 90_000, 2: 95_000, 8: 130_000})),
        "room_bytes": draw(st.integers(1 << 20, 1 << 40)),
        "machine": draw(st.sampled_from(("shed", f"machine of {name}"))),
        "rtt_us": draw(st.none() | _whole),
        "upload": draw(st.none() | _count),
        "nat": draw(_nats),
    }
    return report(name, **changes)


@st.composite
def plans(draw: st.DrawFn) -> PlanFile:
    """Any plan: made or forced by the planner, then edited by hand."""
    names = draw(st.permutations(("anna", "bert", "c" * 63, "d.d-d", "shelf")))
    names = names[: draw(st.integers(1, 5))]
    wishes = Wishes(strategy=draw(st.sampled_from(get_args(Strategy))), force=True)
    file = probes(
        manifest=manifest(name=draw(st.sampled_from(("tiny", "名前 <&> " * 20, "\ufffe")))),
        reports=tuple(draw(reports(name)) for name in names),
    )
    users = draw(st.integers(1, 9))
    try:
        plan = plan_probes(file, context=256, concurrency=users, wishes=wishes)
    except (NotAdmitted, UsageProblem):
        plan = plan_probes(probes(*names), context=256, concurrency=users)
    cuts = sorted(draw(st.sets(st.integers(1, 11), min_size=len(names) - 1, max_size=4)))
    bounds = [0, *cuts[: len(names) - 1], 12]
    counts = [after - before for before, after in pairwise(bounds)]
    groups = draw(st.integers(1, users))
    return divided(plan, *counts, groups=groups) if draw(st.booleans()) else fresh(plan)
