"""A plan as a picture: what to draw, whoever draws it (`text`, `svg`). Nothing here has a place.

Bars are shares of their scale; words stand beside them, so that nothing is told by colour alone.
"""

from dataclasses import dataclass

from kafila.explain.limits import limits
from kafila.explain.reasons import Reason, edge_words, held, reasons, share_words
from kafila.explain.ring import Ring
from kafila.planfile import PlanFile
from kafila.plantext import at_best, nat_words
from kafila.words import counted, gib, ms, rate, seconds


@dataclass(frozen=True, slots=True)
class Bar:
    """`part` of the scale is filled (above 1: more than there is); `words` are the figures."""

    part: float
    words: str


@dataclass(frozen=True, slots=True)
class Arrow:
    """The edge to the next stage; `length` is its part of the way round, in the stations' unit."""

    to: str
    relayed: bool
    length: float
    words: str


@dataclass(frozen=True, slots=True)
class Station:
    """One member: compute time of a token against the slowest stage's, need against room.

    `length` is its part of the way round: microseconds, or blocks where times are not known.
    """

    name: str
    head: bool
    blocks: str
    nat: str | None
    length: float
    compute: Bar
    slowest: bool
    memory: Bar
    limit: str
    arrow: Arrow | None


@dataclass(frozen=True, slots=True)
class Picture:
    """The whole: heading, the ring from the head on and how long it is, figures, reasons."""

    title: str
    subtitle: str
    length: tuple[str, str]
    stations: tuple[Station, ...]
    figures: tuple[tuple[str, str], ...]
    reasons: tuple[Reason, ...]


def picture(plan: PlanFile) -> Picture:
    """What `plan`, whose figures must be fresh (`kafila.derive.recheck`), looks like."""
    ring = Ring.of(plan)
    found = limits(ring)
    token_us, best = plan.predictions.token_us, _best(plan)
    stations = tuple(_station(ring, position, limit.by) for position, limit in enumerate(found))
    session = plan.session
    return Picture(
        title=f"{plan.model.name} on {counted(len(plan.ring), 'member')}",
        subtitle=(
            f"{session.context} tokens, {counted(session.concurrency, 'request')} in "
            f"{counted(plan.groups, 'group')}, strategy {plan.strategy}"
        ),
        length=(
            (counted(plan.model.blocks, "block"), "round the ring")
            if token_us is None
            else (ms(token_us), "a token's way" + (best or " round"))
        ),
        stations=stations,
        figures=figures(ring),
        reasons=reasons(ring, found),
    )


def _station(ring: Ring, position: int, limit: str) -> Station:
    told, member = ring.plan.predictions, ring.plan.ring[position]
    timed = told.token_us is not None
    longest_us = max(each.stage_us or 0 for each in ring.plan.ring)
    compute = Bar(0, "not timed")
    if member.stage_us is not None:
        compute = Bar(member.stage_us / max(longest_us, 1), ms(member.stage_us))
    arrow = None
    if member.edge:
        relayed, hop_us = member.edge.path == "relayed", ring.hops()[position]
        arrow = Arrow(member.edge.to, relayed, hop_us if timed else 0, edge_words(member.edge))
    return Station(
        name=member.name,
        head=position == 0,
        blocks=held(member.block_range),
        nat=nat_words(member.measured.nat),
        length=(member.stage_us or 0) if timed else len(member.block_range),
        compute=compute,
        slowest=timed and len(ring.devices) > 1 and member.stage_us == longest_us,
        memory=Bar(
            member.need_bytes / member.room_bytes,
            f"{gib(member.need_bytes)} of {gib(member.room_bytes)}",
        ),
        limit=limit,
        arrow=arrow,
    )


def _best(plan: PlanFile) -> str:
    """After what a figure is of."""
    return ", at best" if at_best(plan.predictions) else ""


def figures(ring: Ring) -> tuple[tuple[str, str], ...]:
    """(what, how much) of the predictions that people ask for first."""
    told, users = ring.plan.predictions, ring.load.concurrency
    best = _best(ring.plan)
    shown = []
    if told.token_us is not None:
        shown.append((f"one user{best}", rate(told.token_us)))
    else:
        shown.append(("speed", "not predicted"))
    if told.shared_token_us is not None and users > 1:
        shown.append((f"{users} users together{best}", rate(told.shared_token_us, users)))
    if told.first_token_us is not None:
        shown.append((f"first token{best}", seconds(told.first_token_us)))
    part = share_words(ring)
    if part and len(ring.devices) > 1:
        shown.append(("network share", part))
    return tuple(shown)
