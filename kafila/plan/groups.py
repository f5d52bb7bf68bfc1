"""How many groups the requests travel in: R requests in G groups of ceil(R/G) circle the ring."""

from collections.abc import Callable, Sequence

from kafila.plan.circuit import token_us
from kafila.plan.cost import batch
from kafila.plan.edges import uplink_us
from kafila.plan.values import Device, Load, Model


def rows_of(load: Load, groups: int) -> int:
    """Requests in each group: ceil(R/G)."""
    return -(-load.concurrency // groups)


def sensible_groups(concurrency: int) -> list[int]:
    """For every possible number of rows the fewest groups: more with as many rows only cost."""
    return sorted({-(-concurrency // rows) for rows in range(1, concurrency + 1)})


def loads_us(
    model: Model, load: Load, ring: Sequence[Device], counts: Sequence[int], groups: int
) -> list[float]:
    """s_i(x): what a step of one group takes at every stage."""
    rows = rows_of(load, groups)
    return [
        batch(model, load, device, rows, head=position == 0).cost(blocks)
        for position, (device, blocks) in enumerate(zip(ring, counts, strict=True))
    ]


def shared_token_us(
    model: Model,
    load: Load,
    ring: Sequence[Device],
    counts: Sequence[int],
    network_us: Callable[[int], float],
    groups: int,
) -> float:
    """Time between two tokens of every request; `network_us` is once round all edges with that
    many rows."""
    rows = rows_of(load, groups)
    costs = loads_us(model, load, ring, counts, groups)
    return token_us(costs, network_us(rows), groups, uplink_us(model, ring, rows))


def choose_groups(
    concurrency: int, shared_us: Callable[[int], float], fits: Callable[[int], bool]
) -> int | None:
    """The number of groups with the least `shared_us` among those that fit; fewer where equal.

    Whole nanoseconds are compared, so that float noise makes no groups. None where none fits.
    """
    return min(
        (groups for groups in sensible_groups(concurrency) if fits(groups)),
        key=lambda groups: (round(shared_us(groups), 3), groups),
        default=None,
    )
