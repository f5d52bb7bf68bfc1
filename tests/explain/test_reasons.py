"""What limits a member is found by trying one block more; reasons name who and how much."""

import pytest

from kafila.explain.limits import limits
from kafila.explain.picture import picture
from kafila.explain.reasons import (
    Reason,
    head,
    network,
    network_share,
    reasons,
    relays,
    speed,
    strategies,
)
from kafila.explain.ring import Ring
from kafila.explain.svg import draw
from kafila.explain.text import lines, plain
from kafila.plan.figures import figures
from kafila.plan.values import Choice
from kafila.planfile import PlanFile, read
from kafila.probe.report import Nat
from kafila.words import gib
from tests.explain.plans import PLANS, divided, fresh, small
from tests.plan.fleets import GB, report

ANNA, BERT, CLEO = (report(name, rtt_us=1000) for name in ("anna", "bert", "cleo"))
SLOW = report("slow", bandwidth=GB, rtt_us=1000)
EQUAL = small(ANNA, BERT, CLEO, strategy="bottleneck")


def kinds(plan: PlanFile) -> dict[str, str]:
    found = limits(Ring.of(plan))
    return {member.name: limit.kind for member, limit in zip(plan.ring, found, strict=True)}


def why(plan: PlanFile, about: str) -> str:
    ring = Ring.of(plan)
    return next(each.words for each in reasons(ring, limits(ring)) if each.about == about)


def test_no_room_for_one_more() -> None:
    roomy = EQUAL.ring[0]
    tight = roomy.model_copy(update={"room_bytes": roomy.need_bytes + 1})
    plan = fresh(EQUAL.model_copy(update={"ring": (tight, *EQUAL.ring[1:])}))
    assert kinds(plan)["anna"] == "room"
    assert f"of {gib(tight.room_bytes)}" in why(plan, "anna")


def test_too_much_already() -> None:
    tight = EQUAL.ring[0].model_copy(update={"room_bytes": 2**28})
    plan = fresh(EQUAL.model_copy(update={"ring": (tight, *EQUAL.ring[1:])}))
    assert kinds(plan)["anna"] == "room"
    assert "too much already" in why(plan, "anna")


def test_one_more_would_be_the_slowest_stage() -> None:
    plan = small(ANNA, BERT, SLOW, strategy="bottleneck")
    assert kinds(plan)["slow"] == "speed"
    assert "one more would take 6.34 ms, over the slowest stage's" in why(
        plan, "slow"
    ) or "it is the slowest stage; one more would take 6.34 ms" in why(plan, "slow")


def test_room_and_time_to_spare() -> None:
    plan = divided(EQUAL, 6, 5, 1)
    assert kinds(plan)["cleo"] == "blocks"
    assert "5 blocks more" in why(plan, "cleo")


def test_one_more_for_all_users_together() -> None:
    """Under `load` a member takes no more when that would cost all users time."""
    plan = small(ANNA, BERT, SLOW, strategy="load")
    assert kinds(plan)["slow"] == "speed"
    assert "would cost each of 4 users" in why(plan, "slow")
    assert set(kinds(small(ANNA)).values()) == {"blocks"}


def test_a_division_by_hand_shows_what_it_wastes() -> None:
    plan = small(ANNA, SLOW, strategy="load")
    names = [member.name for member in plan.ring]
    counts = [2 if name == "anna" else 10 for name in names]
    assert "one more, from slow, would save each of 4 users" in why(divided(plan, *counts), "anna")


@pytest.mark.parametrize("strategy", ["uniform", "memory", "bandwidth"])
def test_strategies_that_look_at_one_thing(strategy: str) -> None:
    plan = small(ANNA, BERT, SLOW, strategy=strategy)
    assert set(kinds(plan).values()) == {"rule"}
    assert f"the strategy {strategy}" in why(plan, "slow")


def test_tiers_that_know_too_little() -> None:
    plan = small(ANNA, BERT, report("cleo", bandwidth=None))
    assert set(kinds(plan).values()) == {"rule"}
    assert "not predicted" in speed(plan)
    assert "tier arithmetic" in why(plan, "note")


@pytest.mark.parametrize("path", PLANS, ids=lambda path: path.stem)
def test_limits_are_what_the_planner_would_say(path: object) -> None:
    """Tried independently: the plan with that block more, by the planner's own figures."""
    plan = fresh(read(str(path)))
    ring = Ring.of(plan)
    now = figures(ring.model, ring.load, choice(ring)).predictions
    assert now is not None
    for at, limit in enumerate(limits(ring)):
        more = choice(ring, at)
        need = figures(ring.model, ring.load, more).ring[at].need_bytes
        assert (limit.kind == "room") == (need > plan.ring[at].room_bytes)
        if limit.kind != "room" and plan.strategy == "load" and len(plan.ring) > 1:
            moved = [
                figures(ring.model, ring.load, choice(ring, at, giver)).predictions
                for giver, held in enumerate(ring.counts)
                if giver != at and held > 1
            ]
            best_us = min((each.shared_token_us for each in moved if each), default=None)
            slower = best_us is not None and best_us - now.shared_token_us >= 5
            assert (limit.kind == "speed") == slower


def choice(ring: Ring, taker: int | None = None, giver: int | None = None) -> Choice:
    counts = [held + (at == taker) - (at == giver) for at, held in enumerate(ring.counts)]
    return Choice(ring.devices, tuple(counts), ring.paths, ring.plan.groups)


def test_the_dearest_edge_and_the_share_of_the_network() -> None:
    plan = small(report("anna", rtt_us=1000), report("bert", rtt_us=41_000))
    ring = Ring.of(plan)
    part = network_share(ring)
    assert part is not None
    assert plan.predictions.token_us is not None
    assert part == pytest.approx(sum(ring.hops()) / plan.predictions.token_us, rel=1e-3)
    assert f"takes {part:.0%} of a token" in network(ring)
    assert "ms there and back" in network(ring)
    assert network(Ring.of(small(ANNA))) == "one member alone: nothing is sent"
    untimed = small(report("anna"), report("bert"))
    assert network(Ring.of(untimed)) == "no edge was timed"
    assert network_share(Ring.of(untimed)) is None
    same = small(report("anna", machine="shed"), report("bert", machine="shed"))
    assert network(Ring.of(same)) == "the edges cost nothing"
    some = small(report("anna", machine="shed"), report("bert", machine="shed"), CLEO)
    assert network(Ring.of(some)) == "the timed edges cost nothing; 2 edges not timed"


def test_relayed_edges_say_why() -> None:
    hard = Nat(mapping="address-and-port-dependent", filtering="address-and-port-dependent")
    plan = small(report("anna", nat=hard), report("bert", nat=hard))
    assert relays(Ring.of(plan)) == ["anna to bert and bert to anna: both NATs map by destination"]
    assert relays(Ring.of(small(ANNA))) == []


def test_the_head_is_explained() -> None:
    assert head(EQUAL).startswith("anna opened the session")
    assert "keeps 2.00 MiB" in head(EQUAL)
    edited = EQUAL.model_copy(update={"notes": ()})
    assert head(edited).startswith("anna stands first in the file")
    assert head(small(ANNA).model_copy(update={"notes": ()})).startswith("anna is alone")


def test_a_name_that_another_starts_with_is_not_taken_for_it() -> None:
    notes = ("head: anna2, as asked", "head: anna.b; x", "head: anna, as asked")
    assert head(EQUAL.model_copy(update={"notes": notes[:2]})).startswith("anna stands first")
    assert head(EQUAL.model_copy(update={"notes": notes})).startswith("anna, as asked; as head")


def test_rates_without_an_untimed_edge_are_at_best() -> None:
    plan = small(ANNA, report("bert"))
    assert speed(plan).count("at best ") == 4
    assert "at best" not in speed(small(ANNA, BERT))
    assert (strategies(plan) or "").count("gives one user at best ") == 2
    assert "the edges from anna to bert and bert to anna were not timed" in why(plan, "warning")
    shown = [what for what, _ in picture(plan).figures]
    assert shown[:2] == ["one user, at best", "4 users together, at best"]


def test_the_class_of_a_nat_is_shown_where_it_is_known() -> None:
    hard = Nat(mapping="address-dependent", filtering="address-and-port-dependent")
    blocked = Nat(mapping="unknown", filtering="unknown", blocked=True)
    plan = small(ANNA, report("bert", nat=hard), report("c", nat=blocked), report("d", nat=None))
    found = {station.name: station.nat for station in picture(plan).stations}
    assert found == {
        "anna": "permissive NAT",
        "bert": "restrictive NAT",
        "c": "UDP blocked",
        "d": None,
    }
    text = plain(lines(picture(plan), 100))
    drawn = draw(picture(plan))
    for words in ("permissive NAT", "restrictive NAT", "UDP blocked"):
        assert words in text
        assert words in drawn


def test_warnings_come_first_and_the_head_is_told_once() -> None:
    plan = EQUAL.model_copy(update={"warnings": ("it is slow",)})
    ring = Ring.of(plan)
    found = reasons(ring, limits(ring))
    assert found[0] == Reason("warning", "it is slow")
    assert [each.about for each in found].count("head") == 1
    assert not any(each.words.startswith("head: ") for each in found)


def test_without_a_prediction_of_the_first_token_nothing_is_said_of_it() -> None:
    told = replace_predictions(EQUAL, first_token_us=None)
    assert "first token" in speed(EQUAL)
    assert "first token" not in speed(told)
    assert "users" not in speed(small(ANNA).model_copy(update={"session": one_user(EQUAL)}))


def replace_predictions(plan: PlanFile, **changes: object) -> PlanFile:
    predictions = plan.predictions.model_copy(update=changes)
    return plan.model_copy(update={"predictions": predictions})


def one_user(plan: PlanFile) -> object:
    return plan.session.model_copy(update={"concurrency": 1})
