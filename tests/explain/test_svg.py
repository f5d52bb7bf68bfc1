"""The picture as SVG: well-formed, accessible, complete, and to scale."""

import math
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafila.derive import recheck
from kafila.explain.picture import picture
from kafila.explain.svg import EDGE_DEGREES, STAGE_DEGREES, WIDTH, draw, sweeps
from kafila.planfile import read
from tests.explain.plans import PLANS

SVG = "{http://www.w3.org/2000/svg}"


@pytest.mark.parametrize("path", PLANS, ids=lambda path: path.stem)
def test_it_says_all_that_the_text_says(path: Path) -> None:
    found = picture(recheck(read(path)).plan)
    drawn = draw(found)
    assert drawn == draw(found)
    root = ET.fromstring(drawn)
    assert root.tag == f"{SVG}svg"
    assert root.get("role") == "img"
    title, description = root.find(f"{SVG}title"), root.find(f"{SVG}desc")
    assert title is not None
    assert title.text == found.title
    assert root.get("aria-labelledby") == f"{title.get('id')} desc"
    assert description is not None
    assert description.text is not None
    for reason in found.reasons:
        assert reason.words in description.text
    visible = [text.text for text in root.iter(f"{SVG}text")]
    for station in found.stations:
        assert station.name in description.text
        assert any(text and text.startswith(station.name[:20]) for text in visible)
        assert station.memory.words in visible


@pytest.mark.parametrize("path", PLANS, ids=lambda path: path.stem)
def test_everything_is_on_the_panel(path: Path) -> None:
    root = ET.fromstring(draw(picture(recheck(read(path)).plan)))
    height = float(root.get("height", "0"))
    assert root.get("viewBox") == f"0 0 {WIDTH} {height:g}"
    for element in root.iter():
        x, y = float(element.get("x", 0)), float(element.get("y", 0))
        assert 0 <= x + float(element.get("width", 0) if element is not root else 0) <= WIDTH
        assert 0 <= y <= height


def test_no_other_file_is_needed() -> None:
    drawn = draw(picture(recheck(read(PLANS[0])).plan))
    assert drawn.count("http") == 1  # the namespace
    assert "url(" not in drawn
    assert "prefers-color-scheme: dark" in drawn


@given(st.lists(st.floats(0, 1e9), min_size=2, max_size=12))
def test_arcs_are_to_scale_but_for_the_least(lengths: list[float]) -> None:
    least = [STAGE_DEGREES if at % 2 == 0 else EDGE_DEGREES for at in range(len(lengths))]
    angles = sweeps(lengths, least)
    assert math.isclose(sum(angles), 360)
    assert all(angle >= degrees - 1e-9 for angle, degrees in zip(angles, least, strict=True))
    free = [
        angle / length
        for angle, length, degrees in zip(angles, lengths, least, strict=True)
        if angle > degrees + 1e-9 and length > 0
    ]
    assert all(math.isclose(each, free[0], rel_tol=1e-6) for each in free)
