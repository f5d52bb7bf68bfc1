"""What is kept between starts, whatever happens to it: converted weights and compiled code."""

import dataclasses
import errno
import fcntl
import os
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

from stages import cache, kept
from stages import compile as compiling
from stages.checkpoint import Checkpoint, CheckpointError, Tensor
from stages.compile import abstract, compiled
from stages.functions import Functions
from stages.mesh import Split
from stages.weights import Loader
from tools.make_checkpoint import SIZES, write_checkpoint

CONFIG = dataclasses.replace(SIZES["tiny"], blocks=3, kept="int8")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(kept, "FOLDER", tmp_path / "weights")
    return tmp_path / "weights"


@pytest.fixture
def checkpoint(tmp_path: Path) -> Checkpoint:
    plain = dataclasses.replace(CONFIG, kept=None)
    return Checkpoint.open(write_checkpoint(tmp_path / "model", plain))


def load(checkpoint: Checkpoint, block: int = 0) -> list[Any]:
    """The leaves of a block in int8."""
    told: list[int] = []
    names = Functions(CONFIG, head=False).block.names
    tensors = checkpoint.block_tensors(block)
    leaves = Loader(Split.of(CONFIG), told.append).load_all(names, tensors, CONFIG)
    assert sum(told) == sum(t.nbytes for parts in tensors.values() for t in parts.values())
    return leaves


def same(a: list[Any], b: list[Any]) -> bool:
    return [np.asarray(x).tobytes() for x in a] == [np.asarray(x).tobytes() for x in b]


def files(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.safetensors"))


def unconvertible(monkeypatch: pytest.MonkeyPatch) -> None:
    def convert(*_: Any) -> Any:
        raise AssertionError("converted again")

    monkeypatch.setattr("stages.weights.convert", convert)


def test_a_second_start_converts_nothing(
    checkpoint: Checkpoint, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = load(checkpoint)
    assert [leaf.dtype for leaf in first].count(jnp.int8) == 7
    load(checkpoint, 1)
    assert len(files(folder)) == 2, "one a block"
    unconvertible(monkeypatch)
    assert same(load(checkpoint), first)


def test_what_is_as_it_should_be_is_not_kept(checkpoint: Checkpoint, folder: Path) -> None:
    """The head beside int8 blocks stays as it is on disk."""
    head = Functions(CONFIG, head=True).head
    assert head is not None
    tensors = checkpoint.head_tensors()
    Loader(Split.of(CONFIG), lambda size: None).load_all(head.names, tensors, CONFIG)
    assert files(folder) == []


def test_kept_arrays_are_used_where_they_lie(folder: Path) -> None:
    arrays = {"a": np.arange(128, dtype=np.int8), "b": np.ones((3, 16), np.float32)}
    assert kept.keep("place-identity", arrays)
    found = kept.find("place-identity", {"a": ((128,), "int8"), "b": ((3, 16), "float32")})
    assert found is not None
    for name, array in arrays.items():
        assert found[name].start % 64 == 0
        loaded = Loader(Split.of(CONFIG), lambda size: None).load(found[name])
        assert same([loaded], [array])


@pytest.mark.parametrize(
    "other", [{"a": ((64, 2), "int8")}, {"a": ((128,), "float32")}, {"b": ((128,), "int8")}, {}]
)
def test_what_is_kept_otherwise_is_not_found(folder: Path, other: Any) -> None:
    assert kept.keep("place-identity", {"a": np.arange(128, dtype=np.int8)})
    assert kept.find("place-identity", other) is None


def test_another_file_in_its_place_is_converted_and_replaces_the_old(
    checkpoint: Checkpoint, folder: Path
) -> None:
    first, before = load(checkpoint), files(folder)
    (file,) = checkpoint.path.glob("*.safetensors")
    status = file.stat()
    whole = bytearray(file.read_bytes())
    start = checkpoint.block_tensors(0)["q"]["weight"].start
    whole[start : start + 1000] = whole[start + 2000 : start + 3000]
    file.write_bytes(whole)
    os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns))  # as a copying tool may do
    assert not same(load(checkpoint), first)
    assert len(files(folder)) == 1
    assert files(folder) != before


def test_without_room_it_runs_and_says_so(
    checkpoint: Checkpoint,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    first = load(checkpoint)
    files(folder)[0].unlink()
    monkeypatch.setattr("shutil.disk_usage", lambda path: SimpleNamespace(free=10))
    assert same(load(checkpoint), first)
    assert "converted weights are not kept" in caplog.text
    assert files(folder) == []


def test_a_folder_that_cannot_be_written(
    checkpoint: Checkpoint, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder.write_text("a file in its place")
    load(checkpoint)
    assert "converted weights are not kept" in caplog.text


@pytest.mark.parametrize("content", [b"", b"\x10\0\0\0\0\0\0\0{}", bytes(500)])
def test_a_damaged_file_is_made_anew(checkpoint: Checkpoint, folder: Path, content: bytes) -> None:
    first = load(checkpoint)
    (file,) = files(folder)
    file.unlink()  # the first start still maps it
    file.write_bytes(content)
    assert same(load(checkpoint), first)
    assert file.stat().st_size > 1000


def test_what_nobody_uses_and_what_was_left_half_written_goes(folder: Path) -> None:
    array = {"a": np.ones(4, np.float32)}
    for name in ("old-1", "new-1"):
        assert kept.keep(name, array)
    dead = folder / "dead-1.77.part"
    dead.write_bytes(b"half")
    long_ago = time.time() - 2 * kept.UNUSED_SECONDS
    for file in (folder / "old-1.safetensors", dead):
        os.utime(file, (long_ago, long_ago))
    kept.tidy()
    assert [file.stem for file in files(folder)] == ["new-1"]
    assert not dead.exists()


def test_a_start_that_is_killed_while_keeping_leaves_nothing_for_long(folder: Path) -> None:
    script = (
        "import os, sys, time, numpy as np\n"
        "from pathlib import Path\n"
        "from stages import kept\n"
        "kept.FOLDER = Path(sys.argv[1])\n"
        "os.fsync = lambda handle: print('written', flush=True) or time.sleep(60)\n"
        "kept.keep('here-1', {'a': np.ones(1000, np.float32)})\n"
    )
    words = [sys.executable, "-c", script, str(folder)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as writing:
        assert writing.stdout is not None
        assert writing.stdout.readline() == "written\n"
        (part,) = folder.iterdir()
        os.utime(part, (0, 0))
        kept.tidy()
        assert [file.suffix for file in folder.iterdir()] == [".part"], "it is being written"
        writing.kill()
    kept.tidy()
    assert list(folder.iterdir()) == []


def test_what_is_about_to_be_written_is_not_tidied(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By another process, between the opening and the lock."""
    lock = fcntl.flock
    tidied: list[Any] = []

    def flock(file: Any, how: int) -> None:
        if not tidied:
            tidied.append(file)
            kept.tidy()
        lock(file, how)

    monkeypatch.setattr("fcntl.flock", flock)
    assert kept.keep("here-1", {"a": np.ones(1000, np.float32)})
    assert tidied
    assert [file.stem for file in files(folder)] == ["here-1"]


def test_no_folder_to_tidy(folder: Path) -> None:
    kept.tidy()
    assert not folder.exists()


def test_turns_where_files_cannot_be_locked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def flock(*_: Any) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr("fcntl.flock", flock)
    with cache.turn(tmp_path / "cache"):
        pass


def huge() -> int:
    """Bytes of this process that lie in huge pages."""
    lines = Path("/proc/self/smaps_rollup").read_text().splitlines()
    return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("AnonHugePages"))


def test_what_is_read_lies_in_huge_pages(tmp_path: Path) -> None:
    """Where a system has them for those who ask; memory that is shared has none."""
    setting = Path("/sys/kernel/mm/transparent_hugepage/enabled")
    if not setting.exists() or "[never]" in setting.read_text():
        pytest.skip("no transparent huge pages")
    size = 64 << 20
    file = tmp_path / "bytes"
    with file.open("wb") as f:
        f.truncate(size + 1)
    tensor, before = Tensor(file, "BF16", (size // 2,), 1, size + 1), huge()
    array = Loader(Split.of(CONFIG), lambda size: None).load(tensor)
    assert huge() - before > size // 2
    assert not np.asarray(array).view(np.uint8).any()


def test_a_source_that_is_gone(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="gone cannot be read"):
        kept.named([Tensor(tmp_path / "gone", "F32", (1,), 0, 4)], "")


@pytest.mark.parametrize("left", [0, 100])
def test_an_entry_that_a_killed_process_left_is_compiled_once_more(
    tmp_path: Path, left: int
) -> None:
    """Each start is a process of its own, as in life."""
    script = tmp_path / "start.py"
    script.write_text(
        "import jax, numpy as np\n"
        "jax.config.update('jax_persistent_cache_min_compile_time_secs', 0.0)\n"
        "from stages.compile import abstract, compiled\n"
        "jax.config.update('jax_persistent_cache_min_compile_time_secs', 0.0)\n"
        "run = compiled(lambda x: (x @ x.T).sum(), abstract((8, 8), np.float32))\n"
        "print(float(run(np.ones((8, 8), np.float32))))\n"
    )

    def start() -> list[Path]:
        env = {**os.environ, "XDG_CACHE_HOME": str(tmp_path), "PYTHONPATH": str(Path.cwd())}
        words = [sys.executable, "-W", "error", str(script)]
        done = subprocess.run(words, env=env, capture_output=True, text=True, check=False)
        assert done.stdout == "512.0\n", done.stderr
        return sorted((tmp_path / "kafila" / "xla").glob("*-cache"))

    (entry,) = start()
    whole = entry.read_bytes()
    entry.write_bytes(whole[:left])
    start()
    start()
    assert len(entry.read_bytes()) > left
    assert len(entry.read_bytes()) == pytest.approx(len(whole), rel=0.1)


def test_other_warnings_of_compiling_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    """A donated argument that no result can take is told by JAX."""
    with pytest.warns(UserWarning, match="donated"):
        compiled(lambda x: x.sum(), abstract((4,), np.float32), donate=0)
    assert compiling.CACHE.name == "xla"


def test_compiled_code_that_others_may_write_is_not_run(tmp_path: Path) -> None:
    folder = tmp_path / "kafila" / "xla"
    folder.mkdir(parents=True)
    folder.chmod(0o777)
    words = "import jax, stages.compile; print(jax.config.jax_compilation_cache_dir)"
    env = {**os.environ, "XDG_CACHE_HOME": str(tmp_path)}
    env.pop("JAX_COMPILATION_CACHE_DIR", None)
    said = subprocess.run(
        [sys.executable, "-c", words], env=env, capture_output=True, text=True, check=True
    )
    assert said.stdout.strip() == "None"
    assert "not this user's alone" in said.stderr
    folder.chmod(0o700)
    said = subprocess.run(
        [sys.executable, "-c", words], env=env, capture_output=True, text=True, check=True
    )
    assert said.stdout.strip() == str(folder)
