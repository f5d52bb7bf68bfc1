"""What keeps each member from taking one block more: its room, its speed, the number of blocks.

Derived from the planner's own figures by trying that block; knows no way of showing it.
"""

from dataclasses import dataclass
from typing import Literal

from kafila.explain.ring import Ring
from kafila.plan.circuit import token_us
from kafila.plan.edges import uplink_us
from kafila.words import counted, gib, ms

BASELINES = {
    "uniform": "every member gets as many",
    "memory": "blocks are shared out by room",
    "bandwidth": "blocks are shared out by bandwidth",
}
"""Strategies that look at one thing only, with what they do."""

TIERS = {
    "arithmetic": "not everybody was timed, so blocks are shared out by arithmetic",
    "working-set": "speeds are not known, so blocks are shared out by room",
}
"""The planner's poorer rules, with what they do."""

NOTICED_US = 5
"""Less is 0.00 ms to a reader."""


@dataclass(frozen=True, slots=True)
class Limit:
    """Why a member holds no more: `by` in a few words, `why` as a sentence.

    `rule`: a strategy or tier that looks neither at rooms nor at times.
    """

    kind: Literal["room", "speed", "blocks", "rule"]
    by: str
    why: str


def limits(ring: Ring) -> tuple[Limit, ...]:
    """What limits each member, in ring order."""
    return tuple(_limit(ring, at) for at in range(len(ring.devices)))


def _limit(ring: Ring, at: int) -> Limit:
    plan, room_bytes = ring.plan, ring.devices[at].room_bytes
    short = ring.need(at, 0) - room_bytes
    if short > 0:
        return Limit("room", "its room", f"what it holds is {gib(short)} too much already")
    if len(ring.devices) == 1:
        return Limit("blocks", "the number of blocks", "there are no more")
    need = ring.need(at, 1)
    if need > room_bytes:
        return Limit("room", "its room", f"one more would need {gib(need)} of {gib(room_bytes)}")
    if plan.tier in TIERS:
        return Limit("rule", f"the tier {plan.tier}", TIERS[plan.tier])
    if plan.predictions.token_us is None:
        return Limit("rule", "the plan", "nothing is predicted, because not everybody was timed")
    if plan.strategy in BASELINES:
        return Limit("rule", f"the strategy {plan.strategy}", BASELINES[plan.strategy])
    return _under_load(ring, at) if plan.strategy == "load" else _by_bottleneck(ring, at)


def _by_bottleneck(ring: Ring, at: int) -> Limit:
    """More within the slowest stage's time cost nobody anything; beyond it, everybody."""
    costs = ring.costs()
    slowest_us = max(cost.cost(held) for cost, held in zip(costs, ring.counts, strict=True))
    held = ring.counts[at]
    spare = min(costs[at].most(slowest_us), ring.most(at)) - held
    if spare > 0:
        why = f"it has room and time for {counted(spare, 'block')} more, but all are placed"
        return Limit("blocks", "the number of blocks", why)
    one_more = f"one more would take {ms(costs[at].cost(held + 1))}"
    if costs[at].cost(held) == slowest_us:
        return Limit("speed", "its speed", f"it is the slowest stage; {one_more}")
    return Limit("speed", "its speed", f"{one_more}, over the slowest stage's {ms(slowest_us)}")


def _under_load(ring: Ring, at: int) -> Limit:
    """One more is worth what it does to all users, taken from whoever spares it best."""
    now_us, moves = _moves(ring, at)
    if not moves:
        return Limit("blocks", "the number of blocks", "the others hold one each, the least")
    best_us, giver = min(moves)
    users = ring.load.concurrency
    whom = "one user" if users == 1 else f"each of {users} users"
    longer_us = best_us - now_us
    if longer_us >= NOTICED_US:
        why = f"one more, even from {giver}, would cost {whom} {ms(longer_us)} a token"
        return Limit("speed", "its speed", why)
    gain = f"save {whom} {ms(-longer_us)} a token" if longer_us <= -NOTICED_US else "gain nothing"
    return Limit("blocks", "the number of blocks", f"one more, from {giver}, would {gain}")


def _moves(ring: Ring, at: int) -> tuple[float, list[tuple[float, str]]]:
    """Microseconds between a user's tokens now, and with one block moved here from each other."""
    costs, groups = ring.costs(loaded=True), ring.plan.groups
    network_us = sum(ring.hops(ring.rows))
    uplink = uplink_us(ring.model, ring.devices, ring.rows)
    times = [cost.cost(held) for cost, held in zip(costs, ring.counts, strict=True)]
    moves = []
    for giver, held in enumerate(ring.counts):
        if giver != at and held > 1:
            moved = list(times)
            moved[at] = costs[at].cost(ring.counts[at] + 1)
            moved[giver] = costs[giver].cost(held - 1)
            longer_us = token_us(moved, network_us, groups, uplink)
            moves.append((longer_us, ring.devices[giver].name))
    return token_us(times, network_us, groups, uplink), moves
