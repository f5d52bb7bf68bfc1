"""A plan file in the planner's terms, to ask the planner's own functions about it."""

from dataclasses import dataclass

from kafila import planfile
from kafila.derive import model_value
from kafila.plan.admission import limit, need_bytes
from kafila.plan.cost import batch, stage
from kafila.plan.edges import hops_us
from kafila.plan.groups import rows_of
from kafila.plan.values import Affine, Device, Load, Model, Path
from kafila.planfile import PlanFile


@dataclass(frozen=True, slots=True)
class Ring:
    """The members as devices with the blocks they hold; the first is the head."""

    plan: PlanFile
    model: Model
    load: Load
    devices: tuple[Device, ...]
    counts: tuple[int, ...]
    paths: tuple[Path, ...]

    @classmethod
    def of(cls, plan: PlanFile) -> "Ring":
        """The ring of `plan`, whose figures must be fresh (`kafila.derive.recheck`)."""
        return cls(
            plan,
            model_value(plan.model),
            Load(plan.session.context, plan.session.concurrency),
            tuple(planfile.device(member) for member in plan.ring),
            tuple(len(member.block_range) for member in plan.ring),
            tuple(member.edge.path if member.edge else "direct" for member in plan.ring),
        )

    @property
    def rows(self) -> int:
        """Requests in each group."""
        return rows_of(self.load, self.plan.groups)

    def need(self, at: int, more: int) -> int:
        """Bytes that a member needs with so many blocks more than it holds."""
        blocks = self.counts[at] + more
        return need_bytes(
            self.model, self.load, self.devices[at], blocks, self.plan.groups, head=at == 0
        )

    def most(self, at: int) -> int:
        """Blocks that a member has room for."""
        device = self.devices[at]
        return limit(self.model, self.load, device, self.plan.groups, head=at == 0)

    def costs(self, *, loaded: bool = False) -> list[Affine]:
        """What blocks cost each member: one user with an empty cache, or a group with full ones.

        Only in the tier `full`.
        """
        return [
            batch(self.model, self.load, device, self.rows, head=at == 0)
            if loaded
            else stage(self.model, device, head=at == 0)
            for at, device in enumerate(self.devices)
        ]

    def hops(self, tokens: int = 1) -> tuple[float, ...]:
        """Microseconds that each edge adds to so many tokens, one way; nothing where not timed."""
        return hops_us(self.model, self.devices, self.paths, tokens)
