"""A ring of real processes on loopback: `kafila rendezvous` and a `kafila serve` for every member.

Reports are written by hand (nothing is measured), the plan is made by the planner and then edited
to the division that is wanted, as a person would. For tests and benchmarks.
"""

import json
import subprocess
import urllib.error
import urllib.request
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import accumulate, pairwise
from pathlib import Path
from types import TracebackType
from typing import Any

from kafila import PROTOCOL, __version__
from kafila.derive import plan_probes, recheck
from kafila.manifest import Manifest
from kafila.net.identity import Identity
from kafila.planfile import PlanFile
from kafila.plantext import render
from kafila.probe.report import Nat, Probes, Report, Session, Workspace, write_probes
from kafila.processes import Processes

NAMES = ("anna", "bert", "cleo", "dora", "emil", "fine")
READY_SECONDS = 120.0

SERVE = ("-m", "kafila", "serve")
REPOSITORY = Path(__file__).parents[1]


def handmade(
    name: str,
    identity: Identity,
    manifest: Manifest,
    *,
    machine: str,
    machine_bytes: int = 1 << 33,
    room_bytes: int = 1 << 33,
    nat: Nat | None = None,
) -> Report:
    """The report of a member like all others; without `nat` anybody can reach it."""
    return Report(
        name=name,
        key=identity.key.hex(),
        exchange_key=identity.exchange_key.hex(),
        platform="cpu",
        hardware="a processor",
        machine=machine,
        machine_bytes=machine_bytes,
        version=__version__,
        protocol=PROTOCOL,
        measured_for=manifest.digest,
        bandwidth=20_000_000_000,
        bandwidth_spread=0,
        overhead_us=50,
        overhead_spread_us=0,
        flops=100_000_000_000,
        flops_spread=0,
        rows_ns={1: 10_000, 2: 11_000, 4: 12_000},
        room_bytes=room_bytes,
        runtime_bytes=200_000_000,
        workspace=Workspace(base_bytes=1_000_000, row_bytes=1000, context_bytes=100),
        nat=nat or Nat(mapping="endpoint-independent", filtering="endpoint-independent"),
    )


def divided(plan: PlanFile, counts: Sequence[int], groups: int | None = None) -> PlanFile:
    """The plan with that many blocks for each member, its figures derived anew."""
    bounds = pairwise(accumulate(counts, initial=0))
    ring = tuple(
        member.model_copy(update={"blocks": f"{start}-{stop - 1}"})
        for member, (start, stop) in zip(plan.ring, bounds, strict=True)
    )
    edited = plan.model_copy(update={"ring": ring, "groups": groups or plan.groups})
    return recheck(edited).plan


class Ring:
    """A served plan. As a context manager it is up inside and leaves no process behind.

    `counts` are the blocks of each member; `serve` are the words after `python` that serve a plan.
    """

    def __init__(
        self,
        folder: Path,
        model: Path | str,
        counts: Sequence[int],
        *,
        context: int = 256,
        concurrency: int = 4,
        groups: int | None = None,
        serve: Sequence[str] = SERVE,
    ) -> None:
        self._folder = folder
        self._model = str(model)
        self._counts = counts
        self._load = (context, concurrency, groups)
        self._serve = serve
        self._processes = Processes(folder)
        self.base = ""
        folder.mkdir(parents=True, exist_ok=True)

    def __enter__(self) -> "Ring":
        try:
            self.write_plan(self._rendezvous() if len(self._counts) > 1 else None)
            for name in self.names:
                options = ["--home", name, "--listen", "127.0.0.1:0", "--port", "0"]
                words = [*self._serve, "plan.yaml", *options, "--model", self._model]
                self._processes.start(name, *words, environment={"PYTHONPATH": str(REPOSITORY)})
            ready = self._processes.logged(NAMES[0], "answers on http://", READY_SECONDS)
            self.base = ready.partition("answers on ")[2].split("/v1")[0]
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    @property
    def names(self) -> Sequence[str]:
        return NAMES[: len(self._counts)]

    def write_reports(
        self,
        session: Session | None = None,
        *,
        machine: str | None = None,
        machine_bytes: int = 1 << 33,
        room_bytes: int = 1 << 33,
    ) -> Probes:
        """Write probes.yaml: equal members, each on its own machine unless `machine` names one."""
        manifest = Manifest.of(self._model)
        reports = tuple(
            handmade(
                name,
                Identity.load_or_create(self._folder / name),
                manifest,
                machine=machine or f"machine of {name}",
                machine_bytes=machine_bytes,
                room_bytes=room_bytes,
            )
            for name in self.names
        )
        probes = Probes(manifest=manifest, session=session, host=NAMES[0], reports=reports)
        write_probes(probes, self._folder / "probes.yaml")
        return probes

    def write_plan(self, session: Session | None) -> PlanFile:
        """Write plan.yaml with the wanted division."""
        context, concurrency, groups = self._load
        probes = self.write_reports(session)
        plan = plan_probes(probes, context=context, concurrency=concurrency)
        fresh = divided(plan, self._counts, groups)
        (self._folder / "plan.yaml").write_text(render(fresh))
        return fresh

    def process(self, name: str) -> subprocess.Popen[str]:
        """The process of a member."""
        return self._processes[name]

    def log(self, name: str) -> str:
        """What a process said on stderr."""
        return self._processes.log(name)

    def post(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        """POST JSON; the answer, or the error's body with its `status`."""
        request = urllib.request.Request(
            self.base + path,
            data=json.dumps(body).encode(),
            headers={"content-type": "application/json"},
        )
        try:
            with urllib.request.urlopen(request, timeout=120) as response:
                answer = json.load(response)
        except urllib.error.HTTPError as error:
            with error:
                answer = {**json.load(error), "status": error.code}
        assert isinstance(answer, dict)
        return answer

    def greedy(self, prompt: Sequence[int], tokens: int) -> list[int]:
        """The next `tokens` tokens after `prompt`, end-of-text notwithstanding."""
        answer = self.post(
            "/v1/completions",
            {
                "prompt": list(prompt),
                "max_tokens": tokens,
                "temperature": 0,
                "ignore_eos": True,
                "return_token_ids": True,
            },
        )
        ids = answer["choices"][0]["token_ids"]
        assert isinstance(ids, list)
        return ids

    def at_once(self, prompts: Sequence[Sequence[int]], tokens: int) -> list[list[int]]:
        """`greedy` of all prompts at the same time, in their order."""
        with ThreadPoolExecutor(len(prompts)) as pool:
            return list(pool.map(lambda prompt: self.greedy(prompt, tokens), prompts))

    def stop(self) -> None:
        """End all processes."""
        self._processes.stop()

    def _rendezvous(self) -> Session:
        words = ("-m", "kafila", "rendezvous", "--listen", "127.0.0.1:0", "--home", "rendezvous")
        self._processes.start("rendezvous", *words)
        _, address, _, key = self._processes.line("rendezvous", READY_SECONDS).split()
        return Session(rendezvous=address, rendezvous_key=key)
