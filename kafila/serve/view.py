"""What a serving member shows its user on stderr: live on a terminal, plain lines elsewhere."""

import sys
import time
from types import TracebackType
from typing import Protocol

from rich.console import Console
from rich.live import Live
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.text import Text

from kafila.defaults import STATUS_LINE_SECONDS


class View(Protocol):
    """Somewhere to show the state of a member."""

    def say(self, line: str) -> None:
        """Something happened."""

    def progress(self, what: str, done: int, total: int) -> None:
        """`what` ("loading" in bytes, others in steps) is so far."""

    def state(self, line: str, active: bool) -> None:
        """How things are now; `active` when there is work."""

    def __enter__(self) -> "View": ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...


def view() -> View:
    """The view that fits this process' stderr."""
    return Terminal() if sys.stderr.isatty() else Lines()


class Lines:
    """For logs: a line an event, and now and then one about the state."""

    def __init__(self) -> None:
        self._shown = 0.0
        self._begun: set[str] = set()

    def say(self, line: str) -> None:
        print(line, file=sys.stderr, flush=True)

    def progress(self, what: str, done: int, total: int) -> None:
        if done < total and what in self._begun:
            return
        self._begun.add(what)
        self.say(f"{what}: {_amount(what, done, total)}")

    def state(self, line: str, active: bool) -> None:
        now = time.monotonic()
        if active and now - self._shown >= STATUS_LINE_SECONDS:
            self._shown = now
            self.say(line)

    def __enter__(self) -> "Lines":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        return None


class Terminal:
    """For people: bars while loading, then one line that is kept up to date."""

    def __init__(self, console: Console | None = None) -> None:
        self._console = console or Console(stderr=True, highlight=False)
        self._bars = Progress(
            TextColumn("{task.description:>12}"),
            BarColumn(),
            TextColumn("{task.fields[amount]}"),
            TimeElapsedColumn(),
            console=self._console,
        )
        self._tasks: dict[str, TaskID] = {}
        self._live = Live(self._bars, console=self._console, transient=True, refresh_per_second=4)

    def say(self, line: str) -> None:
        self._console.print(Text(line))

    def progress(self, what: str, done: int, total: int) -> None:
        amount = _amount(what, done, total)
        if what not in self._tasks:
            self._tasks[what] = self._bars.add_task(what, total=total, amount=amount)
        self._bars.update(self._tasks[what], completed=done, total=total, amount=amount)

    def state(self, line: str, active: bool) -> None:
        self._live.update(Text(line, style="bold" if active else "dim"))

    def __enter__(self) -> "Terminal":
        self._live.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._live.stop()


def _amount(what: str, done: int, total: int) -> str:
    if what == "loading":
        return f"{done / 2**20:,.1f} of {total / 2**20:,.1f} MiB"
    return f"{done} of {total}"
