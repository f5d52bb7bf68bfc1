"""The example fleets: what the planner promises on all of them, and what the paper saw."""

import pytest

from kafila.derive import compare_probes, plan_probes
from kafila.plan.compare import Row
from kafila.plan.make import DEFAULT, Wishes
from kafila.plan.reach import paper_class
from kafila.plan.refusal import Refused
from kafila.planfile import PlanFile
from tools.fleets import fleet
from tools.planfiles import FLEETS

EXAMPLES = [(name, size) for name, sizes in FLEETS.items() for size in sizes]


def rows(name: str, size: str, users: int, wishes: Wishes) -> dict[str, Row]:
    made = compare_probes(fleet(name, size), context=4096, concurrency=users, wishes=wishes)
    return {row.strategy: row for row in made}


def planned(name: str, size: str, wishes: Wishes = DEFAULT) -> PlanFile:
    return plan_probes(fleet(name, size), context=4096, concurrency=4, wishes=wishes)


def rate(row: Row) -> float:
    """Of all users together, per microsecond and user."""
    assert row.plan.predictions
    return 1 / row.plan.predictions.shared_token_us


@pytest.mark.parametrize("users", [1, 2, 4, 8])
@pytest.mark.parametrize(("name", "size"), EXAMPLES)
def test_load_serves_its_users_best(name: str, size: str, users: int) -> None:
    for margin, share in ((0.05, 0.95), (0.0, 1.0)):
        found = rows(name, size, users, Wishes(margin=margin))
        assert not found["load"].short
        best = max(rate(row) for row in found.values() if not row.short)
        assert rate(found["load"]) >= share * best * (1 - 1e-9)


def test_bottleneck_on_the_lan_is_a_third_of_uniform() -> None:
    found = rows("lan", "8b", 4, Wishes())
    paper, equal = found["bottleneck"].plan.predictions, found["uniform"].plan.predictions
    assert paper
    assert equal
    assert equal.bottleneck_us > 3 * paper.bottleneck_us


def test_the_paper_kept_its_stages_even() -> None:
    """Slowest over fastest 1.4 to 1.8, utilisation 75 to 87 per cent; ours are as even."""
    for name, size in EXAMPLES:
        row = rows(name, size, 4, Wishes())["bottleneck"]
        assert row.imbalance
        assert row.utilisation
        assert row.imbalance < 1.9
        assert row.utilisation > 0.8


def test_uniform_overloads_the_laptop_and_the_planner_does_not() -> None:
    """Qwen3-32B on six members, one of them an 18 GB laptop that opened the session."""
    with pytest.raises(Refused, match="undersized: bert\n") as caught:
        planned("world", "32b", Wishes(strategy="uniform"))
    assert "--strategy load does" in str(caught.value)
    for plan in (planned("world", "32b"), planned("world", "32b", Wishes("bottleneck"))):
        assert all(member.need_bytes <= member.room_bytes for member in plan.ring)


def share(plan: PlanFile) -> float:
    made = plan.predictions
    assert made.network_us is not None
    assert made.token_us
    return made.network_us / made.token_us


def test_the_networks_share_spans_what_the_paper_saw() -> None:
    """From 12 per cent of a token on one LAN to 94 across continents."""
    assert 0.05 < share(planned("lan", "8b", Wishes(strategy="bottleneck"))) < 0.15
    assert 0.3 < share(planned("region", "32b")) < 0.8
    assert 0.84 < share(planned("world", "32b")) < share(planned("world", "8b")) < 0.96


def paths(plan: PlanFile) -> list[str]:
    return [member.edge.path for member in plan.ring if member.edge]


def test_paths_are_those_of_the_papers_fleets() -> None:
    """Direct on a LAN and between homes; across continents only who shares a site is, and two
    homes. The LAN's members are restrictive by class, and need no rendezvous all the same."""
    assert paths(planned("lan", "8b")) == ["direct"] * 4
    assert paths(planned("region", "8b")) == ["direct"] * 5
    assert sorted(paths(planned("world", "8b"))) == ["direct"] * 2 + ["relayed"] * 4
    lan = fleet("lan", "8b")
    assert {paper_class(report.nat.value()) for report in lan.reports if report.nat} == {
        "restrictive"
    }


def test_pinning_the_head_is_no_throughput_knob() -> None:
    """The paper's ablation; what it is for is in test_head: a head that fits."""
    for name, size in EXAMPLES:
        free = planned(name, size)
        pinned = planned(name, size, Wishes(head=free.session.opener))
        assert free.predictions.shared_token_us
        assert pinned.predictions.shared_token_us
        assert pinned.predictions.shared_token_us <= free.predictions.shared_token_us * 1.06


def test_order_by_relays_costs_where_rings_cross_a_country() -> None:
    for size in ("8b", "14b", "32b"):
        priced, blind = planned("region", size), planned("region", size, Wishes(order="relays"))
        assert paths(blind) == paths(priced)
        assert blind.predictions.network_us
        assert priced.predictions.network_us
        assert blind.predictions.network_us > 1.05 * priced.predictions.network_us
    relayed = planned("world", "8b", Wishes(order="relays"))
    assert paths(relayed).count("relayed") == 4


def test_the_first_token_follows_links_and_arithmetic() -> None:
    lan, region, world = (
        planned(name, "8b").predictions.first_token_us for name in ("lan", "region", "world")
    )
    assert lan
    assert region
    assert world
    assert lan < 200_000  # 1,000 tokens through cards on a LAN
    assert region > 3_000_000  # 8 MB over a laptop's 20 Mbit/s
    assert world > region
