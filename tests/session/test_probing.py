"""How probing ends when it is stopped: at once, and with words to the others."""

import asyncio
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from kafila.errors import NetworkProblem, UsageProblem
from kafila.manifest import Manifest
from kafila.probe.report import Report
from kafila.session import probing
from kafila.session.code import Code, parse_code
from kafila.session.events import CodeReady, Event, HostConfirmed
from kafila.session.member import join_session
from kafila.session.view import report_line
from tests.rendezvous.lan import Lan
from tests.session.samples import MANIFEST, report
from tests.session.test_session import measure_for_ever

HEAD = """
import os, sys, threading, time
from pathlib import Path
from kafila.net.identity import Identity
from kafila.session import probing
from tests.session.samples import report

who = Identity.load_or_create(Path(sys.argv[1]))

def quick(manifest):
    return report("hanna", who.key, who.exchange_key)

def slow(manifest):
    print("measuring", flush=True)
    time.sleep(600)

def say(event):
    print(getattr(event, "code", event), flush=True)

try:
    {call}
except KeyboardInterrupt:
    sys.stdout.flush()
    print("left" if any(t.daemon for t in threading.enumerate()) else "done", flush=True)
    os._exit(130)
"""
MEET = (
    "probing.run(probing.host({measure}, None, identity=who, where=probing.Meeting("
    "(sys.argv[2], int(sys.argv[3])), ('127.0.0.1', 0)), members=2, on_event=say))"
)
STOPS = pytest.mark.parametrize("stop", [signal.SIGTERM, signal.SIGINT])


def start(call: str, *words: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", HEAD.replace("{call}", call), *words]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def line(running: subprocess.Popen[str]) -> str:
    assert running.stdout is not None
    return running.stdout.readline().strip()


def ended(running: subprocess.Popen[str], stop: signal.Signals) -> tuple[int, str, str]:
    running.send_signal(stop)
    out, err = running.communicate(timeout=60)
    return running.returncode, out.strip(), err


@STOPS
def test_measuring_alone_is_not_waited_for(tmp_path: Path, stop: signal.Signals) -> None:
    with start("probing.alone(slow, None)", str(tmp_path)) as running:
        assert line(running) == "measuring"
        assert ended(running, stop) == (130, "left", "")


@STOPS
async def test_a_host_that_measures_is_not_waited_for(tmp_path: Path, stop: signal.Signals) -> None:
    async with Lan(tmp_path) as lan:
        host, port = lan.rendezvous.address
        call = MEET.replace("{measure}", "slow")
        running = start(call, str(tmp_path / "hanna"), host, str(port))
        with running:
            assert await asyncio.to_thread(line, running) == "measuring"
            assert await asyncio.to_thread(ended, running, stop) == (130, "left", "")


@STOPS
async def test_a_stopped_host_tells_its_joiners(tmp_path: Path, stop: signal.Signals) -> None:
    async with Lan(tmp_path) as lan:
        host, port = lan.rendezvous.address
        call = MEET.replace("{measure}", "quick")
        confirmed = asyncio.Event()

        def on_event(event: Event) -> None:
            if isinstance(event, HostConfirmed):
                confirmed.set()

        with start(call, str(tmp_path / "hanna"), host, str(port)) as running:
            code = parse_code(await asyncio.to_thread(line, running))
            joining = asyncio.create_task(
                join_session(
                    await lan.client("anna"),
                    lan.identity("anna"),
                    code,
                    "anna",
                    measure_for_ever,
                    on_event,
                )
            )
            await confirmed.wait()
            status, out, err = await asyncio.to_thread(ended, running, stop)
            with pytest.raises(NetworkProblem, match="its host was stopped"):
                await joining
        assert (status, err) == (130, "")
        assert out.splitlines() == ["anna joined (2 of 2)", "done"]


def test_a_failed_measurement_is_its_own_error() -> None:
    def broken(manifest: Manifest | None) -> Report:
        raise UsageProblem("another probe has been measuring")

    with pytest.raises(UsageProblem, match="another probe"):
        probing.alone(broken, None)
    assert not any(thread.daemon for thread in threading.enumerate())


def test_a_report_of_ones_own() -> None:
    made = report("anna", b"k" * 32)
    assert probing.alone(lambda manifest: made, MANIFEST).reports == (made,)


async def test_a_session_classifies_its_members(tmp_path: Path) -> None:
    """Host and joiners help each other; each is seen at an address of its own."""
    async with Lan(tmp_path) as lan:
        ready: asyncio.Future[Code] = asyncio.get_running_loop().create_future()

        def on_event(event: Event) -> None:
            if isinstance(event, CodeReady):
                ready.set_result(parse_code(event.code))

        def where(host: str) -> probing.Meeting:
            return probing.Meeting(lan.rendezvous.address, (host, 0))

        def measured(name: str) -> probing.Measure:
            who = lan.identity(name)
            return lambda manifest: report(name, who.key, who.exchange_key)

        hosting = asyncio.create_task(
            probing.host(
                measured("hanna"),
                MANIFEST,
                identity=lan.identity("hanna"),
                where=where("127.0.0.2"),
                members=3,
                on_event=on_event,
            )
        )
        code = await ready
        await asyncio.gather(
            *(
                probing.join(
                    measured(name),
                    identity=lan.identity(name),
                    where=where(f"127.0.0.{number}"),
                    code=code,
                    name=name,
                    on_event=on_event,
                )
                for number, name in enumerate(("anna", "bert"), 3)
            )
        )
        reports = (await hosting).reports
        for number, made in zip((2, 3, 4), sorted(reports, key=host_first), strict=True):
            assert made.nat is not None
            assert made.nat.public == f"127.0.0.{number}"
            assert made.nat.mapping == made.nat.filtering == "endpoint-independent"
            assert made.rtt_us is not None
            assert ", permissive (endpoint-independent mapping, " in report_line(made)


def host_first(made: Report) -> tuple[bool, str]:
    return made.name != "hanna", made.name


async def test_a_machine_alone_is_timed_and_classified_at_a_rendezvous(tmp_path: Path) -> None:
    async with Lan(tmp_path) as lan:
        made = report("anna", b"k" * 32).model_copy(update={"rtt_us": None})
        probes = await probing.at(
            lambda manifest: made,
            MANIFEST,
            identity=lan.identity("anna"),
            where=probing.Meeting(lan.rendezvous.address, ("127.0.0.1", 0)),
        )
        assert probes.session is not None
        assert probes.session.rendezvous_key == lan.rendezvous.key.hex()
        (found,) = probes.reports
        assert found.rtt_us is not None
        assert found.nat is not None
        assert (found.nat.mapping, found.nat.filtering) == (
            "endpoint-independent",
            "address-dependent",
        )
