"""Decode steps against the plan's: what is said, when, and never twice."""

from pathlib import Path

import pytest

from kafila.defaults import PACE_STEPS
from kafila.net.identity import Identity
from kafila.serve.pace import Pace, planned
from tests.session.samples import plan as sample


def run(pace: Pace, took_us: float, steps: int = PACE_STEPS, rows: int = 1) -> list[str]:
    """What is said in so many equal steps."""
    said = (pace.step(rows, 100, took_us) for _ in range(steps))
    return [words for words in said if words]


@pytest.fixture
def pace() -> Pace:
    """A step takes a millisecond a row, and a microsecond a cached token."""
    return Pace(lambda rows, tokens: 1000 * rows + tokens - 100)


def test_nothing_is_said_while_steps_are_as_planned(pace: Pace) -> None:
    assert run(pace, 1240) == run(pace, 760) == []
    assert pace.health() == {"verdict": "as planned", "measured_over_planned": 0.76}


def test_slow_steps_are_said_once_they_are_enough(pace: Pace) -> None:
    assert run(pace, 1500, PACE_STEPS - 1) == []
    assert pace.health() == {"verdict": None, "measured_over_planned": None}
    (words,) = run(pace, 1500, 1)
    assert words.startswith("warning: decode steps take 1.50 ms here, 1.50 times what the plan")
    assert run(pace, 1600, 3 * PACE_STEPS) == []
    assert pace.health() == {"verdict": "slower", "measured_over_planned": 1.6}


def test_a_verdict_is_given_up_by_a_margin() -> None:
    pace = Pace(lambda rows, tokens: 10_000)
    assert len(run(pace, 13_000)) == 1
    assert run(pace, 12_200) == []
    (words,) = run(pace, 11_500)
    assert words == "decode steps take 11.50 ms here, about as planned again"
    assert run(pace, 12_200) == []


def test_what_is_off_by_next_to_nothing_is_as_planned() -> None:
    """The demo model's steps take a fraction of a millisecond, and vary by as much."""
    pace = Pace(lambda rows, tokens: 300)
    assert run(pace, 500) == run(pace, 100) == []
    assert pace.health() == {"verdict": "as planned", "measured_over_planned": 0.333}
    (words,) = run(pace, 600)
    assert words.startswith("warning: ")
    assert run(pace, 500) == []  # given up by the same margin as any


def test_fast_steps_are_said_too(pace: Pace) -> None:
    (words,) = run(pace, 500)
    assert words.startswith("decode steps take 0.50 ms here, 0.50 times what the plan says; ")
    (words,) = run(pace, 2000)
    assert words.startswith("warning: ")


def test_late_steps_among_many_do_not_count(pace: Pace) -> None:
    for _ in range(4):
        assert run(pace, 900_000, PACE_STEPS // 3) == []
        assert run(pace, 1000, PACE_STEPS - PACE_STEPS // 3) == []
    assert pace.ratio == 1


def test_each_step_is_compared_with_what_its_rows_should_take(pace: Pace) -> None:
    for rows in (1, 4, 2, 8) * PACE_STEPS:
        assert pace.step(rows, 100 + rows, 1001 * rows) is None
    assert pace.ratio == pytest.approx(1)


def identities(folder: Path) -> list[tuple[str, Identity]]:
    return [(name, Identity.load_or_create(folder / name)) for name in ("anna", "bert")]


def test_the_plan_says_what_a_step_should_take(tmp_path: Path) -> None:
    plan = sample(identities(tmp_path))
    for me, member in enumerate(plan.ring):
        step = planned(plan, me)
        assert step is not None
        assert (member.stage_us, member.context_us) != (None, None)
        assert step(1, 0) == pytest.approx(member.stage_us, abs=1)
        full = plan.session.context
        assert step(1, full) - step(1, 0) == pytest.approx(member.context_us, abs=1)
        rows = -(-plan.session.concurrency // plan.groups)
        assert step(rows, rows * full) == pytest.approx(member.load_us, abs=1)


def test_an_unmeasured_member_has_no_pace(tmp_path: Path) -> None:
    plan = sample(identities(tmp_path))
    unmeasured = plan.ring[0].measured.model_copy(update={"bandwidth": None})
    ring = (plan.ring[0].model_copy(update={"measured": unmeasured}), plan.ring[1])
    said = planned(plan.model_copy(update={"ring": ring}), 0)
    assert said is None
    assert run(Pace(said), 1e9) == []
