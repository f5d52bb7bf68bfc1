"""`kafila rendezvous` as a process."""

import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from kafila.rendezvous.client import RendezvousClient
from tests.rendezvous.lan import LOOPBACK, Lan

LINE = re.compile(r"rendezvous 127\.0\.0\.1:(\d+) key ([0-9a-f]{64})\n")


@contextmanager
def process(home: Path, listen: str = f"{LOOPBACK}:0") -> Iterator[subprocess.Popen[str]]:
    command = [
        sys.executable,
        "-m",
        "kafila",
        "rendezvous",
        "--listen",
        listen,
        "--home",
        str(home),
    ]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as running:
        try:
            yield running
        finally:
            running.kill()


def listening(running: subprocess.Popen[str]) -> tuple[int, bytes]:
    """Port and key from the line on stdout."""
    assert running.stdout is not None
    line = LINE.fullmatch(running.stdout.readline())
    assert line is not None
    return int(line[1]), bytes.fromhex(line[2])


@pytest.mark.parametrize(("number", "status"), [(signal.SIGTERM, 0), (signal.SIGINT, 130)])
def test_it_says_where_it_is_and_ends_cleanly(
    tmp_path: Path, number: signal.Signals, status: int
) -> None:
    with process(tmp_path) as running:
        listening(running)
        running.send_signal(number)
        out, err = running.communicate(timeout=20)
    assert running.returncode == status
    assert out == ""
    assert "Traceback" not in err


async def test_it_serves_keeps_its_key_and_logs_a_line_per_session(tmp_path: Path) -> None:
    async with Lan(tmp_path) as lan:
        with process(tmp_path / "home") as running:
            port, key = listening(running)
            client = await RendezvousClient.connect(await lan.node("host"), (LOOPBACK, port), key)
            opened = await client.open_session(3)
            await client.end("done")
            running.send_signal(signal.SIGTERM)
            _, err = running.communicate(timeout=20)
        lines = err.splitlines()
        assert re.fullmatch(
            rf"\d\d:\d\d:\d\d session {opened.number} opened by [0-9a-f]{{8}} for 3 members",
            lines[0],
        )
        assert lines[1].endswith("is over: done")
        with process(tmp_path / "home") as running:
            assert listening(running)[1] == key


async def test_a_port_in_use_is_one_line_and_status_6(tmp_path: Path) -> None:
    async with Lan(tmp_path) as lan:
        with process(tmp_path / "home", f"{LOOPBACK}:{lan.rendezvous.address[1]}") as running:
            out, err = running.communicate(timeout=20)
    assert (running.returncode, out) == (6, "")
    assert len(err.splitlines()) == 1
    assert "in use" in err


@pytest.mark.parametrize(
    ("listen", "words"),
    [("here:there", "is not an address"), ("[::1]:0", "IPv6 is not supported yet")],
)
def test_a_wrong_address_is_a_usage_error(tmp_path: Path, listen: str, words: str) -> None:
    with process(tmp_path, listen) as running:
        _, err = running.communicate(timeout=20)
    assert running.returncode == 2
    assert len(err.splitlines()) == 1
    assert words in err
