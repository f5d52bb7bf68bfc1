"""Bad input at the command line: one clear line, the documented exit code, no leftovers."""

import json
import os
import shutil
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kafila.cli import main
from tools.loopback import Ring

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Run `kafila WORDS` in an empty folder: exit code, stdout, stderr."""
    monkeypatch.chdir(tmp_path)

    def call(*words: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["kafila", *words])
        with pytest.raises(SystemExit) as ended:
            main()
        out, err = capsys.readouterr()
        assert "Traceback" not in err
        code = ended.value.code
        assert isinstance(code, int)
        return code, out, err

    return call


@pytest.fixture(scope="module")
def plan(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A good plan of the demo model for two members."""
    folder = tmp_path_factory.mktemp("plan")
    ring = Ring(folder, "demo", (3, 3))
    ring.write_plan(None)
    return (folder / "plan.yaml").read_text()


def one_line(err: str) -> str:
    """The error, which must be the only line."""
    lines = err.strip().splitlines()
    assert len(lines) == 1, err
    return lines[0]


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("blocks: 3-5", "blocks: 4-5", "block 3"),
        ("blocks: 3-5", "blocks: 2-5", "block 2"),
        ("groups: ", "gruops: ", "did you mean 'groups'"),
        ("concurrency: 4", "concurrency: four", "whole number"),
        ("format: 1", "format: 2", "format"),
        ("concurrency: 4", "concurrency: 400000000", "256"),
        ("blocks: 6", "blocks: 999999999", "1024"),
        ("overhead_us: 50", "overhead_us: 9223372036854775807", "9007199254740992"),
        ("rendezvous: null", "rendezvous: 127.0.0.1:99999", "port"),
    ],
)
def test_a_faulty_plan(run: Run, tmp_path: Path, plan: str, old: str, new: str, words: str) -> None:
    assert old in plan
    (tmp_path / "plan.yaml").write_text(plan.replace(old, new, 1))
    for verb in ("check", "serve"):
        code, out, err = run(verb, "plan.yaml", *(("--home", "h") if verb == "serve" else ()))
        assert code == 4
        assert not out
        assert words in one_line(err)
        assert "plan.yaml:" in err


def test_a_plan_for_other_members(run: Run, tmp_path: Path, plan: str) -> None:
    (tmp_path / "plan.yaml").write_text(plan)
    code, _, err = run("serve", "plan.yaml", "--home", "stranger")
    assert code == 7
    assert "anna" in one_line(err)


def _truncate(folder: Path) -> None:
    file = folder / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-100])


def _lose(folder: Path) -> None:
    (folder / "model.safetensors").unlink()


def _other(folder: Path) -> None:
    config = json.loads((folder / "config.json").read_text())
    config |= {"architectures": ["LlamaForCausalLM"], "model_type": "llama"}
    (folder / "config.json").write_text(json.dumps(config))


def _reshape(folder: Path) -> None:
    file = folder / "model.safetensors"
    raw = file.read_bytes()
    (length,) = struct.unpack("<Q", raw[:8])
    header = json.loads(raw[8 : 8 + length])
    header["model.norm.weight"]["shape"] = [1, *header["model.norm.weight"]["shape"]]
    text = json.dumps(header).encode()
    file.write_bytes(struct.pack("<Q", len(text)) + text + raw[8 + length :])


@pytest.mark.parametrize(
    ("break_it", "words"),
    [
        (_truncate, "truncated"),
        (_lose, "model.safetensors"),
        (_other, "llama"),
        (_reshape, "model.norm.weight"),
    ],
)
def test_a_faulty_checkpoint(
    run: Run, tmp_path: Path, break_it: Callable[[Path], None], words: str
) -> None:
    shutil.copytree(Path(__file__).parents[2] / "kafila" / "demo_model", tmp_path / "model")
    break_it(tmp_path / "model")
    code, out, err = run("probe", "--model", "model", "--home", "h")
    assert code == 5
    assert not out
    assert words in one_line(err).lower()
    assert not (tmp_path / "probes.yaml").exists()


@pytest.fixture
def taken() -> Iterator[str]:
    """A UDP and TCP port of 127.0.0.1 in use."""
    with socket.socket(type=socket.SOCK_DGRAM) as udp, socket.socket() as tcp:
        udp.bind(("127.0.0.1", 0))
        port = udp.getsockname()[1]
        tcp.bind(("127.0.0.1", port))
        tcp.listen()
        yield str(port)


def test_ports_in_use(run: Run, tmp_path: Path, taken: str) -> None:
    code, out, err = run("rendezvous", "--listen", f"127.0.0.1:{taken}", "--home", "r")
    assert (code, out) == (6, "")
    assert taken in one_line(err)
    alone = Ring(tmp_path, "demo", (6,))
    alone.write_plan(None)
    code, _, err = run("serve", "plan.yaml", "--home", "anna", "--port", taken)
    assert code == 6
    assert taken in one_line(err)


def test_an_unreachable_rendezvous(run: Run, tmp_path: Path, taken: str) -> None:
    """The port is in use by something that never answers."""
    where = f"127.0.0.1:{taken}"
    code, out, err = run("probe", "--join", f"7-amber-falcon-reed@{where}", "--home", "h")
    assert (code, out) == (6, "")
    assert where in one_line(err)
    assert not (tmp_path / "probes.yaml").exists()


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (("probe", "--join", "seven-amber"), "7-amber-falcon-reed"),
        (("probe", "--host", "--members", "3"), "--rendezvous"),
        (("probe", "--dtype", "int8"), "--model"),
        (("probe", "--host", "--join", "7-amber-falcon-reed"), "one of them"),
        (("probe", "--name", "../evil", "--model", "demo"), "--name"),
        (("plan", "--context", "0"), "0"),
        (("serve",), "PLAN"),
        (("probe", "--join", ""), "empty"),
        (("probe", "--join=", "--name=anna"), "empty"),
    ],
)
def test_wrong_words(run: Run, words: tuple[str, ...], hint: str) -> None:
    extra = ("--home", "h") if words[0] == "probe" else ()
    code, out, err = run(*words, *extra)
    assert (code, out) == (2, "")
    assert hint in err


def test_members_of_one_machine_share_its_room(run: Run, tmp_path: Path) -> None:
    """Three members that each believe to have all of a machine that holds barely one."""
    ring = Ring(tmp_path, "demo", (2, 2, 2))
    ring.write_reports(machine="one", machine_bytes=600_000_000, room_bytes=500_000_000)
    code, out, err = run("plan", "--context", "512")
    assert (code, out) == (3, "")
    for name in ring.names:
        assert name in err
    assert "room" in err


def test_output_that_cannot_be_written(run: Run, tmp_path: Path) -> None:
    """It is said before anything is measured, so no session is lost to it."""
    (tmp_path / "folder").mkdir()
    for target in ("missing/probes.yaml", "folder"):
        code, out, err = run("probe", "--model", "demo", "--home", "h", "-o", target)
        assert (code, out) == (4, "")
        assert target in one_line(err)


def test_a_full_disk_behind_stdout(tmp_path: Path) -> None:
    if not Path("/dev/full").exists():
        pytest.skip("this system has no /dev/full")
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "kafila", "--help"],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
        )
    assert done.returncode == 4
    assert "cannot be written" in one_line(done.stderr)


@pytest.mark.parametrize(
    ("words", "code"), [(["check", "plan.yaml"], 4), (["nosuch"], 2), (["--version"], 0)]
)
@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_full_disk_behind_stderr(
    tmp_path: Path, words: list[str], code: int, unbuffered: str
) -> None:
    """What cannot be said changes nothing."""
    if not Path("/dev/full").exists():
        pytest.skip("this system has no /dev/full")
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "kafila", *words],
            cwd=tmp_path,
            stdout=subprocess.DEVNULL,
            stderr=full,
            env={**os.environ, "PYTHONUNBUFFERED": unbuffered},  # empty: as users have it
        )
    assert done.returncode == code


def test_nobody_reads_the_output(tmp_path: Path) -> None:
    """As with `| head -1`."""
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run(
        [sys.executable, "-m", "kafila", "--help"],
        stdout=write,
        stderr=subprocess.PIPE,
        text=True,
    )
    os.close(write)
    assert (done.returncode, done.stderr) == (141, "")


def test_the_largest_numbers_derive(run: Run, tmp_path: Path, plan: str) -> None:
    """What a file may say never ends in a fault of ours, whatever follows from it."""
    most = str((1 << 53) - 1)
    (tmp_path / "plan.yaml").write_text(plan.replace("overhead_us: 50", f"overhead_us: {most}"))
    code, _, _ = run("check", "plan.yaml")
    assert code == 0


def test_two_members_of_one_name(run: Run, tmp_path: Path) -> None:
    ring = Ring(tmp_path, "demo", (3, 3))
    ring.write_reports()
    text = (tmp_path / "probes.yaml").read_text()
    (tmp_path / "probes.yaml").write_text(text.replace("name: bert", "name: anna"))
    code, out, err = run("plan")
    assert (code, out) == (4, "")
    assert "anna" in one_line(err)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_probe_that_is_interrupted(tmp_path: Path, number: signal.Signals) -> None:
    """While it compiles, which nothing can break off."""
    process = subprocess.Popen(
        [sys.executable, "-m", "kafila", "probe", "--model", "demo", "--home", "h"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    deadline = time.monotonic() + 60
    while not list((tmp_path / "h").glob("identity*")):  # the last step before it measures
        assert time.monotonic() < deadline
        time.sleep(0.05)
    time.sleep(1.5)
    process.send_signal(number)
    out, err = process.communicate(timeout=20)
    assert (process.returncode, out) == (130, "")
    assert "interrupted" in err
    assert "Traceback" not in err
    assert not (tmp_path / "probes.yaml").exists()


def test_ctrl_c_ends_with_130(tmp_path: Path) -> None:
    words = ["-m", "kafila", "rendezvous", "--listen", "127.0.0.1:0", "--home", "r"]
    process = subprocess.Popen(
        [sys.executable, *words],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    process.stdout.readline()
    process.send_signal(2)
    _, err = process.communicate(timeout=20)
    assert process.returncode == 130
    assert "Traceback" not in err
