"""What speaks against a plan: members it would be faster without, and memory it does not have."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from kafila.defaults import HEAD_MARGIN
from kafila.plan.admission import Fit
from kafila.plan.figures import figures
from kafila.plan.reach import predict
from kafila.plan.strategies import Ground, decide
from kafila.plan.values import Choice, Load, Model, Outlook, Predictions, Strategy
from kafila.words import gib, rate


def outlook(ground: Ground, strategy: Strategy) -> Outlook | None:
    """What `strategy` would predict on this ring; None where it does not fit or has no prices."""
    decided = decide(ground, strategy) if ground.tier == "full" else None
    if decided is None:
        return None
    choice, _ = decided
    made = figures(ground.model, ground.load, choice).predictions
    assert made is not None
    return Outlook(choice.ring[0].name, made.token_us, made.shared_token_us)


def faster_without(
    model: Model, load: Load, choice: Choice, made: Predictions | None
) -> Iterator[str]:
    """Says so where one member alone is predicted to be faster than the ring, for one user or for
    all, and where the ring is without one of its members."""
    if made is None or len(choice.ring) == 1:
        return
    users = load.concurrency
    here = _rates(made.token_us, made.shared_token_us, users)
    lone = [
        (each.name, found)
        for each in choice.ring
        if (found := outlook(_ground(model, load, Choice((each,), (), ("direct",), 1)), "load"))
    ]
    best = min(lone, key=lambda item: (item[1].shared_token_us, item[0]), default=None)
    if best and _faster(best[1], made):
        name, found = best
        yield (
            f"this model fits {name} alone: "
            f"{_rates(found.token_us, found.shared_token_us, users)} there, {here} on this ring"
            f"{_for_whom(found, made, users)}"
        )
    if len(choice.ring) == 2:
        return
    # The head stays where it is (or goes to the next): trying all would make this quadratic.
    fewer = [
        (gone.name, found)
        for position, gone in enumerate(choice.ring)
        if (found := outlook(_ground(model, load, _without(choice, position)), "load"))
    ]
    best = min(fewer, key=lambda item: (item[1].shared_token_us, item[0]), default=None)
    if best and _faster(best[1], made):
        name, found = best
        yield (
            f"without {name} this ring would be faster: "
            f"{_rates(found.token_us, found.shared_token_us, users)}, not {here}"
            f"{_for_whom(found, made, users)} (kafila plan --without {name})"
        )


def shortfalls(fits: Sequence[Fit]) -> Iterator[str]:
    """One line for every member that a forced plan gives more than it can hold."""
    for fit in fits:
        if fit.short_bytes:
            yield f"forced: {fit.name} is {gib(fit.short_bytes)} short of what it is to hold"


def _faster(found: Outlook, made: Predictions) -> bool:
    return round(found.token_us) < round(made.token_us) or round(found.shared_token_us) < round(
        made.shared_token_us
    )


def _for_whom(found: Outlook, made: Predictions, users: int) -> str:
    """Nothing where it is no slower for anybody."""
    if round(found.token_us) > round(made.token_us):
        return ", slower for one user"
    if round(found.shared_token_us) > round(made.shared_token_us):
        return f", slower for {users}"
    return ""


def _rates(token_us: float, shared_token_us: float, users: int) -> str:
    one = rate(token_us)
    return one if users == 1 else f"{one} ({users} users {rate(shared_token_us, users)})"


def _ground(model: Model, load: Load, choice: Choice) -> Ground:
    head = choice.ring[0].name
    return Ground(model, load, choice.ring, choice.paths, "full", HEAD_MARGIN, head)


def _without(choice: Choice, position: int) -> Choice:
    """The ring with its two neighbours joined; the others keep their order and edges."""
    before = position - 1
    joined = predict(choice.ring[before], choice.ring[(position + 1) % len(choice.ring)]).path
    paths = list(choice.paths)
    paths[before] = joined
    del paths[position]
    ring = choice.ring[:position] + choice.ring[position + 1 :]
    return replace(choice, ring=ring, paths=tuple(paths))
