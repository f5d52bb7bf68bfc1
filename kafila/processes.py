"""Several `kafila` commands as background processes: started together, and none outlives them."""

import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType

from kafila import defaults
from kafila.errors import KafilaError, NetworkProblem


class Processes:
    """Named processes in one folder; each one's stderr goes to `NAME.log` there.

    As a context manager it ends them all, whatever ended the block.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._running: dict[str, subprocess.Popen[str]] = {}

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
        # An interrupt between the start and the note of it would leave a process behind.
        with _signals_wait(), self._log(who).open("w") as log:
            self._running[who] = subprocess.Popen(
                [sys.executable, *words],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                cwd=self.folder,
                env={**os.environ, **(environment or {})},
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
