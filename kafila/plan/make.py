"""The pipeline: devices, model and load in, a Plan out. Pure; raises what admission refuses."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import combinations

from kafila.defaults import HEAD_MARGIN
from kafila.errors import UsageProblem
from kafila.plan.admission import all_fit, check_members, fits_of, possible, share_rooms
from kafila.plan.advice import faster_without, outlook, outlook_of, shortfalls, untimed
from kafila.plan.figures import figures
from kafila.plan.order import Ordered, order_ring
from kafila.plan.reach import known, paths_of, predict
from kafila.plan.refusal import Refused, least_missing, refusal
from kafila.plan.strategies import Ground, decide, wanted
from kafila.plan.tiers import tier_of
from kafila.plan.values import (
    Choice,
    Derived,
    Device,
    Load,
    Model,
    Nat,
    Order,
    Outlook,
    Plan,
    Strategy,
)
from kafila.words import few, listed


@dataclass(frozen=True, slots=True)
class Wishes:
    """What the person who plans may ask for; the defaults are the planner's own choices.

    `head` names who must be head, `margin` is what another must gain to be it; `order` "relays"
    is blind to costs; `force` plans what does not fit.
    """

    strategy: Strategy = "load"
    order: Order = "cost"
    head: str | None = None
    margin: float = HEAD_MARGIN
    force: bool = False


DEFAULT = Wishes()


def make_plan(
    model: Model, load: Load, devices: Sequence[Device], opener: str, wishes: Wishes = DEFAULT
) -> Plan:
    """Plan `model` over `devices` for `load`; `opener` is who would be head if all were equal.

    Raises Refused, NotAdmitted, BadFile, UsageProblem.
    """
    check_members(model, devices)
    check_load(model, load)
    names = [device.name for device in devices]
    if wishes.head not in (None, *names):
        raise UsageProblem(f"--head {wishes.head}: the members are {listed(names)}")
    devices, notes = share_rooms(devices)
    ordered = order_ring(devices, opener, wishes.order)
    tier, missing = tier_of(devices)
    ground = Ground(
        model, load, ordered.ring, paths_of(ordered.ring), tier, wishes.margin, wishes.head
    )
    decided = decide(ground, wishes.strategy)
    if decided is None and not wishes.force:
        raise _refused(ground, wishes.strategy, notes)
    choice, why = decided or wanted(ground, wishes.strategy)
    forced = decided is None
    return Plan(
        load=load,
        strategy=wishes.strategy,
        tier=tier,
        order=ordered.by,
        groups=choice.groups,
        forced=forced,
        notes=(*notes, *_notes(missing, ordered, why)),
        derived=derive(model, load, choice, opener, strategy=wishes.strategy, forced=forced),
    )


def check_load(model: Model, load: Load) -> None:
    """The declared load must be one that the model can serve."""
    if load.context > model.max_context:
        raise UsageProblem(
            f"{model.name} reaches {model.max_context} tokens; a context of {load.context} is "
            f"too long: --context {model.max_context}"
        )


def derive(
    model: Model,
    load: Load,
    choice: Choice,
    opener: str,
    *,
    strategy: Strategy | None = None,
    forced: bool,
) -> Derived:
    """Everything that follows from a choice, whoever made it; refuses nothing.

    The two strategies are compared on the same ring order, each with its own head; for the
    `strategy` that the choice is of, the choice itself stands, however its head came to be.
    """
    made = figures(model, load, choice)
    first = next((i for i, each in enumerate(choice.ring) if each.name == opener), 0)
    ground = Ground(
        model,
        load,
        (*choice.ring[first:], *choice.ring[:first]),
        (*choice.paths[first:], *choice.paths[:first]),
        tier_of(choice.ring)[0],
        HEAD_MARGIN,
    )
    fits = fits_of(model, load, choice.ring, choice.counts, choice.groups)
    gap = untimed(made.ring) if made.predictions else None

    def outlook_for(name: Strategy) -> Outlook | None:
        if name != strategy:
            return outlook(ground, name)
        return outlook_of(choice, made.predictions) if made.predictions and all_fit(fits) else None

    return Derived(
        ring=made.ring,
        predictions=made.predictions,
        load_outlook=outlook_for("load"),
        bottleneck_outlook=outlook_for("bottleneck"),
        warnings=(
            *(shortfalls(fits) if forced else ()),
            *([gap] if gap else ()),
            *faster_without(model, load, choice, made.predictions),
        ),
    )


def _refused(ground: Ground, strategy: Strategy, notes: Sequence[str]) -> Refused:
    """The refusal, with the division that the strategy would choose if memory did not matter."""
    model, load, ring = ground.model, ground.load, ground.ring
    choice, _ = wanted(ground, strategy)
    if strategy in ("load", "bottleneck"):

        def admits(other: Model, less: Load) -> bool:
            return possible(other, less, ring, ground.head)

        missing = least_missing(model, load, ring, ground.head)
    else:

        def admits(other: Model, less: Load) -> bool:
            return decide(replace(ground, model=other, load=less), strategy) is not None

        missing = None
        if possible(model, load, ring, ground.head):
            notes = (*notes, f"{strategy} is what does not fit; --strategy load does")
    fits = fits_of(model, load, choice.ring, choice.counts, choice.groups)
    return refusal(model, load, fits, admits, missing, notes)


def _notes(missing: str | None, ordered: Ordered, why: str) -> list[str]:
    notes = [each for each in (missing, ordered.note) if each]
    if strict := _taken_for_strict(ordered.ring):
        notes.append(f"the NAT of {few(strict)} is unknown and taken for the strictest")
    if len(ordered.ring) > 1:
        notes.append(why)
    return notes


def _taken_for_strict(ring: Sequence[Device]) -> list[str]:
    """Whose NAT is unknown and, were it permissive, would let some pair talk directly."""
    strict: set[str] = set()
    for pair in combinations(ring, 2):
        first, second = (
            each if known(each.nat) else replace(each, nat=_permissive(each.nat)) for each in pair
        )
        if predict(*pair).path != predict(first, second).path:
            strict.update(each.name for each in pair if not known(each.nat))
    return [each.name for each in ring if each.name in strict]


def _permissive(nat: Nat) -> Nat:
    return replace(nat, mapping="endpoint-independent", filtering="endpoint-independent")
