"""A plan's reasons and predictions in words: head, members, edges, speed. One place for all views.

Every sentence follows from figures of the plan, which must be fresh (`kafila.derive.recheck`).
"""

from collections.abc import Sequence
from dataclasses import dataclass

from kafila.defaults import PROMPT_TOKENS
from kafila.explain.limits import Limit
from kafila.explain.ring import Ring
from kafila.plan.reach import known, predict
from kafila.planfile import Edge, PlanFile
from kafila.plantext import at_best
from kafila.words import counted, gib, listed, ms, rate, seconds


@dataclass(frozen=True, slots=True)
class Reason:
    """A sentence and what it is about: a member's name, or one of a few words."""

    about: str
    words: str


def reasons(ring: Ring, found: Sequence[Limit]) -> tuple[Reason, ...]:
    """All there is to say about a plan, whose members' limits were `found`."""
    plan = ring.plan
    members = (
        Reason(member.name, f"{_held(len(member.block_range))}, limited by {limit.by}: {limit.why}")
        for member, limit in zip(plan.ring, found, strict=True)
    )
    compared = strategies(plan)
    return (
        *(Reason("warning", warning) for warning in plan.warnings),
        Reason("speed", speed(plan)),
        *([Reason("strategy", compared)] if compared else []),
        Reason("network", network(ring)),
        *(Reason("relay", words) for words in relays(ring)),
        Reason("head", head(plan)),
        *members,
        *(Reason("note", note) for note in plan.notes if not note.startswith("head: ")),
    )


def _held(blocks: int) -> str:
    return "1 block, the least there is" if blocks == 1 else f"{blocks} blocks"


def speed(plan: PlanFile) -> str:
    """What one user and all declared users get."""
    told, users = plan.predictions, plan.session.concurrency
    if told.token_us is None or told.token_full_us is None or told.shared_token_us is None:
        return "not predicted, because not every member was timed"
    about = at_best(told) + ("about " if told.approximate else "")
    words = (
        f"one user gets {about}{rate(told.token_us)}, "
        f"{about}{rate(told.token_full_us)} once the context is full"
    )
    if users > 1:
        words += (
            f"; {users} users with full contexts get "
            f"{about}{rate(told.shared_token_us, users)} together"
        )
    if told.first_token_us is not None:
        words += (
            f"; {_prompt(plan)} has its first token after {about}{seconds(told.first_token_us)}"
        )
    return words


def _prompt(plan: PlanFile) -> str:
    return f"a prompt of {min(PROMPT_TOKENS, plan.session.context)} tokens"


def strategies(plan: PlanFile) -> str | None:
    """The two strategies of the cost model side by side, where both were evaluated."""
    load, bottleneck = plan.predictions.strategies.load, plan.predictions.strategies.bottleneck
    if load is None or bottleneck is None:
        return None
    users, best = plan.session.concurrency, at_best(plan.predictions)

    def gives(name: str, token_us: int, shared_token_us: int) -> str:
        together = f" and {users} users {rate(shared_token_us, users)}" if users > 1 else ""
        return f"{name} gives one user {best}{rate(token_us)}{together}"

    return (
        f"{gives('load', load.token_us, load.shared_token_us)}; "
        f"{gives('bottleneck', bottleneck.token_us, bottleneck.shared_token_us)}"
    )


def network_share(ring: Ring) -> float | None:
    """The part of a lone user's token that is spent on the edges, 0 to 1; None if not known.

    Where some edges were not timed it is at least that.
    """
    token_us, edges = ring.plan.predictions.token_us, _edges(ring)
    if token_us is None or (edges and all(edge.cost_us is None for _, edge, _ in edges)):
        return None
    return min(1.0, sum(ring.hops()) / max(token_us, 1))


def share_words(ring: Ring) -> str | None:
    """`network_share` for people."""
    part = network_share(ring)
    if part is None:
        return None
    least = "at least " if ring.plan.predictions.network_us is None else ""
    return f"{least}{part:.0%}" if part >= 0.01 or part == 0 else "less than 1%"


def _edges(ring: Ring) -> list[tuple[str, Edge, float]]:
    """From whom, the edge, and what it adds to a token."""
    members = zip(ring.plan.ring, ring.hops(), strict=True)
    return [(member.name, member.edge, hop) for member, hop in members if member.edge]


def network(ring: Ring) -> str:
    """How much of a token the edges take, and which of them costs most."""
    edges = _edges(ring)
    if not edges:
        return "one member alone: nothing is sent"
    timed = [(hop, name, edge) for name, edge, hop in edges if edge.cost_us is not None]
    if not timed:
        return "no edge was timed"
    untimed = len(edges) - len(timed)
    gap = f"; {counted(untimed, 'edge')} not timed" if untimed else ""
    dearest_us, name, edge = max(timed, key=lambda item: item[0])
    if not dearest_us:
        return f"the {'timed ' if untimed else ''}edges cost nothing{gap}"
    part = share_words(ring)
    takes = f"the network takes {part} of a token; " if part else ""
    return (
        f"{takes}the edge from {name} to {edge.to} costs most: {ms(dearest_us)} a token, "
        f"{edge.path}, {ms(edge.cost_us or 0)} there and back{gap}"
    )


def relays(ring: Ring) -> list[str]:
    """Which edges are relayed, by reason."""
    following = (*ring.devices[1:], ring.devices[0])
    edges: dict[str, list[str]] = {}
    for device, after, path in zip(ring.devices, following, ring.paths, strict=True):
        if path == "relayed":
            reach = predict(device, after)
            why = reach.why if reach.path == "relayed" else "the plan says so"
            if reach.path == "relayed" and not (known(device.nat) and known(after.nat)):
                why = "a NAT that is unknown is taken for the strictest"
            edges.setdefault(why, []).append(f"{device.name} to {after.name}")
    return [f"{listed(pairs)}: {why}" for why, pairs in edges.items()]


def held(blocks: range) -> str:
    """`9 blocks (0-8)`."""
    span = f"{blocks.start}" if len(blocks) == 1 else f"{blocks.start}-{blocks.stop - 1}"
    return f"{counted(len(blocks), 'block')} ({span})"


def edge_words(edge: Edge) -> str:
    """An edge beside its arrow."""
    return f"{edge.path}, {'not timed' if edge.cost_us is None else ms(edge.cost_us)}"


def head(plan: PlanFile) -> str:
    """Why the head is where it is, in the planner's words, and what being it costs."""
    name, measured = plan.head, plan.ring[0].measured
    otherwise = "is alone" if len(plan.ring) == 1 else "stands first in the file"
    starts = tuple(f"head: {name}{end}" for end in (" ", ",", ";"))
    told = next((note for note in plan.notes if note.startswith(starts)), None)
    why = told.removeprefix("head: ") if told else f"{name} {otherwise}"
    reading = (
        f" ({ms(plan.model.head_read_bytes * 1e6 / measured.bandwidth)})"
        if measured.bandwidth
        else ""
    )
    return (
        f"{why}; as head it also reads {gib(plan.model.head_read_bytes)} a token{reading} and "
        f"keeps {gib(plan.model.head_resident_bytes)}"
    )
