"""Every strategy on the same members, side by side: the columns of the paper's Table IV."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from kafila.plan.figures import figures, utilisation
from kafila.plan.make import DEFAULT, Wishes, make_plan
from kafila.plan.reach import paths_of
from kafila.plan.strategies import Ground, decide, wanted
from kafila.plan.values import Device, Figures, Load, Model, Plan, Strategy

STRATEGIES: tuple[Strategy, ...] = ("load", "bottleneck", "bandwidth", "memory", "uniform")


@dataclass(frozen=True, slots=True)
class Row:
    """One strategy: the stages and predictions of its plan, whether or not it fits."""

    strategy: Strategy
    plan: Figures

    @property
    def short(self) -> tuple[tuple[str, int], ...]:
        """Who is short of how many bytes."""
        return tuple(
            (stage.device.name, stage.need_bytes - stage.room_bytes)
            for stage in self.plan.ring
            if stage.need_bytes > stage.room_bytes
        )

    @property
    def imbalance(self) -> float | None:
        """Slowest stage over fastest, None where they are not priced."""
        stages = self._stages()
        return max(stages) / min(stages) if stages else None

    @property
    def utilisation(self) -> float | None:
        """Average stage over slowest."""
        stages = self._stages()
        return utilisation(stages) if stages else None

    def _stages(self) -> list[float]:
        times = [stage.stage_us for stage in self.plan.ring]
        return [time for time in times if time is not None] if None not in times else []


def compare(
    model: Model, load: Load, devices: Sequence[Device], opener: str, wishes: Wishes = DEFAULT
) -> list[Row]:
    """A row for every strategy, those that do not fit included; the other wishes hold for all.

    The ring is ordered once: every strategy divides the one that the first was planned on.
    """
    first, *others = STRATEGIES
    plan = make_plan(model, load, devices, opener, replace(wishes, strategy=first, force=True))
    ring = _from(opener, plan)
    ground = Ground(model, load, ring, paths_of(ring), plan.tier, wishes.margin, wishes.head)
    rows = [Row(first, Figures(plan.ring, plan.predictions))]
    measured = all(device.bandwidth is not None for device in devices)
    for strategy in others:
        if strategy != "bandwidth" or measured:
            choice, _ = decide(ground, strategy) or wanted(ground, strategy)
            rows.append(Row(strategy, figures(model, load, choice)))
    return rows


def _from(opener: str, plan: Plan) -> tuple[Device, ...]:
    """The ring of `plan` as it was before a head was placed: it starts with the opener."""
    ring = [stage.device for stage in plan.ring]
    start = next(i for i, device in enumerate(ring) if device.name == opener)
    return (*ring[start:], *ring[:start])
