"""Several `kafila` commands as background processes: started together, and none outlives them.

Nor does one outlive a parent that was killed, if it calls `end_with_parent` as `kafila` does: it
holds the end of a pipe that then says so.
"""

import os
import select
import signal
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType

from kafila import defaults
from kafila.errors import KafilaError, NetworkProblem

PARENT = "KAFILA_PARENT"
"""In a child's environment: `FILE:INODE`, the pipe whose other end its parent keeps open."""


class Processes:
    """Named processes in one folder; each one's stderr goes to `NAME.log` there.

    As a context manager it ends them all, whatever ended the block.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._running: dict[str, subprocess.Popen[str]] = {}
        self._pipe: tuple[int, ...] = ()

    def __enter__(self) -> "Processes":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def __getitem__(self, who: str) -> subprocess.Popen[str]:
        return self._running[who]

    def start(
        self, who: str, *words: str, environment: Mapping[str, str] | None = None
    ) -> subprocess.Popen[str]:
        """Start `python WORDS` (as in `-m kafila serve plan.yaml`) under the name `who`."""
        self._pipe = self._pipe or os.pipe()
        pipe = self._pipe[0]
        # An interrupt between the start and the note of it would leave a process behind.
        with _signals_wait(), self._log(who).open("w") as log:
            self._running[who] = subprocess.Popen(
                [sys.executable, *words],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                cwd=self.folder,
                env={
                    **os.environ,
                    **(environment or {}),
                    PARENT: f"{pipe}:{os.fstat(pipe).st_ino}",
                },
                pass_fds=(pipe,),
                start_new_session=True,  # a terminal's Ctrl-C is for the parent, which stops all
            )
        return self._running[who]

    def line(self, who: str, seconds: float) -> str:
        """The next line of a process' stdout; raises if it ends first or says nothing in time."""
        stream = self._running[who].stdout
        assert stream is not None
        ready, _, _ = select.select([stream], [], [], seconds)
        line = stream.readline() if ready else ""
        if line:
            return line.strip()
        if ready:  # it closed its output; it is reaped a moment later
            self._running[who].wait(timeout=defaults.DEMO_STOP_SECONDS)
        self.check()
        raise NetworkProblem(f"{who} said nothing within {seconds:.0f} s")

    def logged(self, who: str, words: str, seconds: float) -> str:
        """The line of a process' stderr that contains `words`, once it is there."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            for line in self.log(who).splitlines():
                if words in line:
                    return line
            self.check()
            time.sleep(0.05)
        raise NetworkProblem(f"{who} did not say {words!r} within {seconds:.0f} s")

    def finish(self, who: str, seconds: float) -> str:
        """Wait for a process to end well; returns its stdout."""
        process = self._running[who]
        try:
            out, _ = process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            raise NetworkProblem(f"{who} did not finish within {seconds:.0f} s") from None
        self._running.pop(who)
        if process.returncode:
            raise KafilaError(f"{who} failed: {self._last_words(who)}")
        return out

    def end(self, who: str) -> None:
        """End one process as `stop` ends all."""
        with _signals_wait():
            _end([self._running.pop(who)])

    def check(self) -> None:
        """Raise if any process has ended by itself."""
        for who, process in self._running.items():
            if process.poll() is not None:
                raise KafilaError(f"{who} stopped: {self._last_words(who)}")

    def log(self, who: str) -> str:
        """What a process said on stderr so far."""
        return self._log(who).read_text(errors="replace")

    def stop(self) -> None:
        """End all: politely, then by force. Signals that would end this early wait meanwhile."""
        with _signals_wait():
            _end(self._running.values())
            self._running.clear()
            for each in self._pipe:
                os.close(each)
            self._pipe = ()

    def _last_words(self, who: str) -> str:
        lines = self.log(who).strip().splitlines()
        return lines[-1].removeprefix("kafila: ") if lines else "it said nothing"

    def _log(self, who: str) -> Path:
        return self.folder / f"{who}.log"


def _end(processes: Collection[subprocess.Popen[str]]) -> None:
    for process in processes:
        if process.poll() is None:
            process.terminate()
    deadline = time.monotonic() + defaults.DEMO_STOP_SECONDS
    for process in processes:
        try:
            process.wait(timeout=max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        if process.stdout:
            process.stdout.close()


def end_with_parent() -> None:
    """In a child: end as on SIGTERM once the parent is gone, however it went.

    Nothing where the variable is not there, or names no pipe of a `Processes`.
    """
    try:
        pipe, inode = map(int, os.environ.pop(PARENT, "").split(":"))
        found = os.fstat(pipe)
    except (OSError, OverflowError, ValueError):
        return
    if not stat.S_ISFIFO(found.st_mode) or found.st_ino != inode:
        return

    def wait() -> None:
        if os.read(pipe, 1):  # not ours after all: nobody writes to that
            return
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(defaults.DEMO_STOP_SECONDS)
        os._exit(1)

    threading.Thread(target=wait, daemon=True).start()


@contextmanager
def _signals_wait() -> Iterator[None]:
    """Signals that end a program take effect after the block; children do not inherit this."""
    came: list[int] = []
    before = {
        number: signal.signal(number, lambda number, _: came.append(number))
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    }
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        for late in came:
            signal.raise_signal(late)
