"""From reports to a plan file, and from an edited plan file to its figures anew.

The seam between files (`probe.report`, `planfile`) and the planner's plain values (`plan`).
"""

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from pydantic import ValidationError

from kafila import planfile
from kafila.defaults import CONTEXT
from kafila.errors import BadFile, UsageProblem
from kafila.manifest import Manifest
from kafila.plan import values
from kafila.plan.admission import Fit, all_fit, fits_of, share_rooms
from kafila.plan.compare import Row, compare
from kafila.plan.make import DEFAULT, Wishes, derive, make_plan
from kafila.plan.refusal import Refused, refusal
from kafila.plan.strategies import best_groups
from kafila.planfile import PlanFile
from kafila.probe.report import Probes, Report, session_id
from kafila.yamlfile import Place


def plan_probes(
    probes: Probes,
    *,
    context: int | None,
    concurrency: int,
    manifest: Manifest | None = None,
    wishes: Wishes = DEFAULT,
    edges: planfile.Edges | None = None,
) -> PlanFile:
    """Plan for these reports; `manifest` overrides the one in the file.

    A `context` of None is the usual one, or the model's where that is shorter. `edges` is passed
    on: it decides nothing here.

    Raises UsageProblem, BadFile, Refused and NotAdmitted, each in words.
    """
    model = _model(probes, manifest)
    load = _load(model, context, concurrency)
    plan = make_plan(model_value(model), load, devices(probes), opener(probes), wishes)
    return _plan_file(plan, probes, model).model_copy(update={"edges": edges})


def compare_probes(
    probes: Probes,
    *,
    context: int | None,
    concurrency: int,
    manifest: Manifest | None = None,
    wishes: Wishes = DEFAULT,
) -> list[Row]:
    """Every strategy for these reports, side by side; raises what `plan_probes` raises but for
    what does not fit."""
    model = _model(probes, manifest)
    load = _load(model, context, concurrency)
    return compare(model_value(model), load, devices(probes), opener(probes), wishes)


def _load(model: planfile.Model, context: int | None, concurrency: int) -> values.Load:
    return values.Load(context or min(CONTEXT, model.max_context), concurrency)


def opener(probes: Probes) -> str:
    """Who opened the session: the anchor of head placement."""
    return probes.host or probes.reports[0].name


def devices(probes: Probes) -> list[values.Device]:
    """The planner's view of all members; BadFile where one member's report is there twice."""
    seen: set[tuple[str, str]] = set()
    for report in probes.reports:
        if (report.name, report.key) in seen:
            raise BadFile(f"the report of {report.name} was given twice; name each file once")
        seen.add((report.name, report.key))
    return [report.device() for report in probes.reports]


def _model(probes: Probes, manifest: Manifest | None) -> planfile.Model:
    manifest = manifest or probes.manifest
    if manifest is None:
        raise UsageProblem("these reports were made without a model; name one with --model")
    try:
        return planfile.Model(
            name=manifest.name,
            revision=manifest.revision,
            manifest=manifest.digest,
            dtype=manifest.dtype,
            stored=manifest.stored,
            kept=manifest.kept,
            blocks=manifest.blocks,
            hidden=manifest.hidden,
            vocab=manifest.vocab,
            max_context=manifest.max_context,
            block_bytes=manifest.block_bytes,
            head_read_bytes=manifest.head_read_bytes,
            head_resident_bytes=manifest.head_resident_bytes,
            kv_bytes=manifest.kv_bytes,
        )
    except ValidationError as error:
        fault = error.errors()[0]
        raise BadFile(f"the reports' manifest: {fault['loc'][-1]}: {fault['msg']}") from None


def model_value(model: planfile.Model) -> values.Model:
    """The planner's view of a plan's model."""
    sizes = model.model_dump(exclude={"revision", "manifest", "dtype", "stored", "kept", "vocab"})
    itemsize = 4 if model.dtype == "float32" else 2
    return values.Model(**sizes, itemsize=itemsize, int8=model.kept == "int8")


def _plan_file(plan: values.Plan, probes: Probes, model: planfile.Model) -> PlanFile:
    reports = {report.name: report for report in probes.reports}
    approximate = any(each.measured_for != model.manifest for each in probes.reports)
    return PlanFile(
        format=1,
        model=model,
        session=planfile.Session(
            id=session_id([report.key for report in probes.reports]),
            opener=opener(probes),
            rendezvous=probes.session.rendezvous if probes.session else None,
            rendezvous_key=probes.session.rendezvous_key if probes.session else None,
            context=plan.load.context,
            concurrency=plan.load.concurrency,
        ),
        head=plan.ring[0].device.name,
        strategy=plan.strategy,
        tier=plan.tier,
        order=plan.order,
        groups=plan.groups,
        forced=plan.forced,
        ring=tuple(_member(stage, reports[stage.device.name]) for stage in plan.ring),
        predictions=_predictions(plan.derived, approximate=approximate),
        warnings=plan.derived.warnings,
        notes=plan.notes,
        reports=probes.digest(),
    )


def _member(stage: values.Stage, report: Report) -> planfile.Member:
    return planfile.Member(
        name=report.name,
        key=report.key,
        exchange_key=report.exchange_key,
        platform=report.platform,
        measured=planfile.Measured(
            machine=report.machine,
            machine_bytes=report.machine_bytes,
            bandwidth=report.bandwidth,
            overhead_us=report.overhead_us,
            flops=report.flops,
            rows_ns=report.rows_ns,
            block_ns=report.block_ns,
            runtime_bytes=report.runtime_bytes,
            workspace=report.workspace,
            rtt_us=report.rtt_us,
            pairs_us=report.pairs_us,
            upload=report.upload,
            nat=report.nat,
        ),
        **_stage(stage),
    )


def _stage(stage: values.Stage) -> dict[str, Any]:
    """The fields of a member that follow from the division."""
    edge = stage.edge
    return {
        "blocks": f"{stage.blocks.start}-{stage.blocks.stop - 1}",
        "stage_us": _whole(stage.stage_us),
        "context_us": _whole(stage.context_us),
        "load_us": _whole(stage.load_us),
        "need_bytes": stage.need_bytes,
        "room_bytes": stage.room_bytes,
        "edge": edge and planfile.Edge(to=edge.to, path=edge.path, cost_us=edge.cost_us),
    }


def _predictions(derived: values.Derived, *, approximate: bool) -> planfile.Predictions:
    made = derived.predictions
    fields = ("bottleneck_us", "token_us", "token_full_us", "shared_token_us", "network_us")
    times = {key: _whole(getattr(made, key, None)) for key in (*fields, "first_token_us")}
    return planfile.Predictions(
        **times,
        approximate=approximate,
        strategies=planfile.Strategies(
            load=_outlook(derived.load_outlook), bottleneck=_outlook(derived.bottleneck_outlook)
        ),
    )


def _outlook(outlook: values.Outlook | None) -> planfile.Outlook | None:
    if outlook is None:
        return None
    return planfile.Outlook(
        head=outlook.head,
        token_us=round(outlook.token_us),
        shared_token_us=round(outlook.shared_token_us),
    )


def _whole(time_us: float | None) -> int | None:
    return None if time_us is None else round(time_us)


@dataclass(frozen=True, slots=True)
class Change:
    """A figure in the file that no longer follows from the rest of it."""

    where: str
    was: object
    now: object


@dataclass(frozen=True, slots=True)
class Recheck:
    """What `kafila check` found: the plan with fresh figures, what differs, whether it fits."""

    plan: PlanFile
    changes: tuple[Change, ...]
    notes: tuple[str, ...]
    refused: Refused | None


def recheck(plan: PlanFile) -> Recheck:
    """Derive anew all that follows from a plan's decisions: ranges, order, paths, groups, load.

    A plan that was forced is not refused: what it lacks is among its warnings.
    """
    model = model_value(plan.model)
    load = values.Load(plan.session.context, plan.session.concurrency)
    ring, notes = share_rooms([planfile.device(member) for member in plan.ring])
    choice = values.Choice(
        ring=ring,
        counts=tuple(len(member.block_range) for member in plan.ring),
        paths=tuple(member.edge.path if member.edge else "direct" for member in plan.ring),
        groups=plan.groups,
    )
    fresh = derive(
        model,
        load,
        choice,
        plan.session.opener,
        strategy=plan.strategy,
        forced=plan.forced,
    )
    better = best_groups(model, load, choice) if fresh.predictions else None
    if better not in (None, plan.groups):
        notes = (*notes, f"groups: {plan.groups} is kept; {better} is predicted to be faster")

    def fits(model: values.Model, load: values.Load) -> tuple[Fit, ...]:
        return fits_of(model, load, ring, choice.counts, min(plan.groups, load.concurrency))

    refused = None
    if not plan.forced and not all_fit(fits(model, load)):
        refused = refusal(
            model, load, fits(model, load), lambda *other: all_fit(fits(*other)), notes=notes
        )
    members = tuple(
        member.model_copy(update=_stage(stage))
        for member, stage in zip(plan.ring, fresh.ring, strict=True)
    )
    update = {
        "ring": members,
        "predictions": _predictions(fresh, approximate=plan.predictions.approximate),
        "warnings": fresh.warnings,
    }
    derived = plan.model_copy(update=update)
    changes = tuple(_differences(plan.model_dump(), derived.model_dump(), ()))
    return Recheck(derived, changes, notes, refused)


def _differences(was: object, now: object, place: Place) -> Iterator[Change]:
    if isinstance(was, dict) and isinstance(now, dict):
        for key in was:
            yield from _differences(was[key], now[key], (*place, key))
    elif isinstance(was, list | tuple) and isinstance(now, list | tuple) and len(was) == len(now):
        for position, (old, new) in enumerate(zip(was, now, strict=True)):
            name = old["name"] if isinstance(old, dict) and "name" in old else position
            yield from _differences(old, new, (*place, name))
    elif was != now:
        yield Change(".".join(str(part) for part in place), was, now)


def findings(found: Recheck) -> dict[str, object]:
    """A recheck for programs."""
    refused = found.refused
    short = any(member.need_bytes > member.room_bytes for member in found.plan.ring)
    return {
        "admitted": not short,
        "forced": found.plan.forced,
        "changes": [asdict(change) for change in found.changes],
        "warnings": list(found.plan.warnings),
        "notes": list(found.notes),
        "members": [
            {"name": member.name, "need_bytes": member.need_bytes, "room_bytes": member.room_bytes}
            for member in found.plan.ring
        ],
        "would_fit": refused
        and {
            "context": refused.context,
            "concurrency": refused.concurrency,
            "weights": refused.weights,
            "room_bytes": refused.missing_bytes,
        },
    }
