"""The picture on a terminal: everybody is in it, and nothing is wider than asked."""

from pathlib import Path

import pytest

from kafila.derive import recheck
from kafila.explain.picture import Picture, picture
from kafila.explain.text import DRAWN, LEAST_WIDTH, TYPED, glyphs_for, lines, plain
from kafila.planfile import read
from kafila.plantext import nat_words
from tests.explain.plans import PLANS


def shown(path: Path) -> Picture:
    return picture(recheck(read(path)).plan)


@pytest.mark.parametrize("path", PLANS, ids=lambda path: path.stem)
def test_every_member_edge_and_reason_is_shown(path: Path) -> None:
    plan = read(path)
    text = plain(lines(picture(recheck(plan).plan)))
    assert text == plain(lines(shown(path)))
    for member in plan.ring:
        role = ", the head" if member.name == plan.head else ""
        nat = f", {words}" if (words := nat_words(member.measured.nat)) else ""
        assert f"{member.name}{role}{nat}: " in text
    assert text.count("compute ") == text.count("memory ") == len(plan.ring)
    edges = [member.edge for member in plan.ring if member.edge]
    assert text.count("↓") == max(0, len(edges) - 1)
    assert text.count("back to") == min(1, len(edges))
    for about in ("speed", "network", "head"):
        assert f"\n{about} " in text


@pytest.mark.parametrize("path", PLANS, ids=lambda path: path.stem)
@pytest.mark.parametrize("width", [LEAST_WIDTH, 57, 80, 100])
def test_no_line_is_wider_than_asked(path: Path, width: int) -> None:
    for glyphs in (DRAWN, TYPED):
        drawn = plain(lines(shown(path), width, glyphs)).splitlines()
        assert max(map(len, drawn)) <= width


def test_narrower_than_the_least_stays_readable() -> None:
    assert lines(shown(PLANS[0]), 3) == lines(shown(PLANS[0]), LEAST_WIDTH)


def test_bars_are_in_proportion_and_never_lie_at_the_ends() -> None:
    for path in PLANS:
        found = shown(path)
        bars = [line for line in plain(lines(found)).splitlines() if "compute" in line]
        for station, bar in zip(found.stations, bars, strict=False):
            full, empty = bar.count("█"), bar.count("░")
            assert (station.compute.part >= 1) == (empty == 0)
            assert (station.compute.part > 0) == (full > 0)


def test_terminals_without_the_glyphs_get_ascii() -> None:
    assert glyphs_for("utf-8") is DRAWN
    for encoding in ("ascii", "latin-1", "no such encoding"):
        assert glyphs_for(encoding) is TYPED
    assert plain(lines(shown(PLANS[0]), 80, TYPED)).isascii()
