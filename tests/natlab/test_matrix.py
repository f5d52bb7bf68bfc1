"""Some cells of the matrix, with the deployed rendezvous, classifier, planner and edges."""

from pathlib import Path

import pytest

from tools.natlab import nat as nats
from tools.natlab.cells import Cell, behaviour_pairs, behind, other_pairs, pair
from tools.natlab.matrix import Outcome, Try, run, summary, table

BLOCKED = nats.Nat("EI", "APD", udp_blocked=True)
LOOSE = nats.Nat("EI", "APD", inbound_drop=False)


def cell(a: nats.Nat, b: nats.Nat) -> Cell:
    """The cell of two behaviours in the matrix."""
    cells = (*behaviour_pairs(), *other_pairs())
    return next(each for each in cells if (each.a, each.b) == (a.label, b.label))


@pytest.mark.netns
@pytest.mark.parametrize(
    ("a", "b"),
    [
        (nats.APDF, nats.APDF),
        (nats.ADF, nats.APDM),
        (nats.APDM, nats.APDF),
        (LOOSE, LOOSE),
        (BLOCKED, nats.EIF),
    ],
    ids=lambda nat: nat.label,
)
def test_a_pair_comes_up_as_predicted(tmp_path: Path, a: nats.Nat, b: nats.Nat) -> None:
    outcome = run(cell(a, b), tmp_path)
    assert (outcome.verdict, outcome.path) == ("right", outcome.cell.possible)
    assert outcome.first is not None
    assert (outcome.direct is not None) == (outcome.path == "direct")


def test_verdicts() -> None:
    made = pair(behind(nats.APDF), behind(nats.APDM), "relayed")
    relayed, direct, none = Try("relayed", 0.2), Try("direct", 0.2, 0.5), Try("NetworkProblem: no")
    assert Outcome(made, "relayed", (), [relayed]).verdict == "right"
    assert Outcome(made, "direct", (), [relayed]).verdict == "wrongly predicted"
    assert Outcome(made, "relayed", (), [none]).verdict == "no edge"
    able = pair(behind(nats.ADF), behind(nats.APDM), "direct")
    assert Outcome(able, "relayed", (), [direct]).verdict == "safe"
    assert Outcome(able, "direct", (), [relayed]).verdict == "direct is possible"
    lucky = Cell("a", "b", made.build, "direct", birthday=True, tries=10)
    assert Outcome(lucky, "relayed", (), [direct] * 9 + [relayed]).verdict == "right"
    assert Outcome(lucky, "relayed", (), [direct] * 8 + [relayed] * 2).verdict != "right"


def test_table_and_summary() -> None:
    made = pair(behind(nats.EIF), behind(nats.APDM), "direct")
    tries = [Try("direct", 0.2, 0.5), Try("direct", 0.3, 0.7), Try("relayed", 0.4)]
    outcomes = [Outcome(made, "direct", (), tries), Outcome(made, "relayed", (), tries[:1])]
    last = table(outcomes).splitlines()
    assert last[2].startswith("| EIM+EIF | APDM+APDF | direct | direct in 2 of 3 | 300 ms | 600 ms")
    assert summary(outcomes) == (
        "0 of 2 as predicted, 1 direct although predicted relayed, 1 wrong; "
        "medians: first frame after 250 ms, direct after 550 ms."
    )
