"""`kafila rendezvous` as a process."""

import re
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from kafila.errors import IdentityProblem
from kafila.rendezvous.client import TOKEN_VARIABLE, RendezvousClient
from tests.rendezvous.lan import LOOPBACK, Lan

LINE = re.compile(r"rendezvous 127\.0\.0\.1:(\d+) key ([0-9a-f]{64})\n")


@contextmanager
def process(
    home: Path, listen: str = f"{LOOPBACK}:0", *more: str
) -> Iterator[subprocess.Popen[str]]:
    command = [
        sys.executable,
        "-m",
        "kafila",
        "rendezvous",
        "--listen",
        listen,
        "--home",
        str(home),
        *more,
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
        assert "is over after 0 s: done" in lines[1]
        with process(tmp_path / "home") as running:
            assert listening(running)[1] == key


async def test_a_port_in_use_is_one_line_and_status_6(tmp_path: Path) -> None:
    async with Lan(tmp_path) as lan:
        with process(tmp_path / "home", f"{LOOPBACK}:{lan.rendezvous.address[1]}") as running:
            out, err = running.communicate(timeout=20)
    assert (running.returncode, out) == (6, "")
    assert len(err.splitlines()) == 1
    assert "in use" in err


def test_a_wrong_address_is_a_usage_error(tmp_path: Path) -> None:
    with process(tmp_path, "here:there") as running:
        _, err = running.communicate(timeout=20)
    assert running.returncode == 2
    assert len(err.splitlines()) == 1
    assert "is not an address" in err


async def test_a_private_one_serves_its_list_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Lan(tmp_path) as lan:
        allow = tmp_path / "allow"
        allow.write_text(f"{lan.identity('anna').key.hex()}  # anna\ntoken: 0123456789abcdef\n")
        with process(tmp_path / "home", f"{LOOPBACK}:0", "--allow", str(allow)) as running:
            where = LOOPBACK, listening(running)[0]
            anna = await RendezvousClient.connect(await lan.node("anna"), where)
            await anna.open_session(2)
            bert = await RendezvousClient.connect(await lan.node("bert"), where)
            with pytest.raises(IdentityProblem, match="private"):
                await bert.join(1)
            monkeypatch.setenv(TOKEN_VARIABLE, "0123456789abcdef")
            bert = await RendezvousClient.connect(await lan.node("bert"), where)
            await bert.join(1)
            monkeypatch.setenv(TOKEN_VARIABLE, "0123456789abcdeX")
            with pytest.raises(IdentityProblem, match="KAFILA_TOKEN") as refused:
                await RendezvousClient.connect(await lan.node("cleo"), where)
            assert refused.value.exit_code == 7
            running.send_signal(signal.SIGTERM)
            _, err = running.communicate(timeout=20)
    assert "private: serves 1 key and 1 token" in err
    assert "0123456789abcde" not in err


def test_metrics_are_there_where_they_are_asked_for(tmp_path: Path) -> None:
    with process(tmp_path, f"{LOOPBACK}:0", "--metrics", f"{LOOPBACK}:0") as running:
        listening(running)
        assert running.stderr is not None
        line = running.stderr.readline()
        url = line.split()[-1]
        assert url.endswith("/metrics")
        with urllib.request.urlopen(url, timeout=20) as answer:
            text = answer.read().decode()
        running.send_signal(signal.SIGTERM)
        _, err = running.communicate(timeout=20)
    assert 'kafila_clients{role="host"} 0.0' in text
    assert "kafila_relay_bytes_total 0.0" in text
    assert running.returncode == 0
    assert err == ""


@pytest.mark.parametrize(
    ("more", "status", "words"),
    [
        (["--metrics", "here:there"], 2, "is not an address"),
        (["--metrics", "192.0.2.1:9"], 6, "cannot serve metrics"),
        (["--allow", "nowhere"], 4, "cannot read nowhere"),
        (["--relay-rate", "0"], 2, "--relay-rate"),
        (["--relay-budget", "-1"], 2, "--relay-budget"),
        (["--relay-budget", "inf"], 2, "--relay-budget"),
        (["--relay-budget", "1e300"], 2, "--relay-budget"),
        (["--relay-rate", "nan"], 2, "--relay-rate"),
        (["--listen", f"{LOOPBACK}:65535"], 2, "--second-port"),
        (["--stun", "here:there"], 2, "is not an address"),
    ],
)
def test_a_wrong_option_is_said_in_its_own_words(
    tmp_path: Path, more: list[str], status: int, words: str
) -> None:
    with process(tmp_path, f"{LOOPBACK}:0", *more) as running:
        out, err = running.communicate(timeout=20)
    assert (running.returncode, out) == (status, "")
    assert words in err
    assert "Traceback" not in err
