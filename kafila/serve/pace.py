"""Whether decode steps take as long as the plan says, and the words for it when they do not.

Pure: durations in, words out. Knows no clock, stage or thread.
"""

import statistics
from collections.abc import Callable
from typing import Any, Literal

from kafila.defaults import PACE_AGAIN, PACE_LEAST_US, PACE_OFF, PACE_STEPS
from kafila.derive import model_value
from kafila.plan import cost
from kafila.plan.values import Load
from kafila.planfile import PlanFile, device
from kafila.words import ms

Planned = Callable[[int, int], float]
"""Rows of a step and tokens in their caches, all together -> microseconds it should take."""

Verdict = Literal["as planned", "slower", "faster"]


def planned(plan: PlanFile, me: int) -> Planned | None:
    """What the plan's own figures say of the steps of member `me`; None where they price none."""
    model, one = model_value(plan.model), device(plan.ring[me])
    blocks = len(plan.ring[me].block_range)
    if not cost.priced(one):
        return None

    def step_us(rows: int, tokens: int) -> float:
        load = Load(context=0, concurrency=rows)
        step = cost.batch(model, load, one, rows, head=me == 0).cost(blocks)
        return step + cost.context_us(model, one, blocks, tokens)

    return step_us


class Pace:
    """Judges PACE_STEPS steps at a time by their medians: single ones may be late."""

    def __init__(self, planned: Planned | None) -> None:
        """None: the plan says nothing of it, and so does this."""
        self.ratio: float | None = None
        """Measured over planned, at the last judgement; None before the first."""
        self._verdict: Verdict = "as planned"
        self._planned = planned
        self._steps: list[tuple[float, float]] = []

    def step(self, rows: int, tokens: int, took_us: float) -> str | None:
        """A step of so many rows and tokens in their caches is done; what to say, seldom anything.

        Said is what another verdict than the last one means for the plan.
        """
        if self._planned is None:
            return None
        self._steps.append((took_us, self._planned(rows, tokens)))
        if len(self._steps) < PACE_STEPS:
            return None
        steps, self._steps = self._steps, []
        self.ratio = statistics.median(took / due for took, due in steps)
        took_us = statistics.median(took for took, _ in steps)
        verdict = self._judged(self.ratio, statistics.median(abs(t - due) for t, due in steps))
        if verdict == self._verdict:
            return None
        self._verdict = verdict
        return _words(verdict, self.ratio, took_us)

    def health(self) -> dict[str, Any]:
        """For programs; nothing is said before the first judgement."""
        if self.ratio is None:
            return {"verdict": None, "measured_over_planned": None}
        return {"verdict": self._verdict, "measured_over_planned": round(self.ratio, 3)}

    def _judged(self, ratio: float, apart_us: float) -> Verdict:
        """A verdict is only given up by a margin, or steps near the limit would change it often."""
        usual = self._verdict == "as planned"
        if usual and apart_us < PACE_LEAST_US:
            return "as planned"
        off = PACE_OFF if usual else PACE_AGAIN
        if ratio > 1 + off:
            return "slower"
        return "faster" if ratio < 1 - off else "as planned"


def _words(verdict: Verdict, ratio: float, took_us: float) -> str:
    took = f"decode steps take {ms(took_us)} here"
    if verdict == "as planned":
        return f"{took}, about as planned again"
    times = f"{took}, {ratio:.2f} times what the plan says"
    if verdict == "faster":
        return f"{times}; probe and plan again, or the others do work that this member could do"
    return (
        f"warning: {times}: another program or member uses this machine, or it was measured for "
        "another model or when it was faster; end the program, or probe with --model and plan again"
    )
