"""Head placement: the anchor's privilege, the memory that takes it away, and brute force."""

from dataclasses import replace
from itertools import product

from hypothesis import given, settings
from hypothesis import strategies as st

from kafila.plan.admission import limit
from kafila.plan.cost import stage_us
from kafila.plan.head import divide, place_head
from kafila.plan.values import Device, Load, Model
from tests.plan.fleets import GB, ONE, device, model
from tests.plan.test_partition import divisions


def best(model: Model, load: Load, ring: tuple[Device, ...]) -> float | None:
    """Least bottleneck of a ring that starts at its head, by trying all divisions."""
    return min(
        (
            max(
                stage_us(model, each, count, head=position == 0)
                for position, (each, count) in enumerate(zip(ring, counts, strict=True))
            )
            for counts in divisions(model.blocks, len(ring))
            if all(
                count <= limit(model, load, each, head=position == 0)
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
def test_rotation_is_the_best_or_the_anchor_within_the_margin(
    blocks: int, head: int, ring: tuple[Device, ...]
) -> None:
    chain = model(blocks, head_read_bytes=head * GB, head_resident_bytes=head * GB, kv_bytes=0)
    oracle = {each.name: best(chain, ONE, (*ring[i:], *ring[:i])) for i, each in enumerate(ring)}
    costs = [cost for cost in oracle.values() if cost is not None]
    placement = place_head(chain, ONE, ring)
    if not costs:
        assert placement is None
        return
    assert placement is not None
    assert placement.division.bottleneck_us == oracle[placement.ring[0].name]
    anchor = oracle[ring[0].name]
    if anchor is not None and min(costs) >= anchor * 0.95:
        assert placement.ring == ring
        assert placement.note is None
    else:
        assert placement.division.bottleneck_us == min(costs)
    unmargined = place_head(chain, ONE, ring, margin=0)
    assert unmargined is not None
    assert unmargined.division.bottleneck_us == min(costs)


HEAVY = model(8, head_read_bytes=4 * GB, head_resident_bytes=4 * GB, kv_bytes=0)


def test_anchor_is_kept_within_five_per_cent() -> None:
    """b is the cheaper head, by less than the margin."""
    ring = (device("a", overhead_us=3000), device("b"))
    chain = model(1 + 1, head_read_bytes=8 * GB)
    with_a, with_b = divide(chain, ONE, ring), divide(chain, ONE, ring[::-1])
    assert with_a
    assert with_b
    assert with_a.bottleneck_us * 0.95 <= with_b.bottleneck_us < with_a.bottleneck_us
    placement = place_head(chain, ONE, ring)
    assert placement is not None
    assert placement.ring[0].name == "a"


def test_head_moves_where_it_gains_more_than_the_margin() -> None:
    placement = place_head(HEAVY, ONE, (device("slow", 20 * GB), device("fast", 200 * GB)))
    assert placement is not None
    assert placement.ring[0].name == "fast"
    assert placement.note is not None
    assert "% shorter than with slow" in placement.note


def test_anchor_that_cannot_hold_the_head_gives_it_up() -> None:
    """By speed the anchor would stay, and it can hold blocks, but not the head beside one."""
    ring = (device("a", room_bytes=4 * GB), device("b", 40 * GB, room_bytes=20 * GB))
    placement = place_head(HEAVY, ONE, ring)
    assert placement is not None
    assert placement.ring[0].name == "b"
    assert placement.division.counts == (4, 4)
    assert placement.note is not None
    assert "no division fits with a as head, which keeps 3.73 GiB" in placement.note


def test_overhead_noise_does_not_move_the_head() -> None:
    """The paper's two lowest overheads: 1.5 us apart, one of them varying by 8.4 us."""
    chain = model(36, block_bytes=385_892_864, head_read_bytes=1_244_667_904)
    ring = (device("a", 1000 * GB, overhead_us=40), device("b", 1000 * GB, overhead_us=38))
    for noise in product((-8, 0, 8), repeat=2):
        noisy = tuple(
            replace(each, overhead_us=each.overhead_us + shift)
            for each, shift in zip(ring, noise, strict=True)
        )
        placement = place_head(chain, ONE, noisy)
        assert placement is not None
        assert placement.ring[0].name == "a"


def test_a_ring_that_fits_nowhere_has_no_head() -> None:
    assert place_head(HEAVY, ONE, (device("a", room_bytes=3 * GB),)) is None
