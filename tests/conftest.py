"""What all tests share: the device, no way out to the hub, the checkpoints of the goldens."""

import os
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import pytest
from hypothesis import settings

# Before anything imports JAX or the hub's client: a test that wants otherwise sets its own.
os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("HF_HUB_OFFLINE", "1")

# How long an example takes says nothing where other work shares the cores.
settings.register_profile("no-deadline", deadline=None)
settings.load_profile("no-deadline")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out the tests marked `peers` where torch and transformers are not installed."""
    if find_spec("torch") and find_spec("transformers"):
        return
    peers = [item for item in items if item.get_closest_marker("peers")]
    if peers:
        config.hook.pytest_deselected(items=peers)
        items[:] = [item for item in items if item not in peers]


@pytest.fixture(scope="session")
def golden_folder(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Folder of a golden's checkpoint by the golden's name, written on first use."""
    from tools.make_goldens import CASES

    folders: dict[str, Path] = {}

    def folder(name: str) -> Path:
        if name not in folders:
            folders[name] = CASES[name].write(tmp_path_factory.mktemp(name) / "model")
        return folders[name]

    return folder
