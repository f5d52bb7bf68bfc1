"""The plan's edges against those that came up, as people, programs and files have them."""

import json
from pathlib import Path

import pytest

from kafila.errors import NetworkProblem
from kafila.net.identity import Identity
from kafila.planfile import PlanFile
from kafila.serve import verify
from kafila.serve.verify import Verified
from tests.session.samples import plan as planned

DIRECT = Verified("anna", "bert", "direct", 40_000, "direct", 38_900, "")
WORSE = Verified("cleo", "anna", "direct", None, "relayed", 80_120, "both NATs map anew.")
BETTER = Verified("cleo", "anna", "relayed", 90_000, "direct", 12_000, "")
AS_FEARED = Verified("cleo", "anna", "relayed", 90_000, "relayed", 88_000, "UDP is blocked")
NONE = Verified("cleo", "anna", "direct", 9_000, None, None, "cleo does not answer.")


@pytest.fixture
def plan(tmp_path: Path) -> PlanFile:
    return planned([(n, Identity.load_or_create(tmp_path / n)) for n in ("anna", "bert", "cleo")])


def test_a_table_for_people() -> None:
    assert verify.table([DIRECT, WORSE]).splitlines() == [
        "edge          planned             came up            why not direct",
        "anna -> bert  direct    40.00 ms  direct   38.90 ms",
        "cleo -> anna  direct   not timed  relayed  80.12 ms  both NATs map anew",
    ]
    assert verify.table([NONE]).splitlines()[1] == (
        "cleo -> anna  direct   9.00 ms  not at all    cleo does not answer"
    )
    assert verify.table([]) == "a ring of one has no edges"


def test_what_falls_short_and_what_is_broken() -> None:
    assert [each.as_planned for each in (DIRECT, WORSE, BETTER, AS_FEARED, NONE)] == [
        *(True, False, True, True, False)
    ]
    for found in ([DIRECT, BETTER], [AS_FEARED], []):
        assert verify.shortcoming(found) is None
        assert verify.broken(found) is None
    words = verify.shortcoming([DIRECT, WORSE]) or ""
    assert words.startswith("1 edge relayed where direct was planned (cleo -> anna): ")
    assert verify.broken([WORSE]) is None
    assert verify.shortcoming([NONE]) is None
    assert verify.broken([DIRECT, NONE]) == "no edge cleo -> anna: cleo does not answer."


def test_an_edge_that_is_missing_says_why(plan: PlanFile) -> None:
    before, me, after = (member.name for member in plan.ring)
    found = verify.verify(
        plan, 1, {2: NetworkProblem("it is silent."), 0: NetworkProblem("it is full.")}
    )
    assert [(e.source, e.to, e.path, e.why) for e in found] == [
        (before, me, None, "it is full."),
        (me, after, None, "it is silent."),
    ]
    first = verify.verify(plan, 0, {1: NetworkProblem("a"), 2: NetworkProblem("b")})
    assert [(each.source, each.to) for each in first] == [(after, before), (before, me)]


def test_an_object_for_programs_and_the_file_beside_the_plan(
    plan: PlanFile, tmp_path: Path
) -> None:
    findings = verify.findings(plan, 0, [DIRECT, WORSE])
    assert (findings["usable"], findings["as_planned"]) == (True, False)
    assert findings["edges"][1]["rtt_us"] == 80_120
    assert [each["as_planned"] for each in findings["edges"]] == [True, False]
    assert verify.findings(plan, 0, [NONE])["usable"] is False
    said: list[str] = []
    kept = verify.beside(tmp_path / "plan.yaml", "anna")
    assert kept == tmp_path / "plan.anna.edges.json"
    verify.keep(kept, findings, said.append)
    assert json.loads(kept.read_text()) == findings
    assert not said
    verify.keep(tmp_path / "nowhere" / "plan.anna.edges.json", findings, said.append)
    assert len(said) == 1
    assert said[0].startswith("the verification is not kept: ")
    kept.unlink()
    verify.keep(kept, verify.findings(plan, 0, []), said.append)
    assert not kept.exists()
