"""From reports to a plan file, and from an edited plan file to its figures anew.

The seam between files (`probe.report`, `planfile`) and the planner's plain values (`plan`).
"""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from pydantic import ValidationError

from kafila import planfile
from kafila.defaults import MAX_MEMBERS
from kafila.errors import BadFile, UsageProblem
from kafila.manifest import Manifest
from kafila.plan import values
from kafila.plan.admission import Fit, Refused, refusal, share_rooms
from kafila.plan.make import best_groups, evaluate, fits_of, make_plan
from kafila.planfile import PlanFile
from kafila.probe.report import Probes, Report, session_id
from kafila.yamlfile import Place


def merge(files: Sequence[tuple[str, Probes]]) -> Probes:
    """Report files (each with what to call it) as one: reports in order, the first file's host.

    Files may leave model and session out; where two name different ones, BadFile.
    """
    first = files[0][1]
    manifest, session = first.manifest, first.session
    for name, probes in files[1:]:
        if manifest and probes.manifest and probes.manifest.digest != manifest.digest:
            raise BadFile(
                f"{name}: made for {probes.manifest.name}, but {files[0][0]} for {manifest.name}; "
                "probe both for one model"
            )
        if session and probes.session and probes.session != session:
            raise BadFile(f"{name}: names another rendezvous than the files before it")
        manifest, session = manifest or probes.manifest, session or probes.session
    reports = tuple(report for _, probes in files for report in probes.reports)
    if len(reports) > MAX_MEMBERS:
        raise BadFile(f"{len(reports)} reports; a ring has at most {MAX_MEMBERS} members")
    host = first.host or first.reports[0].name
    return Probes(manifest=manifest, session=session, host=host, reports=reports)


def plan_probes(
    probes: Probes, *, context: int, concurrency: int, manifest: Manifest | None = None
) -> PlanFile:
    """Plan for these reports; `manifest` overrides the one in the file.

    Raises UsageProblem, BadFile, Refused and NotAdmitted, each in words.
    """
    manifest = manifest or probes.manifest
    if manifest is None:
        raise UsageProblem("these reports were made without a model; name one with --model")
    model = _model(manifest)
    anchor = probes.host or probes.reports[0].name
    devices = [report.device() for report in probes.reports]
    plan = make_plan(_values(model), values.Load(context, concurrency), devices, anchor)
    return _plan_file(plan, probes, model)


def _model(manifest: Manifest) -> planfile.Model:
    try:
        return planfile.Model(
            name=manifest.name,
            revision=manifest.revision,
            manifest=manifest.digest,
            dtype=manifest.dtype,
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


def _values(model: planfile.Model) -> values.Model:
    return values.Model(
        **model.model_dump(exclude={"revision", "manifest", "dtype", "hidden", "vocab"})
    )


def _plan_file(plan: values.Plan, probes: Probes, model: planfile.Model) -> PlanFile:
    reports = {report.name: report for report in probes.reports}
    approximate = any(each.measured_for != model.manifest for each in probes.reports)
    return PlanFile(
        format=1,
        model=model,
        session=planfile.Session(
            id=session_id([report.key for report in probes.reports]),
            rendezvous=probes.session.rendezvous if probes.session else None,
            rendezvous_key=probes.session.rendezvous_key if probes.session else None,
            context=plan.load.context,
            concurrency=plan.load.concurrency,
        ),
        head=plan.ring[0].device.name,
        strategy="bottleneck",
        tier="full",
        groups=plan.groups,
        ring=tuple(_member(stage, reports[stage.device.name]) for stage in plan.ring),
        predictions=_predictions(plan.predictions, approximate=approximate),
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
            rows_ns=report.rows_ns,
            runtime_bytes=report.runtime_bytes,
            workspace=report.workspace,
            rtt_us=report.rtt_us,
        ),
        **_derived(stage),
    )


def _derived(stage: values.Stage) -> dict[str, Any]:
    """The fields of a member that follow from the division."""
    edge = stage.edge
    return {
        "blocks": f"{stage.blocks.start}-{stage.blocks.stop - 1}",
        "stage_us": round(stage.stage_us),
        "context_us": round(stage.context_us),
        "need_bytes": stage.need_bytes,
        "room_bytes": stage.room_bytes,
        "edge": edge and planfile.Edge(to=edge.to, path=edge.path, cost_us=edge.cost_us),
    }


def _predictions(predictions: values.Predictions, *, approximate: bool) -> planfile.Predictions:
    return planfile.Predictions(
        bottleneck_us=round(predictions.bottleneck_us),
        token_us=round(predictions.token_us),
        token_full_us=round(predictions.token_full_us),
        shared_token_us=round(predictions.shared_token_us),
        approximate=approximate,
    )


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
    """Derive anew all that follows from a plan's decisions: ranges, order, paths, groups, load."""
    model = _values(plan.model)
    load = values.Load(plan.session.context, plan.session.concurrency)
    ring, notes = share_rooms([planfile.device(member) for member in plan.ring])
    counts = [len(member.block_range) for member in plan.ring]
    paths = [member.edge.path if member.edge else "direct" for member in plan.ring]
    fresh = evaluate(model, load, ring, counts, paths, plan.groups)
    better = best_groups(model, load, ring, counts, paths)
    if better != plan.groups:
        notes = (*notes, f"groups: {plan.groups} is kept; {better} is predicted to be faster")

    def fits(other: values.Load) -> tuple[Fit, ...]:
        groups = min(plan.groups, other.concurrency)
        return fits_of(model, other, ring, counts, groups)

    refused = None
    if any(fit.short_bytes for fit in fits(load)):
        refused = refusal(
            model,
            load,
            fits(load),
            lambda other: not any(fit.short_bytes for fit in fits(other)),
            notes,
        )
    members = tuple(
        member.model_copy(update=_derived(stage))
        for member, stage in zip(plan.ring, fresh.ring, strict=True)
    )
    predictions = _predictions(fresh.predictions, approximate=plan.predictions.approximate)
    derived = plan.model_copy(update={"ring": members, "predictions": predictions})
    changes = tuple(_differences(plan.model_dump(), derived.model_dump(), ()))
    return Recheck(derived, changes, notes, refused)


def _differences(was: object, now: object, place: Place) -> Iterator[Change]:
    if isinstance(was, dict) and isinstance(now, dict):
        for key in was:
            yield from _differences(was[key], now[key], (*place, key))
    elif isinstance(was, list | tuple) and isinstance(now, list | tuple):
        for position, (old, new) in enumerate(zip(was, now, strict=True)):
            name = old["name"] if isinstance(old, dict) and "name" in old else position
            yield from _differences(old, new, (*place, name))
    elif was != now:
        yield Change(".".join(str(part) for part in place), was, now)


def findings(found: Recheck) -> dict[str, object]:
    """A recheck for programs."""
    refused = found.refused
    return {
        "admitted": refused is None,
        "changes": [asdict(change) for change in found.changes],
        "notes": list(found.notes),
        "members": [
            {"name": member.name, "need_bytes": member.need_bytes, "room_bytes": member.room_bytes}
            for member in found.plan.ring
        ],
        "would_fit": refused and {"context": refused.context, "concurrency": refused.concurrency},
    }
