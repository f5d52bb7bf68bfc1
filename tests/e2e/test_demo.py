"""`kafila demo`, as a newcomer runs it: it answers, it ends, and it leaves nothing running."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

DEMO = [sys.executable, "-m", "kafila", "demo"]


@pytest.fixture
def temporary(tmp_path: Path) -> Iterator[dict[str, str]]:
    """Environment whose temporary folder is the test's; no process may stay behind in it."""
    yield {**os.environ, "TMPDIR": str(tmp_path), "PYTHONUNBUFFERED": "1"}
    assert not _working_in(tmp_path)
    assert not list(tmp_path.iterdir())


def _working_in(folder: Path) -> list[psutil.Process]:
    """Processes whose working folder lies in `folder`."""
    found = []
    for process in psutil.process_iter():
        try:
            if Path(process.cwd()).is_relative_to(folder):
                found.append(process)
        except (psutil.Error, OSError):
            continue
    return found


def test_once(temporary: dict[str, str]) -> None:
    done = subprocess.run(
        [*DEMO, "--once"], env=temporary, capture_output=True, text=True, timeout=200
    )
    assert done.returncode == 0, done.stderr
    plan, _, talk = done.stdout.partition("Every member: kafila serve plan.yaml")
    assert "anna opens 1-" in plan
    assert "name: cleo" in plan
    answer = talk.partition("model > ")[2]
    assert answer.startswith("Once upon a time")
    assert "tok/s round three processes" in answer
    assert "The plan predicted" in answer


def test_nothing_outlives_a_demo_that_is_killed(tmp_path: Path) -> None:
    environment = {**os.environ, "TMPDIR": str(tmp_path), "PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(DEMO, env=environment, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        while "cleo joins" not in (line := process.stdout.readline()):
            assert line, "it ended by itself"
        assert len(_working_in(tmp_path)) == 4, "the rendezvous and three that measure"
        process.kill()
    deadline = time.monotonic() + 30
    while (left := _working_in(tmp_path)) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not left


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_interrupted(temporary: dict[str, str], number: signal.Signals) -> None:
    process = subprocess.Popen(
        DEMO, env=temporary, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert "kafila rendezvous" in process.stdout.readline()
    time.sleep(1)  # the host is measuring by then
    process.send_signal(number)
    process.send_signal(number)  # impatience must not lose a child
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "Traceback" not in err
