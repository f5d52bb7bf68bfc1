"""What a ring lives through: three members behind three kinds of NAT, and what happens to them.

`generations` runs `kafila probe` and `kafila serve` with the demo model and compares tokens; the
scene, and what is done to it, serve members without a model as well.
"""

import http.client
import json
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from kafila.errors import NetworkProblem
from tools.natlab import nat as nats
from tools.natlab.crew import KAFILA, PLAN, QUICK, probe, write_plan
from tools.natlab.lab import RENDEZVOUS, Host, Lab, Router

NAMES: Final = ("anna", "bert", "cleo")
_NATS: Final = (nats.EIF, nats.ADF, nats.APDM)
"""Every pair of these is direct."""
_DELAY: Final = 0.01
_TOKENS: Final = 160
_PROMPT: Final = tuple(range(40, 56))
_AFTER: Final = 30
"""Tokens that have come when something happens."""
_READY_SECONDS: Final = 180.0
_DIRECT_SECONDS: Final = 100.0
"""Until the last of the first retries of a path."""
_ANSWER_SECONDS: Final = 120.0


@dataclass
class Scene:
    """The lab of one ring."""

    lab: Lab
    server: Host
    routers: dict[str, Router]
    hosts: dict[str, Host]
    ring: tuple[str, ...]
    """The members in the plan's order, the head first."""

    def black_hole(self, *names: str, gone: bool = True) -> None:
        """Nothing passes directly between these members any more (or again)."""
        routers = [self.routers[name].name for name in names]
        for position, one in enumerate(routers):
            for other in routers[:position]:
                self.lab.link(one, other, blackhole=gone)

    def kill_rendezvous(self) -> None:
        """It dies without a word."""
        self.lab.processes[RENDEZVOUS].kill()
        self.lab.processes.end(RENDEZVOUS)

    def start_rendezvous(self) -> None:
        """It is back, with the same key and no memory."""
        self.lab.start_rendezvous(self.server)


def scene(folder: Path, program: Sequence[str] = QUICK) -> Scene:
    """A rendezvous, and members behind NATs that have probed and are planned, each with two of the
    demo model's six blocks; end it by closing its lab."""
    lab = Lab(folder, delay=_DELAY)
    try:
        server = lab.rendezvous()
        rendezvous = lab.start_servers(server)
        routers = {
            name: lab.router(f"home-{name}", nat) for name, nat in zip(NAMES, _NATS, strict=True)
        }
        hosts = {name: lab.host(name, router) for name, router in routers.items()}
        probes = probe(lab, hosts, rendezvous, program)
        plan = write_plan(lab, probes, counts=(2, 2, 2))
    except BaseException:
        lab.close()
        raise
    return Scene(lab, server, routers, hosts, tuple(member.name for member in plan.ring))


@dataclass
class Generation:
    """The tokens of one request, and when they came."""

    tokens: list[int] = field(default_factory=list)
    longest: float = 0.0
    """Seconds between two tokens, at most."""


class Ring:
    """The members as `kafila serve` processes; requests are made on the head's own machine."""

    def __init__(self, scene: Scene) -> None:
        self._scene = scene
        for name, host in scene.hosts.items():
            words = (*KAFILA, "serve", PLAN, "--home", name, "--model", "demo")
            scene.lab.start(host, name, *words, "--port", "0")
        ready = scene.lab.processes.logged(scene.ring[0], "answers on http://", _READY_SECONDS)
        self._port = int(ready.partition("127.0.0.1:")[2].partition("/")[0])

    def generate(self, meanwhile: Callable[[int], None] = lambda count: None) -> Generation:
        """Greedy tokens after a fixed prompt; `meanwhile(count)` is called after each."""
        wanted = {
            "prompt": _PROMPT,
            "max_tokens": _TOKENS,
            "temperature": 0,
            "ignore_eos": True,
            "return_token_ids": True,
            "stream": True,
        }
        came, last = Generation(), time.monotonic()
        for event in self._events("/v1/completions", wanted):
            if "error" in event:
                raise NetworkProblem(f"the ring failed: {event['error']['message']}")
            new = [token for each in event["choices"] for token in each.get("token_ids", ())]
            now = time.monotonic()
            came.longest = max(came.longest, now - last)
            for token in new:
                came.tokens.append(token)
                meanwhile(len(came.tokens))
            last = time.monotonic()  # what was done takes time too
        return came

    def edges(self) -> dict[str, str]:
        """The head's edges by /health: neighbour -> path."""
        connection = self._connect()
        try:
            connection.request("GET", "/health")
            health = json.load(connection.getresponse())
        finally:
            connection.close()
        return {edge["to"]: edge["path"] for edge in health["edges"]}

    def all_direct(self, seconds: float) -> float | None:
        """How long until the head's edges are direct; None if longer than `seconds`."""
        began = time.monotonic()
        while time.monotonic() < began + seconds:
            if set(self.edges().values()) == {"direct"}:
                return time.monotonic() - began
            self._scene.lab.processes.check()
            time.sleep(0.25)
        return None

    def _connect(self) -> http.client.HTTPConnection:
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=_ANSWER_SECONDS)
        with self._scene.hosts[self._scene.ring[0]].entered():
            connection.connect()
        return connection

    def _events(self, path: str, body: dict[str, Any]) -> Iterator[dict[str, Any]]:
        connection = self._connect()
        try:
            headers = {"content-type": "application/json"}
            connection.request("POST", path, json.dumps(body), headers)
            for line in connection.getresponse():
                if line.startswith(b"data: {"):
                    yield json.loads(line[6:])
        finally:
            connection.close()


@dataclass
class Survival:
    """How one generation went."""

    what: str
    same: bool
    """Token for token what came undisturbed."""
    longest: float
    after: str
    """The head's edges at its end, and how they went on."""


def generations(folder: Path) -> Iterator[Survival]:
    """One ring, one generation under each disturbance; NetworkProblem if the ring ends."""
    place = scene(folder, KAFILA)
    with place.lab:
        place.black_hole(*NAMES)
        ring = Ring(place)
        relayed = ring.generate()
        before = _paths(ring)
        place.black_hole(*NAMES, gone=False)
        returned = _returned(ring)
        undisturbed = ring.generate()
        yield Survival("nothing", True, undisturbed.longest, _paths(ring))
        same = relayed.tokens == undisturbed.tokens
        yield Survival("relay only all along", same, relayed.longest, f"{before}; {returned}")
        for each in _disturbances(place):
            each.before()
            came = ring.generate(each.meanwhile)
            after = _paths(ring)
            place.black_hole(*NAMES, gone=False)
            place.lab.everywhere(loss=0.0)
            same = came.tokens == undisturbed.tokens
            yield Survival(each.what, same, came.longest, f"{after}; {_returned(ring)}")


@dataclass
class _Disturbance:
    """What happens, after how many tokens of a request, or before it."""

    what: str
    acts: dict[int, Callable[[], None]] = field(default_factory=dict)
    before: Callable[[], None] = lambda: None

    def meanwhile(self, count: int) -> None:
        """So many tokens have come."""
        if count in self.acts:
            self.acts[count]()


def _disturbances(place: Scene) -> Iterator[_Disturbance]:
    """One after another; each finds the ring as the one before has left it."""
    bert, cleo = place.routers["bert"], place.routers["cleo"]
    head, after = place.ring[:2]

    def idle() -> None:
        """Mappings live for two seconds, and nobody asks for anything for six."""
        for router in (bert, cleo):
            router.become(replace(router.nat, lifetime=2))
        time.sleep(6.0)

    yield _Disturbance("5 % loss everywhere", before=lambda: place.lab.everywhere(loss=0.05))
    hole = {_AFTER: lambda: place.black_hole(head, after)}
    yield _Disturbance(f"direct path between {head} and {after} black-holed", hole)
    yield _Disturbance("NAT of cleo rebooted", {_AFTER: cleo.reboot})
    yield _Disturbance("NAT of bert rebooted", {_AFTER: bert.reboot})
    yield _Disturbance("mappings of bert and cleo expired while idle", before=idle)
    for router in (bert, cleo):
        router.become(replace(router.nat, lifetime=nats.APDF.lifetime))
    again = dict.fromkeys(range(_AFTER, _TOKENS, _AFTER), cleo.expire)
    yield _Disturbance("mappings of cleo expire again and again (absolute lifetime)", again)
    restart = {_AFTER: place.kill_rendezvous, 3 * _AFTER: place.start_rendezvous}
    yield _Disturbance("rendezvous killed and restarted", restart)
    # Only who has registered again can fall back on the relay of the new one.
    yield _Disturbance(f"direct path between {head} and {after} black-holed after that", hole)


def _paths(ring: Ring) -> str:
    return ", ".join(f"{to} {path}" for to, path in ring.edges().items())


def _returned(ring: Ring) -> str:
    seconds = ring.all_direct(_DIRECT_SECONDS)
    return "not direct again" if seconds is None else f"all direct again after {seconds:.1f} s"


def table(survivals: Sequence[Survival]) -> str:
    """The runs for docs/nat.md."""
    lines = [
        "| what happened | tokens | longest pause | the head's edges after it |",
        "|---|---|---|---|",
    ]
    for each in survivals:
        tokens = "the same" if each.same else "OTHERS"
        lines.append(f"| {each.what} | {tokens} | {each.longest * 1000:.0f} ms | {each.after} |")
    return "\n".join(lines)


def tell(survival: Survival) -> None:
    """Say on stderr how one went."""
    same = "the same tokens" if survival.same else "OTHER TOKENS"
    pause = f"longest pause {survival.longest:.2f} s"
    print(f"{survival.what}: {same}, {pause}, {survival.after}", file=sys.stderr, flush=True)
