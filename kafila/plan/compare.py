"""Every strategy on the same members, side by side: the columns of the paper's Table IV."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from kafila.plan.figures import utilisation
from kafila.plan.make import DEFAULT, Wishes, make_plan
from kafila.plan.values import Device, Load, Model, Plan, Strategy

STRATEGIES: tuple[Strategy, ...] = ("load", "bottleneck", "bandwidth", "memory", "uniform")


@dataclass(frozen=True, slots=True)
class Row:
    """One strategy: its plan, whether or not it fits, and who is short of how many bytes."""

    strategy: Strategy
    plan: Plan
    short: tuple[tuple[str, int], ...]

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
    """A row for every strategy, those that do not fit included; the other wishes hold for all."""
    measured = all(device.bandwidth is not None for device in devices)
    rows = []
    for strategy in STRATEGIES:
        if strategy == "bandwidth" and not measured:
            continue
        wanted = replace(wishes, strategy=strategy, force=True)
        plan = make_plan(model, load, devices, opener, wanted)
        short = tuple(
            (stage.device.name, stage.need_bytes - stage.room_bytes)
            for stage in plan.ring
            if stage.need_bytes > stage.room_bytes
        )
        rows.append(Row(strategy, plan, short))
    return rows
