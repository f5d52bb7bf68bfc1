"""A plan in words: the commented file, the summary a terminal shows, strategies side by side."""

from collections.abc import Sequence

from kafila import yamlfile
from kafila.defaults import PROMPT_TOKENS
from kafila.plan.advice import untimed
from kafila.plan.compare import Row
from kafila.planfile import Edge, Model, Outlook, PlanFile, Predictions
from kafila.probe.report import Nat
from kafila.words import counted, gib, ms, rate, seconds
from kafila.yamlfile import Place


def render(plan: PlanFile) -> str:
    """The plan as commented YAML; reading it gives the same plan."""
    model, ring = plan.model, plan.ring
    comments: dict[Place, str] = {
        ("model", "block_bytes"): gib(model.block_bytes),
        ("model", "head_read_bytes"): f"{gib(model.head_read_bytes)} per token",
        ("model", "head_resident_bytes"): f"{gib(model.head_resident_bytes)} kept",
        ("model", "kv_bytes"): "per token and block",
        ("session", "opener"): "the head, unless another is better by a margin",
        ("session", "context"): "tokens of a request, prompt and answer",
        ("session", "concurrency"): "requests at once",
        ("tier",): _TIERS[plan.tier],
        ("order",): _ORDERS[plan.order],
        ("groups",): f"{counted(rows_of(plan), 'request')} each, travelling as one frame",
    }
    if model.kept or model.stored:
        comments[("model", "kept" if model.kept else "stored")] = _weights(model)
    if plan.forced:
        comments[("forced",)] = "it does not fit; see the warnings"
    if plan.edges is not None:
        comments[("edges",)] = "guess at the ports of NATs that nothing else gets through"
    headings: dict[Place, str] = {
        ("format",): (
            f"Kafila plan: {model.name} on {counted(len(ring), 'member')}.\n"
            "Exact bytes and microseconds count; comments say them for people.\n"
            "After an edit: kafila check plan.yaml. Then every member: kafila serve plan.yaml"
        ),
        ("ring",): "In ring order; the first is the head.",
    }
    comments |= _prediction_words(plan)
    for position in range(len(ring)):
        comments |= _member_words(plan, position)
    return yamlfile.render(
        plan.model_dump(mode="json"),
        comments=comments,
        headings=headings,
        inline=("edge", "edges", "rows_ns", "workspace", "nat", "pairs_us", "load", "bottleneck"),
    )


_TIERS = {
    "full": "every stage is priced",
    "arithmetic": "divided by arithmetic rates: somebody's bandwidth or overhead is missing",
    "working-set": "divided by room: nothing else is known of everybody",
}
_ORDERS = {"cost": "the cheapest ring by round trips", "relays": "the ring with fewest relays"}


def _weights(model: Model) -> str:
    """What is done at load to block matrices that do not sit in memory as they lie on disk."""
    source = model.stored or model.dtype
    if model.kept is None:
        return f"block matrices are {source} on disk, dequantised to {model.dtype} at load"
    return (
        f"block matrices are {source} on disk, converted at load to {model.kept} with a scale "
        f"a row; all else is {model.dtype}"
    )


def rows_of(plan: PlanFile) -> int:
    """Requests in each group."""
    return -(-plan.session.concurrency // plan.groups)


def network_share(plan: PlanFile) -> float | None:
    """The part of a lone user's token that is spent on the network; None where it is not known."""
    network, token = plan.predictions.network_us, plan.predictions.token_us
    return None if network is None or not token else network / token


AT_BEST = "at best "


def at_best(made: Predictions) -> str:
    """`at best `, for rates that leave out what an edge costs because nobody timed it."""
    return AT_BEST if made.token_us is not None and made.network_us is None else ""


def nat_words(nat: Nat | None) -> str | None:
    """A NAT's class in the paper's words; None where it is not known."""
    if nat is None or nat.kind == "unknown":
        return None
    return {"blocked": "UDP blocked", "none": "no NAT"}.get(nat.kind, f"{nat.kind} NAT")


def _prediction_words(plan: PlanFile) -> dict[Place, str]:
    made, users = plan.predictions, plan.session.concurrency
    best = at_best(made)
    words: dict[str, str] = {}
    if made.bottleneck_us is not None:
        words["bottleneck_us"] = f"{ms(made.bottleneck_us)}, the slowest stage"
    if made.token_us is not None:
        words["token_us"] = f"one user: {best}{rate(made.token_us)}"
    if made.token_full_us is not None:
        words["token_full_us"] = f"one user, context full: {best}{rate(made.token_full_us)}"
    if made.shared_token_us is not None:
        together = rate(made.shared_token_us, users)
        words["shared_token_us"] = (
            f"{counted(users, 'user')}, contexts full: {best}{together} together"
        )
    share = network_share(plan)
    if made.network_us is not None and share is not None:
        words["network_us"] = f"{ms(made.network_us)}, {share:.0%} of one user's token"
    elif made.token_us is not None:
        words["network_us"] = "an edge was not timed and counts as nothing; see the warnings"
    if made.first_token_us is not None:
        prompt = min(PROMPT_TOKENS, plan.session.context)
        words["first_token_us"] = (
            f"{best}{seconds(made.first_token_us)} after a prompt of {prompt} tokens"
        )
    if made.approximate:
        words["approximate"] = "the probe measured other shapes than this model's"
    comments: dict[Place, str] = {("predictions", key): text for key, text in words.items()}
    for name, outlook in (
        ("load", made.strategies.load),
        ("bottleneck", made.strategies.bottleneck),
    ):
        if outlook is not None:
            at = ("predictions", "strategies", name)
            comments[at] = best + _outlook_words(outlook, users)
    return comments


def _outlook_words(outlook: Outlook, users: int) -> str:
    one = rate(outlook.token_us)
    return one if users == 1 else f"{one}; {users} users {rate(outlook.shared_token_us, users)}"


def _member_words(plan: PlanFile, position: int) -> dict[Place, str]:
    member, session = plan.ring[position], plan.session
    measured = member.measured
    words = {
        "blocks": f"{len(member.block_range)} of {plan.model.blocks}",
        "need_bytes": gib(member.need_bytes),
        "room_bytes": f"{gib(member.room_bytes)}, {member.need_bytes / member.room_bytes:.0%} used",
        "edge": _edge_words(member.edge),
    }
    if member.stage_us is not None:
        words["stage_us"] = f"{ms(member.stage_us)} a token, cache empty"
    if member.context_us is not None:
        words["context_us"] = f"{ms(member.context_us)} more with {session.context} tokens"
    if member.load_us is not None:
        rows = counted(rows_of(plan), "request")
        words["load_us"] = f"{ms(member.load_us)} a step of {rows}, contexts full"
    at = ("ring", position)
    comments: dict[Place, str] = {(*at, key): text for key, text in words.items()}
    if measured.bandwidth is not None:
        comments[(*at, "measured", "bandwidth")] = f"{measured.bandwidth / 1e9:.1f} GB/s"
    if nat := nat_words(measured.nat):
        comments[(*at, "measured", "nat")] = nat
    if measured.rows_ns is not None:
        comments[(*at, "measured", "rows_ns")] = "rows a step: one block"
    return comments


def _edge_words(edge: Edge | None) -> str:
    if edge is None:
        return "a ring of one"
    return "cost not timed" if edge.cost_us is None else ms(edge.cost_us)


def summary(plan: PlanFile) -> str:
    """A few lines for a terminal: who holds what, how fast it will be, warnings and notes."""
    wide = max(len(member.name) for member in plan.ring)
    lines = [
        f"{plan.model.name} on {counted(len(plan.ring), 'member')}: {plan.session.context} tokens, "
        f"{counted(plan.session.concurrency, 'request')} in {counted(plan.groups, 'group')}"
    ]
    if plan.model.kept or plan.model.stored:
        lines.append(_weights(plan.model))
    for member in plan.ring:
        time = "" if member.stage_us is None else ms(member.stage_us)
        lines.append(
            f"  {member.name:<{wide}}  blocks {member.blocks:<7} {time:>10}  "
            f"{gib(member.need_bytes):>10} of {gib(member.room_bytes):>10}"
            + ("  head" if member.name == plan.head else "")
        )
    warnings = [f"warning: {warning}" for warning in plan.warnings]
    if len(plan.ring) > 1 and plan.session.rendezvous is None:
        warnings.append(
            "warning: no rendezvous is named, so the members cannot meet to serve; "
            "plan with --rendezvous HOST[:PORT]"
        )
    return "\n".join([*lines, *_outcome(plan), *warnings, *plan.notes])


def _outcome(plan: PlanFile) -> list[str]:
    """The predicted rates, of the plan and of the two strategies that use the cost model."""
    made, users = plan.predictions, plan.session.concurrency
    if made.token_us is None or made.shared_token_us is None:
        return ["no times can be predicted: see the tier below"]
    best = at_best(made)
    about = f"{best}about " if made.approximate else best
    lines = [
        f"predicted: one user {about}{rate(made.token_us)}; "
        f"{users} with full contexts {about}{rate(made.shared_token_us, users)} together"
    ]
    share = network_share(plan)
    if share is not None and len(plan.ring) > 1:
        lines.append(f"network: {share:.0%} of one user's token")
    if made.first_token_us is not None:
        prompt = min(PROMPT_TOKENS, plan.session.context)
        lines.append(
            f"first token: {about}{seconds(made.first_token_us)} after a prompt of {prompt} tokens"
        )
    for name, outlook in (
        ("load", made.strategies.load),
        ("bottleneck", made.strategies.bottleneck),
    ):
        if outlook is not None and name != plan.strategy:
            lines.append(f"strategy {name} would give: {about}{_outlook_words(outlook, users)}")
    return lines


def comparison(rows: Sequence[Row], users: int) -> str:
    """Every strategy on a line; blocks in the order of the ring, which is named first."""
    first = rows[0].plan
    ring = [stage.device.name for stage in first.ring]
    gap = untimed(first.ring) if first.predictions else None
    best = ", at best" if gap else ""
    table = [
        ("strategy", "head", "blocks", "slowest", "slow/fast", "utilised", f"1 user{best}")
        + ((f"{users} users{best}",) if users > 1 else ())
    ]
    for row in rows:
        counts = {stage.device.name: len(stage.blocks) for stage in row.plan.ring}
        made = row.plan.predictions
        cells = [row.strategy, row.plan.ring[0].device.name]
        cells.append(" ".join(str(counts[name]) for name in ring))
        if made is None or row.imbalance is None or row.utilisation is None:
            cells += ["-"] * (len(table[0]) - 3)
        else:
            cells += [ms(made.bottleneck_us), f"{row.imbalance:.1f}", f"{row.utilisation:.0%}"]
            cells.append(rate(made.token_us))
            if users > 1:
                cells.append(rate(made.shared_token_us, users))
        table.append(tuple(cells))
    widths = [max(len(line[column]) for line in table) for column in range(len(table[0]))]
    lines = [f"blocks of {', '.join(ring)}"]
    for position, line in enumerate(table):
        cells = [
            cell.ljust(wide) if column < 3 else cell.rjust(wide)
            for column, (cell, wide) in enumerate(zip(line, widths, strict=True))
        ]
        text = "  ".join(cells).rstrip()
        short = rows[position - 1].short if position else ()
        if short:
            who = ", ".join(f"{name} short by {gib(size)}" for name, size in short)
            text += f"  refused: {who}"
        lines.append(text)
    if gap:
        lines.append(gap)
    return "\n".join(lines)
