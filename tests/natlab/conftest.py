"""The lab's tests need network namespaces; where none can be made they are skipped, saying why."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tools.natlab.lab import Lab
from tools.natlab.namespaces import why_not


@pytest.fixture(autouse=True)
def _namespaces(request: pytest.FixtureRequest) -> None:
    """Skip what is marked `netns` where it cannot run."""
    if request.node.get_closest_marker("netns") and (reason := why_not()):
        pytest.skip(reason)


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Callable[..., Lab]]:
    """Make labs that end with the test; the delay one way in seconds."""
    with ExitStack() as stack:
        yield lambda delay=0.0: stack.enter_context(Lab(tmp_path / "lab", delay=delay))
