"""Two plans compared: every decision that differs is named, and what it does to the predictions."""

import pytest

from kafila.explain.diff import Change, Comparison, compare, words
from kafila.planfile import read
from tests.explain.plans import PLANS, divided, fresh, small
from tests.plan.fleets import key, report

ANNA, BERT, CLEO, DORA = (report(name, rtt_us=1000) for name in ("anna", "bert", "cleo", "dora"))
THREE = small(ANNA, BERT, CLEO, strategy="bottleneck")


def changes(found: Comparison) -> dict[tuple[str | None, str], tuple[object, object]]:
    return {(each.member, each.key): (each.was, each.now) for each in found.changes}


@pytest.mark.parametrize("path", PLANS, ids=lambda path: path.stem)
def test_a_plan_is_like_itself(path: object) -> None:
    plan = fresh(read(str(path)))
    assert compare(plan, plan).changes == ()
    assert words(compare(plan, plan)) == "the plans decide the same"


def test_a_division_by_hand() -> None:
    found = compare(THREE, divided(THREE, 2, 5, 5))
    assert changes(found) == {
        ("anna", "blocks"): ("0-3", "0-1"),
        ("bert", "blocks"): ("4-7", "2-6"),
        ("cleo", "blocks"): ("8-11", "7-11"),
    }
    text = words(found)
    assert "anna  4 blocks (0-3) -> 2 blocks (0-1)" in text
    slowest = next(each for each in found.effects if each.what == "slowest stage")
    assert slowest.was is not None
    assert slowest.now is not None
    assert slowest.now > slowest.was
    line = next(line for line in text.splitlines() if line.startswith("slowest stage"))
    assert line.split("  ")[-1].startswith("+")
    assert slowest.was_words in line
    assert slowest.now_words in line


def test_members_in_and_out_and_the_order() -> None:
    other = small(CLEO, DORA, ANNA, strategy="bottleneck")
    found = compare(THREE, other)
    assert changes(found)["bert", "blocks"][1] is None
    assert changes(found)["dora", "blocks"][0] is None
    text = words(found)
    assert "bert            leaves, held 4 blocks" in text
    assert "dora            joins with 4 blocks" in text
    assert "head            anna -> cleo" in text


def test_a_rotation_is_another_head_and_not_another_order() -> None:
    ring = THREE.ring[1:] + THREE.ring[:1]
    turned = THREE.model_copy(update={"ring": ring, "head": ring[0].name})
    keys = {change.key for change in compare(THREE, divided(turned, 4, 4, 4)).changes}
    assert keys == {"head", "blocks"}


def test_another_order() -> None:
    first, second, third = THREE.ring
    other = THREE.model_copy(update={"ring": (first, third, second)})
    found = compare(THREE, divided(other, 4, 4, 4))
    assert Change(None, "ring", ["anna", "bert", "cleo"], ["anna", "cleo", "bert"]) in found.changes
    assert "ring  anna, bert and cleo -> anna, cleo and bert" in words(found)


@pytest.mark.parametrize(
    ("changed", "key", "line"),
    [
        ({"groups": 2}, "groups", "groups  1 -> 2"),
        ({"strategy": "uniform"}, "strategy", "strategy  bottleneck -> uniform"),
        ({"notes": ("mine",)}, "notes", "notes  say something else"),
        ({"forced": True}, "forced", "forced  False -> True"),
        ({"reports": "sha256:" + key("x")}, "reports", f"-> {key('x')[:8]}..."),
    ],
)
def test_decisions_of_the_whole_plan(changed: dict[str, object], key: str, line: str) -> None:
    was = THREE.model_copy(update={"groups": 1})
    found = compare(was, was.model_copy(update=changed))
    assert [change.key for change in found.changes] == [key]
    assert line in words(found)


def test_context_and_users() -> None:
    session = THREE.session.model_copy(update={"context": 128, "concurrency": 8})
    found = compare(THREE, fresh(THREE.model_copy(update={"session": session})))
    assert changes(found) == {
        (None, "session.context"): (64, 128),
        (None, "session.concurrency"): (4, 8),
    }
    assert "4, then 8 users together" in words(found)
    assert "memory in all" in words(found)


def test_measurements_and_rooms() -> None:
    member = THREE.ring[1]
    measured = member.measured.model_copy(update={"bandwidth": 60 * 10**9, "rtt_us": 2000})
    edited = member.model_copy(update={"room_bytes": 8 * 2**30, "measured": measured})
    ring = (THREE.ring[0], edited, THREE.ring[2])
    text = words(compare(THREE, fresh(THREE.model_copy(update={"ring": ring}))))
    measured = measured.model_copy(update={"upload": 5 * 10**6, "flops": 2 * 10**12})
    faster = edited.model_copy(update={"measured": measured})
    ring = (THREE.ring[0], faster, THREE.ring[2])
    text += words(compare(THREE, fresh(THREE.model_copy(update={"ring": ring}))))
    name = member.name
    assert f"{name}  room_bytes 12.00 GiB -> 8.00 GiB" in text
    assert f"{name}  measured.bandwidth 30.0 GB/s -> 60.0 GB/s" in text
    assert f"{name}  measured.upload none -> 5.00 MB/s" in text
    assert f"{name}  measured.flops 1.00 TFLOP/s -> 2.00 TFLOP/s" in text
    assert f"{name}  measured.rtt_us 1.00 ms -> 2.00 ms" in text


def test_derived_figures_are_effects_and_never_changes() -> None:
    stale = THREE.ring[0].model_copy(update={"stage_us": 1, "need_bytes": 1})
    plan = THREE.model_copy(update={"ring": (stale, *THREE.ring[1:]), "warnings": ("x",)})
    assert compare(THREE, plan).changes == ()


def test_what_is_not_known_has_no_figure() -> None:
    untimed = small(ANNA, BERT, report("cleo", bandwidth=None), strategy="bottleneck")
    found = compare(THREE, untimed)
    one = next(each for each in found.effects if each.what == "one user")
    assert one.now is None
    assert one.now_words == "not known"
    line = next(line for line in words(found).splitlines() if line.startswith("one user  "))
    assert line.endswith("not known")


def test_rates_without_an_untimed_edge_are_at_best() -> None:
    untimed = small(ANNA, BERT, report("cleo"), strategy="bottleneck")
    found = {each.what: each for each in compare(THREE, untimed).effects}
    text = words(compare(THREE, untimed))
    line = next(line for line in text.splitlines() if line.startswith("one user  "))
    assert line.endswith(" tok/s")
    for what in ("one user", "one user, context full", "4 users together", "first token"):
        assert found[what].now_words.startswith("at best ")
        assert not found[what].was_words.startswith("at best ")
