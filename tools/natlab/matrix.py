"""Runs pairs of members through the lab and tells what was predicted and what came.

Every cell is a scene of its own: the NATs, a rendezvous with one address and a STUN server on
another; the members probe in a session, are planned from that, and run.
"""

import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, field
from multiprocessing import get_context
from pathlib import Path
from statistics import median
from typing import Final

from kafila.errors import KafilaError
from kafila.plan import values
from kafila.plan.reach import paper_class
from kafila.planfile import PlanFile
from tools.natlab.cells import NAMES, Cell
from tools.natlab.crew import Member, probe, write_plan
from tools.natlab.lab import Host, Lab

DELAY: Final = 0.04
"""Seconds one way between any two: round trips of 80 ms to the rendezvous and between members."""
_AT_ONCE: Final = 2
_EDGE_SECONDS: Final = 20.0
_DIRECT_SECONDS: Final = 6.0
"""How long to wait for a direct path: a round of punching and a bit."""
_BIRTHDAY_SECONDS: Final = 30.0


@dataclass
class Try:
    """How one start of both members went; seconds after both were introduced."""

    path: str
    """direct, relayed, or why there is no edge."""
    first: float | None = None
    """The first frame had arrived at the other member."""
    direct: float | None = None
    """Both ends used the direct path."""


@dataclass
class Outcome:
    """How a cell went."""

    cell: Cell
    predicted: str = "unknown"
    classified: tuple[tuple[str, str], ...] = ()
    tries: list[Try] = field(default_factory=list)

    @property
    def path(self) -> str:
        """What the try came to, or how many of several were direct."""
        if len(self.tries) == 1:
            return self.tries[0].path
        failed = {each.path for each in self.tries} - {"direct", "relayed"}
        return "; ".join([f"direct in {self.directs} of {len(self.tries)}", *sorted(failed)])

    @property
    def directs(self) -> int:
        """How many tries came out direct."""
        return sum(each.path == "direct" for each in self.tries)

    @property
    def first(self) -> float | None:
        """Median time to the first frame, in seconds."""
        return _median([each.first for each in self.tries])

    @property
    def direct(self) -> float | None:
        """Median time to the direct path, in seconds."""
        return _median([each.direct for each in self.tries])

    @property
    def verdict(self) -> str:
        """right; safe: predicted relayed and came out direct; or what is wrong."""
        if any(each.path not in ("direct", "relayed") for each in self.tries):
            return "no edge"
        if self.cell.birthday:
            return "right" if self.directs >= 0.9 * len(self.tries) else "too seldom direct"
        if self.path != self.cell.possible:
            return f"{self.cell.possible} is possible"
        for found, nat in zip(self.classified, self.cell.nats, strict=False):
            if nat is not None and found != nat.behaviour and "unknown" not in found:
                return "wrongly classified"
        if self.predicted == self.path:
            return "right"
        return "safe" if self.predicted == "relayed" else "wrongly predicted"


def run(cell: Cell, folder: Path) -> Outcome:
    """Run one cell; what fails is in its outcome."""
    outcome = Outcome(cell)
    try:
        with Lab(folder, delay=DELAY) as lab:
            rendezvous = lab.start_servers(lab.rendezvous())
            hosts = dict(zip(NAMES, cell.build(lab), strict=True))
            probes = probe(lab, hosts, rendezvous)
            nats = [each.nat for each in probes.reports if each.nat]
            outcome.classified = tuple((nat.mapping, nat.filtering) for nat in nats)
            outcome.predicted = predicted(write_plan(lab, probes, birthday=cell.birthday))
            for _ in range(cell.tries):
                outcome.tries.append(_try(lab, hosts, cell))
    except (KafilaError, OSError, KeyError, ValueError) as problem:
        outcome.tries.append(Try(f"{type(problem).__name__}: {problem}"))
    return outcome


def predicted(plan: PlanFile) -> str:
    """What the plan says of the way between its first two members."""
    edge = plan.ring[0].edge
    assert edge is not None
    return edge.path


def _try(lab: Lab, hosts: dict[str, Host], cell: Cell) -> Try:
    a, b = (Member(lab, host, name) for name, host in hosts.items())
    try:
        introduced = max(each.waits("introduced", _EDGE_SECONDS)["at"] for each in (a, b))
        first = b.waits("frame", _EDGE_SECONDS)["at"] - introduced
        until = time.monotonic() + (_BIRTHDAY_SECONDS if cell.birthday else _DIRECT_SECONDS)
        moved = [each.within("path", until - time.monotonic(), path="direct") for each in (a, b)]
        direct = max(each["at"] for each in moved if each) - introduced if all(moved) else None
        a.goes_on(_EDGE_SECONDS)
        paths = {each.path for each in (a, b)}
        path = paths.pop() if len(paths) == 1 else "direct one way"
        return Try(str(path), first, direct)
    finally:
        for each in (a, b):
            each.stop()


def sweep(cells: Sequence[Cell]) -> list[Outcome]:
    """Run all cells, some at once as they mostly wait; tells on stderr how far it is."""
    with ProcessPoolExecutor(_AT_ONCE, get_context("spawn")) as pool:
        runs = {pool.submit(_timed, cell): number for number, cell in enumerate(cells)}
        outcomes: dict[int, Outcome] = {}
        try:
            for run in as_completed(runs):
                outcome, seconds = run.result()
                outcomes[runs[run]] = outcome
                came = f"{outcome.predicted} -> {outcome.path} ({outcome.verdict}, {seconds:.1f} s)"
                print(
                    f"{len(outcomes):3}/{len(cells)} {outcome.cell.title}: {came}",
                    file=sys.stderr,
                    flush=True,
                )
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise
    return [outcomes[number] for number in range(len(cells))]


def _timed(cell: Cell) -> tuple[Outcome, float]:
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="natlab-") as folder:
        return run(cell, Path(folder)), time.monotonic() - began


def table(outcomes: Sequence[Outcome]) -> str:
    """The outcomes for docs/nat.md."""
    lines = [
        "| member | other member | predicted | outcome | first frame | direct | |",
        "|---|---|---|---|---|---|---|",
    ]
    for each in outcomes:
        cells = (
            each.cell.a,
            each.cell.b,
            each.predicted,
            each.path,
            _ms(each.first),
            _ms(each.direct),
            each.verdict,
        )
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def classes(outcomes: Sequence[Outcome]) -> str:
    """The same outcomes by ordered pairs of the paper's three classes."""
    pairs: dict[tuple[str, ...], list[Outcome]] = {}
    for each in outcomes:
        kinds = (values.Nat(*nat.behaviour) for nat in each.cell.nats if nat)
        pairs.setdefault(tuple(paper_class(kind) for kind in kinds), []).append(each)
    lines = ["| class | other class | direct | predicted right |", "|---|---|---|---|"]
    for names, members in pairs.items():
        direct = sum(each.directs for each in members)
        right = sum(each.path == each.predicted for each in members)
        counts = f"{direct} of {len(members)} | {right} of {len(members)}"
        lines.append(f"| {' | '.join(names)} | {counts} |")
    return "\n".join(lines)


def summary(outcomes: Sequence[Outcome]) -> str:
    """How many came as predicted, and the medians."""
    first = _median([each.first for each in outcomes])
    direct = _median([each.direct for each in outcomes])
    times = f"; medians: first frame after {_ms(first)}, direct after {_ms(direct)}."
    if all(each.cell.birthday for each in outcomes):
        tries = sum(len(each.tries) for each in outcomes)
        return f"Direct in {sum(each.directs for each in outcomes)} of {tries} tries{times}"
    right = sum(each.verdict == "right" for each in outcomes)
    safe = sum(each.verdict == "safe" for each in outcomes)
    wrong = len(outcomes) - right - safe
    words = f"{right} of {len(outcomes)} as predicted"
    words += f", {safe} direct although predicted relayed" if safe else ""
    words += f", {wrong} wrong" if wrong else ""
    return words + times


def _median(values: Sequence[float | None]) -> float | None:
    known = [each for each in values if each is not None]
    return median(known) if known else None


def _ms(seconds: float | None) -> str:
    return "" if seconds is None else f"{seconds * 1000:.0f} ms"
