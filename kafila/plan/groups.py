"""How many groups the requests travel in: R requests in G groups of ceil(R/G) circle the ring."""

from collections.abc import Callable, Sequence

from kafila.plan.admission import rows_of
from kafila.plan.cost import batch_us
from kafila.plan.values import Device, Load, Model


def shared_token_us(
    model: Model,
    load: Load,
    ring: Sequence[Device],
    counts: Sequence[int],
    edges_us: float,
    groups: int,
) -> float:
    """Time between two tokens of every request (DESIGN 3.5).

    max(once round the ring, `groups` times the slowest stage); `edges_us` is the one-way time of
    all edges together.
    """
    rows = rows_of(load, groups)
    stages = [
        batch_us(model, load, device, blocks, rows, head=position == 0)
        for position, (device, blocks) in enumerate(zip(ring, counts, strict=True))
    ]
    return max(sum(stages) + edges_us, groups * max(stages))


def choose_groups(
    concurrency: int, token_us: Callable[[int], float], fits: Callable[[int], bool]
) -> int:
    """The number of groups with the least `token_us` among those that fit; fewer where equal.

    Whole microseconds are compared, so that float noise makes no groups. One group always fits:
    the division was made for it.
    """
    candidates = [g for g in range(1, concurrency + 1) if g == 1 or fits(g)]
    return min(candidates, key=lambda groups: (round(token_us(groups)), groups))
