"""From reports to a plan file, and an edited plan derived anew."""

import pytest

from kafila.derive import findings, plan_probes, recheck
from kafila.errors import BadFile, UsageProblem
from kafila.plan.make import Wishes
from kafila.planfile import PlanFile, parse
from kafila.plantext import render, summary
from kafila.probe import report as files
from kafila.reports import merge
from tests.plan.fleets import key, manifest, probes, report

PAPER = Wishes(strategy="bottleneck")


def planned(*names: str, context: int = 4096, concurrency: int = 4) -> PlanFile:
    return plan_probes(probes(*names), context=context, concurrency=concurrency, wishes=PAPER)


PLAN = planned("anna", "bert", "cleo")


def edited(*changes: tuple[str, str]) -> PlanFile:
    text = render(PLAN)
    for old, new in changes:
        assert old in text
        text = text.replace(old, new, 1)
    return parse(text)


def test_files_are_merged_in_order_with_the_first_ones_host() -> None:
    session = files.Session(rendezvous="r.example.org:4710", rendezvous_key=key("r"))
    together = merge(
        [
            ("a.yaml", probes("anna", manifest=None)),
            ("b.yaml", probes("bert", "cleo", session=session, host="cleo")),
        ]
    )
    assert [each.name for each in together.reports] == ["anna", "bert", "cleo"]
    assert together.host == "anna"
    assert together.manifest == manifest()
    assert together.session == session


def test_files_that_disagree() -> None:
    other = manifest(digest="sha256:" + key("other"), name="other")
    with pytest.raises(BadFile, match=r"b\.yaml: made for other, but a\.yaml for tiny"):
        merge([("a.yaml", probes("anna")), ("b.yaml", probes("bert", manifest=other))])
    one, two = (
        files.Session(rendezvous=f"{name}.example.org:4710", rendezvous_key=key(name))
        for name in "rs"
    )
    with pytest.raises(BadFile, match=r"b\.yaml: names another rendezvous"):
        merge([("a.yaml", probes("anna", session=one)), ("b.yaml", probes("b", session=two))])


def test_the_host_is_the_anchor_and_the_session_is_kept() -> None:
    session = files.Session(rendezvous="r.example.org:4710", rendezvous_key=key("r"))
    plan = plan_probes(
        probes("anna", "bert", "cleo", host="bert", session=session), context=64, concurrency=1
    )
    assert plan.head == "bert"
    assert plan.session.opener == "bert"
    assert [member.name for member in plan.ring] == ["bert", "anna", "cleo"]
    assert plan.session.rendezvous == "r.example.org:4710"
    assert plan.session.rendezvous_key == key("r")


def test_reports_without_a_model_need_one() -> None:
    bare = probes("anna", manifest=None)
    with pytest.raises(UsageProblem, match="name one with --model"):
        plan_probes(bare, context=64, concurrency=1)
    assert plan_probes(bare, context=64, concurrency=1, manifest=manifest()).model.name == "tiny"


def test_predictions_from_other_shapes_are_approximate() -> None:
    assert PLAN.predictions.approximate
    exact = report("anna", measured_for=manifest().digest)
    plan = plan_probes(probes("anna", reports=(exact,)), context=64, concurrency=1)
    assert not plan.predictions.approximate


def test_an_untouched_plan_needs_no_change() -> None:
    found = recheck(PLAN)
    assert (found.plan, found.changes, found.notes, found.refused) == (PLAN, (), (), None)


def test_moved_blocks_change_what_follows_from_them() -> None:
    found = recheck(edited(("blocks: 0-3", "blocks: 0-5"), ("blocks: 4-7", "blocks: 6-7")))
    changed = {change.where: change for change in found.changes}
    assert "ring.anna.stage_us" in changed
    assert "ring.bert.need_bytes" in changed
    assert "predictions.bottleneck_us" in changed
    assert not any(where.startswith("ring.cleo") for where in changed)
    anna = changed["ring.anna.need_bytes"]
    assert anna.was == PLAN.ring[0].need_bytes
    block = PLAN.model.block_bytes + 4 * 4096 * PLAN.model.kv_bytes
    assert anna.now == PLAN.ring[0].need_bytes + 2 * block
    assert recheck(found.plan).changes == ()
    assert not found.refused


def test_a_lower_room_can_refuse() -> None:
    found = recheck(edited(("room_bytes: 12884901888", "room_bytes: 1000000")))
    assert found.refused
    assert [fit.name for fit in found.refused.fits if fit.short_bytes] == ["anna"]
    assert not findings(found)["admitted"]


def test_what_would_fit_is_of_the_division_as_it_is() -> None:
    room = PLAN.ring[0].need_bytes - 1
    found = recheck(edited(("room_bytes: 12884901888", f"room_bytes: {room}")))
    assert found.refused
    assert found.refused.context == PLAN.session.context - 1
    assert found.refused.concurrency == 2  # three requests in two groups take four slots


def test_a_relayed_edge_is_priced() -> None:
    timed = tuple(report(name, rtt_us=rtt) for name, rtt in (("a", 20_000), ("b", 90_000)))
    plan = plan_probes(probes(reports=timed), context=64, concurrency=1, wishes=PAPER)
    text = render(plan).replace("{to: b, path: direct", "{to: b, path: relayed")
    found = recheck(parse(text))
    assert found.plan.ring[0].edge
    assert found.plan.ring[0].edge.cost_us == 110_000
    assert found.plan.ring[1].edge
    assert found.plan.ring[1].edge.cost_us == 70_000
    changed = [change.where for change in found.changes]
    assert changed[0] == "ring.a.edge.cost_us"


def test_groups_are_a_decision_that_is_kept() -> None:
    found = recheck(edited((f"groups: {PLAN.groups}", "groups: 4")))
    assert found.plan.groups == 4
    assert found.notes == (f"groups: 4 is kept; {PLAN.groups} is predicted to be faster",)


def test_rooms_of_one_machine_are_shared_after_an_edit_too() -> None:
    memory = {"machine": "m", "machine_bytes": 14 * 2**30, "room_bytes": 7 * 2**30}
    shared = tuple(report(name, **memory) for name in ("a", "b"))
    plan = plan_probes(probes(reports=shared), context=64, concurrency=1, wishes=PAPER)
    assert [member.room_bytes for member in plan.ring] == [7 * 2**30] * 2
    text = render(plan).replace(f"room_bytes: {7 * 2**30}", f"room_bytes: {10 * 2**30}")
    found = recheck(parse(text))
    assert [member.room_bytes for member in found.plan.ring] == [7 * 2**30] * 2
    assert found.notes == ("a and b are on one machine and share 14.00 GiB of room",)


def test_one_report_given_twice() -> None:
    with pytest.raises(BadFile, match="the report of anna was given twice; name each file once"):
        plan_probes(probes("anna", "bert", "anna"), context=64, concurrency=1)


def test_untimed_edges_make_a_rate_the_best_there_can_be() -> None:
    timed = tuple(report(name, rtt_us=1000) for name in ("anna", "bert"))
    for third, gap in ((None, "the edges from bert to cleo and cleo to anna were"), (1000, None)):
        reports = (*timed, report("cleo", rtt_us=third, pairs_us={}))
        plan = plan_probes(probes(reports=reports), context=64, concurrency=2, wishes=PAPER)
        told = [each for each in plan.warnings if "not timed" in each]
        assert [each.startswith(gap or "-") for each in told] == ([True] if gap else [])
        text, words = render(plan), summary(plan)
        for line in ("token_us", "token_full_us", "shared_token_us", "first_token_us", "load"):
            at = next(each for each in text.splitlines() if each.strip().startswith(f"{line}: "))
            assert ("at best" in at) == bool(gap)
        for start in ("predicted: one user ", "first token: ", "strategy load would give: "):
            said = next(each for each in words.splitlines() if each.startswith(start))
            assert said.startswith(f"{start}at best") == bool(gap)
        assert recheck(plan).changes == ()


def test_a_nats_class_stands_beside_it() -> None:
    hard = files.Nat(mapping="address-dependent", filtering="address-and-port-dependent")
    mixed = (report("anna"), report("bert", nat=hard), report("cleo", nat=None))
    text = render(plan_probes(probes(reports=mixed), context=64, concurrency=1))
    lines = [line for line in text.splitlines() if line.strip().startswith("nat: ")]
    assert [line.partition("  # ")[2] for line in lines] == [
        "permissive NAT",
        "restrictive NAT",
        "",
    ]
