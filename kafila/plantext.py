"""A plan in words: the commented file, and the summary a terminal shows."""

from kafila import yamlfile
from kafila.planfile import Edge, PlanFile
from kafila.words import counted, gib, ms, rate
from kafila.yamlfile import Place


def render(plan: PlanFile) -> str:
    """The plan as commented YAML; reading it gives the same plan."""
    model, session, ring = plan.model, plan.session, plan.ring
    predictions, users = plan.predictions, plan.session.concurrency
    rows = -(-users // plan.groups)
    comments: dict[Place, str] = {
        ("model", "block_bytes"): gib(model.block_bytes),
        ("model", "head_read_bytes"): f"{gib(model.head_read_bytes)} per token",
        ("model", "head_resident_bytes"): f"{gib(model.head_resident_bytes)} kept",
        ("model", "kv_bytes"): "per token and block",
        ("session", "context"): "tokens of a request, prompt and answer",
        ("session", "concurrency"): "requests at once",
        ("groups",): f"{counted(rows, 'request')} each, travelling as one frame",
        ("predictions", "bottleneck_us"): f"{ms(predictions.bottleneck_us)}, the slowest stage",
        ("predictions", "token_us"): f"one user: {rate(predictions.token_us)}",
        ("predictions", "token_full_us"): (
            f"one user, context full: {rate(predictions.token_full_us)}"
        ),
        ("predictions", "shared_token_us"): (
            f"{counted(users, 'user')}, contexts full: "
            f"{rate(predictions.shared_token_us, users)} together"
        ),
    }
    if predictions.approximate:
        comments["predictions", "approximate"] = "the probe measured other shapes than this model's"
    headings: dict[Place, str] = {
        ("format",): (
            f"Kafila plan: {model.name} on {counted(len(ring), 'member')}.\n"
            "Exact bytes and microseconds count; comments say them for people.\n"
            "After an edit: kafila check plan.yaml. Then every member: kafila serve plan.yaml"
        ),
        ("ring",): "In ring order; the first is the head.",
    }
    for position, member in enumerate(ring):
        at = ("ring", position)
        measured = member.measured
        comments |= {
            (*at, "blocks"): f"{len(member.block_range)} of {model.blocks}",
            (*at, "stage_us"): f"{ms(member.stage_us)} a token, cache empty",
            (*at, "context_us"): f"{ms(member.context_us)} more with {session.context} tokens",
            (*at, "need_bytes"): gib(member.need_bytes),
            (*at, "room_bytes"): (
                f"{gib(member.room_bytes)}, {member.need_bytes / member.room_bytes:.0%} used"
            ),
            (*at, "edge"): _edge_words(member.edge),
            (*at, "measured", "bandwidth"): f"{measured.bandwidth / 1e9:.1f} GB/s",
            (*at, "measured", "rows_ns"): "rows a step: one block",
        }
    return yamlfile.render(
        plan.model_dump(mode="json"),
        comments=comments,
        headings=headings,
        inline=("edge", "rows_ns", "workspace"),
    )


def summary(plan: PlanFile) -> str:
    """A few lines for a terminal: who holds what, how fast it will be, and the plan's notes."""
    wide = max(len(member.name) for member in plan.ring)
    lines = [
        f"{plan.model.name} on {counted(len(plan.ring), 'member')}: {plan.session.context} tokens, "
        f"{counted(plan.session.concurrency, 'request')} in {counted(plan.groups, 'group')}"
    ]
    for member in plan.ring:
        lines.append(
            f"  {member.name:<{wide}}  blocks {member.blocks:<7} {ms(member.stage_us):>10}  "
            f"{gib(member.need_bytes):>10} of {gib(member.room_bytes):>10}"
            + ("  head" if member.name == plan.head else "")
        )
    predictions, users = plan.predictions, plan.session.concurrency
    about = "about " if predictions.approximate else ""
    lines.append(
        f"predicted: one user {about}{rate(predictions.token_us)}; "
        f"{users} with full contexts {about}{rate(predictions.shared_token_us, users)} together"
    )
    return "\n".join([*lines, *plan.notes])


def _edge_words(edge: Edge | None) -> str:
    if edge is None:
        return "a ring of one"
    return "cost not timed" if edge.cost_us is None else ms(edge.cost_us)
