"""A process that is told of its parent's pipe: it ends with the parent, and heeds no other pipe."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from kafila.errors import BadFile
from kafila.processes import PARENT, Processes

CHECK = [sys.executable, "-m", "kafila", "check", "no.such.yaml"]


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    ends = os.pipe()
    yield ends
    for each in ends:
        os.close(each)


@pytest.mark.parametrize(
    "stray", ["{pipe}", "0", "", "-1", "{pipe}:1", "{pipe}:x", "9" * 30 + ":1", "999:1", "1:2:3"]
)
def test_a_stray_variable_is_nothing(pipe: tuple[int, int], tmp_path: Path, stray: str) -> None:
    reading, writing = pipe
    os.write(writing, b"hello")
    done = subprocess.run(
        CHECK,
        env={**os.environ, PARENT: stray.format(pipe=reading)},
        pass_fds=(reading,),
        input="",
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == BadFile.exit_code, done.stderr
    assert os.read(reading, 10) == b"hello"


def test_a_child_ends_with_its_parent(tmp_path: Path) -> None:
    """One that is killed, so that it cannot end the child."""
    script = (
        "import sys, time\n"
        "from pathlib import Path\n"
        "from kafila.processes import Processes\n"
        "processes = Processes(Path(sys.argv[1]))\n"
        "words = 'from kafila.processes import end_with_parent\\n'\n"
        "words += 'import time; end_with_parent(); print(1, flush=True); time.sleep(600)'\n"
        "child = processes.start('child', '-c', words)\n"
        "processes.line('child', 60)\n"
        "print(child.pid, flush=True)\n"
        "time.sleep(600)\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script, str(tmp_path)],
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(Path.cwd())},
        text=True,
    ) as parent:
        assert parent.stdout is not None
        child = psutil.Process(int(parent.stdout.readline()))
        parent.kill()
    psutil.wait_procs([child], timeout=60)
    assert not child.is_running()


def test_a_child_is_told_of_the_pipe(tmp_path: Path) -> None:
    with Processes(tmp_path) as processes:
        processes.start("child", "-c", f"import os; print(os.environ[{PARENT!r}])")
        pipe, inode = processes.line("child", 60).split(":")
        assert os.fstat(int(pipe)).st_ino == int(inode)
