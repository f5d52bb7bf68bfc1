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
from kafila.session.code import parse_code
from kafila.session.events import Event, HostConfirmed
from kafila.session.member import join_session
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
    "probing.run(probing.host({measure}, None, identity=who, rendezvous=(sys.argv[2], "
    "int(sys.argv[3])), listen=('127.0.0.1', 0), members=2, on_event=say))"
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
