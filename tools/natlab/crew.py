"""Members in a lab: they probe where they stand, are planned, and run without a model.

Their NATs are classified by the program and the plan is the planner's, so its edges are what the
program predicts.
"""

import json
import time
from collections.abc import Mapping, Sequence
from typing import Any, Final

from kafila.derive import plan_probes
from kafila.errors import NetworkProblem
from kafila.planfile import Edges, PlanFile
from kafila.plantext import render
from kafila.probe.report import Probes, read_probes
from tools.loopback import divided
from tools.natlab.lab import Host, Lab

Event = dict[str, Any]
PLAN: Final = "plan.yaml"
KAFILA: Final = ("-m", "kafila")
QUICK: Final = ("-m", "tools.natlab.probing")
"""The same, but that `kafila probe` measures no device."""
_PROBE_SECONDS: Final = 60.0


def probe(
    lab: Lab, hosts: Mapping[str, Host], rendezvous: str, program: Sequence[str] = QUICK
) -> Probes:
    """The reports of members that probe together, the first as the session's host.

    Each is said to be a machine of its own, which the program would know better.
    """

    def start(name: str, *words: str) -> None:
        keys = ("--home", name, "--name", name)
        lab.start(hosts[name], f"probe-{name}", *program, "probe", *words, *keys)

    first, *others = hosts
    members = ("--members", str(len(hosts)))
    start(first, "--host", *members, "--rendezvous", rendezvous, "--model", "demo")
    code = lab.processes.line(f"probe-{first}", _PROBE_SECONDS)
    for name in others:
        start(name, "--join", f"{code}@{rendezvous}")
    for name in (*others, first):
        lab.processes.finish(f"probe-{name}", _PROBE_SECONDS)
    probes = read_probes(lab.folder / "probes.yaml")
    reports = (
        each.model_copy(update={"machine": f"machine of {each.name}"}) for each in probes.reports
    )
    return probes.model_copy(update={"reports": tuple(reports)})


def write_plan(
    lab: Lab, probes: Probes, *, birthday: bool = False, counts: Sequence[int] | None = None
) -> PlanFile:
    """Write the plan of these members into the lab's folder; who hosted heads it.

    `counts` are the blocks of each place in the ring, where the planner is not to say.
    """
    edges = Edges(punch="birthday") if birthday else None
    plan = plan_probes(probes, context=256, concurrency=4, edges=edges)
    if counts:
        plan = divided(plan, counts)
    (lab.folder / PLAN).write_text(render(plan))
    return plan


class Member:
    """A running `tools.natlab.member`, and what it has told so far."""

    def __init__(self, lab: Lab, host: Host, name: str) -> None:
        self.name = name
        self._processes = lab.processes
        lab.start(host, name, "-m", "tools.natlab.member", PLAN, name)

    def told(self, event: str, **facts: Any) -> list[Event]:
        """All that it told of an event, with these facts if any are given."""
        events = (
            json.loads(line)
            for line in self._processes.log(self.name).splitlines()
            if line.startswith("{") and line.endswith("}")
        )
        return [each for each in events if each["event"] == event and facts.items() <= each.items()]

    def waits(self, event: str, seconds: float, **facts: Any) -> Event:
        """The first such event, once it is there. NetworkProblem with the reason if it is not."""
        found = self.within(event, seconds, **facts)
        if found is None:
            raise NetworkProblem(f"{self.name} told of no {event} {facts} in {seconds:g} s")
        return found

    def within(self, event: str, seconds: float, **facts: Any) -> Event | None:
        """`waits`, but None when the time is over."""
        deadline = time.monotonic() + seconds
        while True:
            found = self.told(event, **facts)
            if found:
                return found[0]
            for failure in self.told("failed"):
                raise NetworkProblem(f"{self.name}: {failure['why']}")
            if time.monotonic() > deadline:
                return None
            self._processes.check()
            time.sleep(0.05)

    def goes_on(self, seconds: float, frames: int = 1) -> None:
        """Wait until so many more frames have come to it, in order. NetworkProblem if not."""
        came = self.told("frame")
        reached = came[-1]["number"] if came else -1
        self.waits("frame", seconds, number=reached + frames)

    def stop(self) -> None:
        """End it."""
        self._processes.end(self.name)

    @property
    def path(self) -> str | None:
        """What it uses now to its neighbour; None before there is an edge."""
        paths = self.told("path")
        return str(paths[-1]["path"]) if paths else None
