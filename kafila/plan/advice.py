"""What speaks against a plan: members it is faster without, missing memory, untimed edges."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from kafila.defaults import HEAD_MARGIN
from kafila.plan.admission import Fit
from kafila.plan.figures import figures
from kafila.plan.reach import predict
from kafila.plan.strategies import Ground, decide
from kafila.plan.values import Choice, Load, Model, Outlook, Predictions, Stage, Strategy
from kafila.words import few, gib, rate


def outlook(ground: Ground, strategy: Strategy) -> Outlook | None:
    """What `strategy` would predict on this ring; None where it does not fit or has no prices."""
    decided = decide(ground, strategy) if ground.tier == "full" else None
    if decided is None:
        return None
    choice, _ = decided
    made = figures(ground.model, ground.load, choice).predictions
    assert made is not None
    return outlook_of(choice, made)


def outlook_of(choice: Choice, made: Predictions) -> Outlook:
    """What was predicted for a choice, in brief."""
    return Outlook(choice.ring[0].name, made.token_us, made.shared_token_us)


def untimed(ring: Sequence[Stage]) -> str | None:
    """Names the edges of a ring that were not timed, on which predictions are lower bounds."""
    pairs = [
        f"{stage.device.name} to {stage.edge.to}"
        for stage in ring
        if stage.edge and stage.edge.cost_us is None
    ]
    if not pairs:
        return None
    if len(pairs) == 1:
        return f"the edge from {pairs[0]} was not timed and counts as nothing: rates are at best"
    return f"the edges from {few(pairs)} were not timed and count as nothing: rates are at best"


def faster_without(
    model: Model, load: Load, choice: Choice, made: Predictions | None
) -> Iterator[str]:
    """Says so where one member alone is predicted to be faster than the ring, for one user or for
    all, and where the ring is without one of its members. Untimed edges are not compared."""
    if made is None or made.network_us is None or len(choice.ring) == 1:
        return
    users = load.concurrency
    here = _rates(made, users)
    lone = (
        (each.name, _timed(model, load, Choice((each,), (), ("direct",), 1)))
        for each in choice.ring
    )
    for name, found in _faster(lone, made, users):
        yield (
            f"this model fits {name} alone: {_rates(found, users)} there, {here} on this ring"
            f"{_for_whom(found, made, users)}"
        )
    if len(choice.ring) == 2:
        return
    # The head stays where it is (or goes to the next): trying all would make this quadratic.
    fewer = (
        (gone.name, _timed(model, load, _without(choice, position)))
        for position, gone in enumerate(choice.ring)
    )
    for name, found in _faster(fewer, made, users):
        yield (
            f"without {name} this ring would be faster: {_rates(found, users)}, not {here}"
            f"{_for_whom(found, made, users)} (kafila plan --without {name})"
        )


def shortfalls(fits: Sequence[Fit]) -> Iterator[str]:
    """One line for every member that a forced plan gives more than it can hold."""
    for fit in fits:
        if fit.short_bytes:
            yield f"forced: {fit.name} is {gib(fit.short_bytes)} short of what it is to hold"


def _timed(model: Model, load: Load, choice: Choice) -> Predictions | None:
    """The predictions of `load` on another ring; None where it does not fit, has no prices, or has
    an edge that was not timed."""
    head = choice.ring[0].name
    ground = Ground(model, load, choice.ring, choice.paths, "full", HEAD_MARGIN, head)
    decided = decide(ground, "load")
    made = figures(model, load, decided[0]).predictions if decided else None
    return made if made and made.network_us is not None else None


def _faster(
    others: Iterable[tuple[str, Predictions | None]], made: Predictions, users: int
) -> Iterator[tuple[str, Predictions]]:
    """The best for all users and the best for one, where they are faster and not the same."""
    found = [(name, *_whole(each), each) for name, each in others if each]
    token_us, shared_us = _whole(made)
    best_for_all = min(found, key=lambda it: (it[2], it[1], it[0]), default=None)
    best_for_one = min(found, key=lambda it: (it[1], it[2], it[0]), default=None)
    told = None
    if best_for_all and users > 1 and best_for_all[2] < shared_us:
        told = best_for_all[0]
        yield told, best_for_all[3]
    if best_for_one and best_for_one[0] != told and best_for_one[1] < token_us:
        yield best_for_one[0], best_for_one[3]


def _whole(made: Predictions) -> tuple[int, int]:
    """For one user and for all, in whole microseconds: what floats differ by is no difference."""
    return round(made.token_us), round(made.shared_token_us)


def _for_whom(found: Predictions, made: Predictions, users: int) -> str:
    """Nothing where it is no slower for anybody."""
    if round(found.token_us) > round(made.token_us):
        return ", slower for one user"
    if round(found.shared_token_us) > round(made.shared_token_us):
        return f", slower for {users}" if users > 1 else ", slower with a full context"
    return ""


def _rates(made: Predictions, users: int) -> str:
    one = rate(made.token_us)
    return one if users == 1 else f"{one} ({users} users {rate(made.shared_token_us, users)})"


def _without(choice: Choice, position: int) -> Choice:
    """The ring with its two neighbours joined; the others keep their order and edges."""
    before = position - 1
    joined = predict(choice.ring[before], choice.ring[(position + 1) % len(choice.ring)]).path
    paths = list(choice.paths)
    paths[before] = joined
    del paths[position]
    ring = choice.ring[:position] + choice.ring[position + 1 :]
    return replace(choice, ring=ring, paths=tuple(paths))
