"""Head placement: the anchor's privilege, the memory that takes it away, and brute force."""

from dataclasses import replace
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafila.errors import NotAdmitted, UsageProblem
from kafila.plan.admission import limit
from kafila.plan.cost import stage
from kafila.plan.make import Wishes, make_plan
from kafila.plan.reach import paths_of
from kafila.plan.strategies import Ground, decide
from kafila.plan.values import Choice, Device, Load, Model
from tests.plan.fleets import GB, ONE, device, model
from tests.plan.test_partition import divisions


def placed(
    model: Model, ring: tuple[Device, ...], margin: float = 0.05, head: str | None = None
) -> tuple[Choice, str] | None:
    """What the paper's strategy decides; the first of `ring` opened the session."""
    ground = Ground(model, ONE, ring, paths_of(ring), "full", margin, head)
    return decide(ground, "bottleneck")


def slowest(model: Model, choice: Choice) -> float:
    return max(
        stage(model, each, head=position == 0).cost(count)
        for position, (each, count) in enumerate(zip(choice.ring, choice.counts, strict=True))
    )


def best(model: Model, load: Load, ring: tuple[Device, ...]) -> float | None:
    """Least bottleneck of a ring that starts at its head, by trying all divisions."""
    return min(
        (
            max(
                stage(model, each, head=position == 0).cost(count)
                for position, (each, count) in enumerate(zip(ring, counts, strict=True))
            )
            for counts in divisions(model.blocks, len(ring))
            if all(
                count <= limit(model, load, each, 1, head=position == 0)
                for position, (each, count) in enumerate(zip(ring, counts, strict=True))
            )
        ),
        default=None,
    )


rings = st.lists(
    st.tuples(st.integers(1, 5), st.integers(0, 30), st.integers(1, 6)), min_size=1, max_size=4
).map(
    lambda specs: tuple(
        device(f"d{i}", speed * GB, overhead_us=overhead * 10_000, room_bytes=room * GB)
        for i, (speed, overhead, room) in enumerate(specs)
    )
)


@settings(max_examples=1000)
@given(st.integers(1, 8), st.integers(0, 3), rings)
def test_rotation_is_the_best_or_the_opener_within_the_margin(
    blocks: int, head: int, ring: tuple[Device, ...]
) -> None:
    chain = model(blocks, head_read_bytes=head * GB, head_resident_bytes=head * GB, kv_bytes=0)
    oracle = {each.name: best(chain, ONE, (*ring[i:], *ring[:i])) for i, each in enumerate(ring)}
    costs = [cost for cost in oracle.values() if cost is not None]
    found = placed(chain, ring)
    if not costs:
        assert found is None
        return
    assert found is not None
    choice, note = found
    assert slowest(chain, choice) == oracle[choice.ring[0].name]
    opener = oracle[ring[0].name]
    if opener is not None and min(costs) >= opener * 0.95:
        assert choice.ring == ring
        assert note.startswith(f"head: {ring[0].name} opened the session")
    else:
        assert slowest(chain, choice) == min(costs)
    unmargined = placed(chain, ring, margin=0)
    assert unmargined is not None
    assert slowest(chain, unmargined[0]) == min(costs)


HEAVY = model(8, head_read_bytes=4 * GB, head_resident_bytes=4 * GB, kv_bytes=0)


def test_opener_is_kept_within_five_per_cent() -> None:
    """b is the cheaper head, by less than the margin."""
    ring = (device("a", overhead_us=3000), device("b"))
    chain = model(1 + 1, head_read_bytes=8 * GB)
    with_a, with_b = best(chain, ONE, ring), best(chain, ONE, ring[::-1])
    assert with_a
    assert with_b
    assert with_a * 0.95 <= with_b < with_a
    found = placed(chain, ring)
    assert found is not None
    assert found[0].ring[0].name == "a"
    assert found[1] == (
        "head: a opened the session, and no other makes the slowest stage more than 5% shorter"
    )


def test_head_moves_where_it_gains_more_than_the_margin() -> None:
    found = placed(HEAVY, (device("slow", 20 * GB), device("fast", 200 * GB)))
    assert found is not None
    assert found[0].ring[0].name == "fast"
    assert "% shorter than with slow" in found[1]


def test_opener_that_cannot_hold_the_head_gives_it_up() -> None:
    """By speed it would stay, and it can hold blocks, but not the head beside one."""
    ring = (device("a", room_bytes=4 * GB), device("b", 40 * GB, room_bytes=20 * GB))
    found = placed(HEAVY, ring)
    assert found is not None
    assert found[0].ring[0].name == "b"
    assert found[0].counts == (4, 4)
    assert "nothing fits with a as head, which keeps 3.73 GiB" in found[1]


def test_overhead_noise_does_not_move_the_head() -> None:
    """The paper's two lowest overheads: 1.5 us apart, one of them varying by 8.4 us."""
    chain = model(36, block_bytes=385_892_864, head_read_bytes=1_244_667_904)
    ring = (device("a", 1000 * GB, overhead_us=40), device("b", 1000 * GB, overhead_us=38))
    for noise in product((-8, 0, 8), repeat=2):
        noisy = tuple(
            replace(each, overhead_us=(each.overhead_us or 0) + shift)
            for each, shift in zip(ring, noise, strict=True)
        )
        found = placed(chain, noisy)
        assert found is not None
        assert found[0].ring[0].name == "a"


def test_a_ring_that_fits_nowhere_has_no_head() -> None:
    assert placed(HEAVY, (device("a", room_bytes=3 * GB),)) is None


def test_a_head_can_be_asked_for() -> None:
    ring = (device("slow", 20 * GB), device("fast", 200 * GB))
    found = placed(HEAVY, ring, head="slow")
    assert found is not None
    assert found[0].ring == ring
    assert found[1] == "head: slow, as asked"
    with pytest.raises(UsageProblem, match="--head slw: the members are slow and fast"):
        make_plan(HEAVY, ONE, ring, "slow", Wishes(head="slw"))


def test_a_pinned_head_that_does_not_fit_is_refused() -> None:
    """The session that head placement saves: another member could hold it."""
    ring = (device("a", room_bytes=4 * GB), device("b", 40 * GB, room_bytes=20 * GB))
    assert make_plan(HEAVY, ONE, ring, "a").ring[0].device.name == "b"
    with pytest.raises(NotAdmitted, match="undersized: a"):
        make_plan(HEAVY, ONE, ring, "a", Wishes(head="a"))
