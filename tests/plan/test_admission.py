"""What is counted, who is refused by how much, and what would fit instead."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafila.errors import BadFile, NotAdmitted, UsageProblem
from kafila.plan.admission import limit, need_bytes, possible, share_rooms
from kafila.plan.make import Wishes, make_plan
from kafila.plan.refusal import Refused, in_int8, least_missing
from kafila.plan.values import Load, Workspace
from tests.plan.fleets import GB, ONE, device, key, macs, model
from tests.plan.test_partition import divisions

CHAIN = model(6, head_resident_bytes=2 * GB, kv_bytes=1000)


def test_need_counts_everything_that_is_held() -> None:
    member = device("a", runtime_bytes=7, workspace=Workspace(100, 10, 3))
    load = Load(context=50, concurrency=5)
    block = GB + 5 * 50 * 1000
    assert need_bytes(CHAIN, load, member, 3, 1, head=False) == 3 * block + 7 + 100 + 5 * 10 + 150
    with_head = need_bytes(CHAIN, load, member, 3, 1, head=True)
    assert with_head == 3 * block + 7 + 100 + 5 * 10 + 150 + 2 * GB


def test_need_counts_the_slots_that_groups_really_allocate() -> None:
    """Five requests in two groups of three are six slots."""
    member, load = device("a"), Load(context=50, concurrency=5)
    assert need_bytes(CHAIN, load, member, 1, 2, head=False) == GB + 6 * 50 * 1000


@given(
    st.integers(0, 20),
    st.integers(1, 9),
    st.integers(1, 4),
    st.integers(1, 1000),
    st.integers(0, GB),
    st.booleans(),
)
def test_limit_is_the_most_that_needs_no_more_than_the_room(
    room: int, concurrency: int, groups: int, context: int, other: int, head: bool
) -> None:
    load = Load(context, concurrency)
    member = device(
        "a", room_bytes=room * GB, runtime_bytes=other, workspace=Workspace(other, 9, 7)
    )
    most = limit(CHAIN, load, member, groups, head=head)
    assert need_bytes(CHAIN, load, member, most, groups, head=head) <= member.room_bytes
    assert need_bytes(CHAIN, load, member, most + 1, groups, head=head) > member.room_bytes


def refusal_of(load: Load, *rooms: int) -> Refused:
    members = [device(f"d{i}", room_bytes=room) for i, room in enumerate(rooms)]
    with pytest.raises(Refused) as caught:
        make_plan(CHAIN, load, members, "d0")
    return caught.value


def test_refusal_names_the_undersized_and_what_would_fit() -> None:
    refused = refusal_of(Load(1000, 500), 4 * GB, 3 * GB)
    assert [fit.name for fit in refused.fits if fit.short_bytes] == ["d0", "d1"]
    assert 0 < refused.missing_bytes <= sum(fit.short_bytes for fit in refused.fits)
    assert "undersized: d0 and d1" in str(refused)
    assert refused.exit_code == 3


def test_what_would_fit_fits_and_one_more_does_not() -> None:
    members = [device("a", room_bytes=7 * GB), device("b", room_bytes=5 * GB)]
    load = Load(2000, 4000)
    with pytest.raises(Refused) as caught:
        make_plan(CHAIN, load, members, "a")
    context, concurrency = caught.value.context, caught.value.concurrency
    assert 0 < context < load.context
    assert 0 < concurrency < load.concurrency
    for fitting in (replace(load, context=context), replace(load, concurrency=concurrency)):
        make_plan(CHAIN, fitting, members, "a")
    for larger in (
        replace(load, context=context + 1),
        replace(load, concurrency=concurrency + 1),
    ):
        with pytest.raises(Refused):
            make_plan(CHAIN, larger, members, "a")
    assert f"context {context} at concurrency 4000" in str(caught.value)
    assert f"concurrency {concurrency} at context 2000" in str(caught.value)


def test_weights_alone_too_large_leave_only_memory_to_add() -> None:
    refused = refusal_of(ONE, 3 * GB, 3 * GB)
    assert (refused.context, refused.concurrency, refused.weights) == (0, 0, "int8")
    assert "would fit: int8 weights (--dtype int8), or 1.86 GiB more room in all" in str(refused)


def test_weights_of_fewer_bits_fit_where_nothing_else_does() -> None:
    """float32 may become bfloat16, which halves the KV cache too."""
    wide = replace(CHAIN, itemsize=4, head_resident_bytes=0)
    for room, weights in ((3, "bfloat16"), (1.2, "int8"), (0.5, None)):
        members = [device(name, room_bytes=round(room * GB)) for name in "ab"]
        with pytest.raises(Refused) as caught:
            make_plan(wide, ONE, members, "a")
        assert caught.value.weights == weights
    assert in_int8(CHAIN).block_bytes == GB * 8.25 / 16
    assert in_int8(CHAIN).kv_bytes == CHAIN.kv_bytes
    with pytest.raises(Refused) as caught:
        make_plan(in_int8(CHAIN), ONE, [device(name, room_bytes=GB // 2) for name in "ab"], "a")
    assert caught.value.weights is None


@settings(max_examples=500)
@given(
    st.integers(1, 8),
    st.lists(st.integers(0, 60), min_size=1, max_size=4).filter(lambda rooms: len(rooms) <= 8),
    st.integers(0, 25),
)
def test_the_least_room_to_add_is_the_least(blocks: int, rooms: list[int], head: int) -> None:
    """In tenths of a block; against every division and head."""
    if len(rooms) > blocks:
        return
    tenth = GB // 10
    chain = model(blocks, block_bytes=GB - 1, head_resident_bytes=head * tenth, kv_bytes=1)
    members = [device(f"d{i}", room_bytes=room * tenth) for i, room in enumerate(rooms)]
    lacking = min(
        sum(
            max(0, count * 10 + (head if i == first else 0) - room) * tenth
            for i, (count, room) in enumerate(zip(counts, rooms, strict=True))
        )
        for first in range(len(rooms))
        for counts in divisions(blocks, len(rooms))
    )
    assert least_missing(chain, ONE, members) == lacking
    assert possible(chain, ONE, members) == (lacking == 0)


def test_force_plans_what_does_not_fit_and_warns() -> None:
    members = [device("a", room_bytes=4 * GB), device("b", room_bytes=3 * GB)]
    plan = make_plan(CHAIN, ONE, members, "a", Wishes(force=True))
    assert plan.forced
    short = [stage for stage in plan.ring if stage.need_bytes > stage.room_bytes]
    assert short
    for stage, warning in zip(short, plan.derived.warnings, strict=False):
        assert warning.startswith(f"forced: {stage.device.name} is ")
    roomy = [device("a"), device("b")]
    assert make_plan(CHAIN, ONE, roomy, "a", Wishes(force=True)) == make_plan(
        CHAIN, ONE, roomy, "a"
    )


@settings(max_examples=300)
@given(
    st.integers(1, 12),
    st.lists(st.tuples(st.integers(1, 8), st.integers(1, 5)), min_size=1, max_size=4),
)
def test_planned_or_refused_with_a_shortfall(blocks: int, specs: list[tuple[int, int]]) -> None:
    members = [
        device(f"d{i}", speed * GB, room_bytes=room * GB) for i, (room, speed) in enumerate(specs)
    ]
    chain = model(blocks, head_resident_bytes=GB // 2)
    if len(members) > blocks:
        with pytest.raises(NotAdmitted, match="every member must hold one"):
            make_plan(chain, ONE, members, "d0")
    elif not possible(chain, ONE, members):
        with pytest.raises(Refused) as caught:
            make_plan(chain, ONE, members, "d0")
        assert any(fit.short_bytes for fit in caught.value.fits)
    else:
        plan = make_plan(chain, ONE, members, "d0")
        assert all(stage.need_bytes <= stage.room_bytes for stage in plan.ring)


def test_members_of_one_machine_share_its_room() -> None:
    members = [
        device("a", machine="m", machine_bytes=12, room_bytes=12),
        device("b", machine="m", machine_bytes=12, room_bytes=12),
        device("c", machine="m", machine_bytes=12, room_bytes=6),
        device("d", machine="n", machine_bytes=16, room_bytes=12),
    ]
    shared, notes = share_rooms(members)
    assert [each.room_bytes for each in shared] == [4, 4, 2, 12]
    assert len(notes) == 1
    assert "a, b and c are on one machine" in notes[0]
    assert share_rooms(shared) == (shared, ())


def test_the_least_that_was_measured_of_a_memory_is_what_it_holds() -> None:
    members = [
        device("a", machine="m", machine_bytes=12, room_bytes=12),
        device("b", machine="m", machine_bytes=10, room_bytes=8),
    ]
    shared, _ = share_rooms(members)
    assert [each.room_bytes for each in shared] == [6, 4]
    assert share_rooms(shared) == (shared, ())


def test_rooms_that_owners_lowered_are_no_bound_on_the_memory() -> None:
    """Three of six each in a memory of twelve: four each, not two."""
    members = [device(name, machine="m", machine_bytes=12, room_bytes=6) for name in "abc"]
    shared, notes = share_rooms(members)
    assert [each.room_bytes for each in shared] == [4, 4, 4]
    assert len(notes) == 1


def test_rooms_that_add_up_to_the_memory_stay_as_the_owner_wrote_them() -> None:
    members = tuple(
        device(name, machine="m", machine_bytes=16, room_bytes=8) for name in ("a", "b")
    )
    assert share_rooms(members) == (members, ())


def test_no_room_beyond_the_memory() -> None:
    shared, notes = share_rooms([device("a", machine_bytes=16, room_bytes=20)])
    assert shared[0].room_bytes == 16
    assert "a cannot have more room" in notes[0]


def test_one_machine_is_refused_for_its_shared_room() -> None:
    members = [
        device(name, machine="m", machine_bytes=8 * GB, room_bytes=7 * GB) for name in ("a", "b")
    ]
    with pytest.raises(Refused, match="a and b are on one machine and share"):
        make_plan(CHAIN, ONE, members, "a")


def test_sets_of_members_that_cannot_be_planned() -> None:
    with pytest.raises(BadFile, match="no reports"):
        make_plan(CHAIN, ONE, [], "a")
    with pytest.raises(BadFile, match="a and a have the name a"):
        make_plan(CHAIN, ONE, [device("a"), device("a", key=key("b"))], "a")
    with pytest.raises(BadFile, match="a and b have one key"):
        make_plan(CHAIN, ONE, [device("a"), device("b", key=key("a"))], "a")
    with pytest.raises(NotAdmitted, match="7 members for the 6 blocks of tiny"):
        make_plan(CHAIN, ONE, [device(f"d{i}") for i in range(7)], "d0")


def test_context_beyond_the_model_is_a_usage_error() -> None:
    with pytest.raises(UsageProblem, match="reaches 100 tokens"):
        make_plan(model(40, max_context=100), Load(101, 1), macs(), "m3max")
