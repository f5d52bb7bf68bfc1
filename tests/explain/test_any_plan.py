"""Whatever a plan says, it can be explained and compared: no exception, no broken picture."""

import json
import xml.etree.ElementTree as ET
from dataclasses import asdict

from hypothesis import given
from hypothesis import strategies as st

from kafila.explain.diff import compare, words
from kafila.explain.picture import picture
from kafila.explain.svg import draw
from kafila.explain.text import lines, plain
from kafila.planfile import PlanFile
from tests.explain.plans import plans


@given(plans(), st.integers(0, 200))
def test_any_plan_is_explained(plan: PlanFile, width: int) -> None:
    found = picture(plan)
    text = plain(lines(found, width))
    root = ET.fromstring(draw(found))
    spoken = " ".join(root.itertext())
    for member in plan.ring:
        assert member.name in text.replace("\n", "").replace(" │   ", "")
        assert member.name in spoken


@given(plans(), plans())
def test_any_two_plans_are_compared(was: PlanFile, now: PlanFile) -> None:
    found = compare(was, now)
    assert words(found)
    json.dumps(asdict(found), allow_nan=False)
    same = {"ring", "predictions", "warnings", "session"}
    decided = was.model_dump(exclude=same) != now.model_dump(exclude=same)
    assert bool(found.changes) >= decided
    assert not compare(was, was).changes
