"""Everything that follows from a choice once it is made, whoever made it. Refuses nothing."""

from collections.abc import Sequence

from kafila.defaults import CHUNKS_A_MEMBER, PROMPT_TOKENS
from kafila.plan.admission import fits_of
from kafila.plan.circuit import token_us
from kafila.plan.cost import batch, chunk_us, chunks_of, context_us, priced, stage
from kafila.plan.edges import edges_of, hops_us, uplink_us
from kafila.plan.groups import rows_of
from kafila.plan.values import Choice, Edge, Figures, Load, Model, Predictions, Stage


def figures(model: Model, load: Load, choice: Choice) -> Figures:
    """Stage times, needs, edges and predictions. Compare needs and rooms of the result."""
    edges = edges_of(choice.ring, choice.paths)
    fits = fits_of(model, load, choice.ring, choice.counts, choice.groups)
    rows = rows_of(load, choice.groups)
    stages = []
    start = 0
    for position, (device, blocks) in enumerate(zip(choice.ring, choice.counts, strict=True)):
        head, known = position == 0, priced(device)
        stages.append(
            Stage(
                device=device,
                blocks=range(start, start + blocks),
                stage_us=stage(model, device, head=head).cost(blocks) if known else None,
                context_us=context_us(model, device, blocks, load.context) if known else None,
                load_us=batch(model, load, device, rows, head=head).cost(blocks) if known else None,
                need_bytes=fits[position].need_bytes,
                room_bytes=device.room_bytes,
                edge=edges[position],
            )
        )
        start += blocks
    return Figures(tuple(stages), _predictions(model, load, choice, stages, edges))


def _predictions(
    model: Model,
    load: Load,
    choice: Choice,
    stages: Sequence[Stage],
    edges: Sequence[Edge | None],
) -> Predictions | None:
    once = [stage.stage_us for stage in stages if stage.stage_us is not None]
    full = [stage.context_us for stage in stages if stage.context_us is not None]
    loaded = [stage.load_us for stage in stages if stage.load_us is not None]
    if len(once) < len(stages):
        return None
    network = sum(hops_us(model, choice.ring, choice.paths, 1))
    rows = rows_of(load, choice.groups)
    crowded = sum(hops_us(model, choice.ring, choice.paths, rows))
    uplink = uplink_us(model, choice.ring, rows)
    timed = all(edge is None or edge.cost_us is not None for edge in edges)
    return Predictions(
        bottleneck_us=max(once),
        token_us=sum(once) + network,
        token_full_us=sum(once) + sum(full) + network,
        shared_token_us=token_us(loaded, crowded, choice.groups, uplink),
        network_us=network if timed else None,
        first_token_us=first_token_us(model, choice, min(PROMPT_TOKENS, load.context)),
    )


def first_token_us(model: Model, choice: Choice, prompt: int) -> float | None:
    """From a prompt at the head to its first token, when nobody else is served.

    The prompt goes round in equal chunks, CHUNKS_A_MEMBER at once for each member, each as soon
    as stage and uplink are free. Then the head makes a step. None where arithmetic was not
    measured.
    """
    ring, chunks = choice.ring, chunks_of(prompt)
    tokens = prompt / chunks
    computing = [
        chunk_us(model, device, blocks, tokens)
        for device, blocks in zip(ring, choice.counts, strict=True)
    ]
    stages = [time for time in computing if time is not None]
    if len(stages) < len(ring):
        return None
    once = sum(stages) + sum(hops_us(model, ring, choice.paths, tokens))
    between = max(*stages, uplink_us(model, ring, tokens), once / (CHUNKS_A_MEMBER * len(ring)))
    step = stage(model, ring[0], head=True).cost(choice.counts[0])
    return once + (chunks - 1) * between + step


def utilisation(stages: Sequence[float]) -> float:
    """The average stage over the slowest: the share of device-time that computes (Table IV)."""
    return sum(stages) / len(stages) / max(stages)
