"""The hub's real client against a small server in the hub's place, each case in its own process.

A process a case, because the client reads its endpoint and cache from the environment on import.
"""

import hashlib
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import ClassVar
from urllib.parse import unquote, urlsplit

import pytest

from kafila.manifest import Manifest
from stages.checkpoint import INDEX, expected, indexed_shards
from tools.make_checkpoint import SIZES, TOKENIZER, write_checkpoint

COMMIT = "c0ffee" * 6 + "c0ff"
REFUSALS = {
    "some/gated": (403, "GatedRepo"),
    "some/private": (401, "RepoNotFound"),
    "some/broken": (500, ""),
}


class Hub(BaseHTTPRequestHandler):
    """As much of the hub as its client asks for: repository info, tree, files by range."""

    protocol_version = "HTTP/1.1"
    repos: ClassVar[dict[str, Path]] = {}
    sent: ClassVar[dict[str, int]] = {}
    """File name -> bytes of it that went out."""
    requests: ClassVar[list[str]] = []
    damage: ClassVar[bool] = False
    """Weights go out with their last byte changed."""

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        self.requests.append(self.path)
        parts = unquote(urlsplit(self.path).path).strip("/").split("/")
        api = parts[:2] == ["api", "models"]
        repo, rest = "/".join(parts[2:4] if api else parts[:2]), parts[4:] if api else parts[2:]
        if repo in REFUSALS:
            self.refuse(*REFUSALS[repo])
        elif repo not in self.repos:
            self.refuse(401, "RepoNotFound")
        elif rest[1:2] and rest[1] not in ("main", COMMIT):
            self.refuse(404, "RevisionNotFound")
        elif api and rest[:1] == ["tree"]:
            self.answer_json([self.entry(f) for f in sorted(self.repos[repo].iterdir())])
        elif api:
            self.answer_json({"id": repo, "sha": COMMIT, "siblings": []})
        else:
            self.answer_file(self.repos[repo] / rest[2])

    def entry(self, file: Path) -> dict[str, object]:
        size, oid = file.stat().st_size, etag(file)
        return {"type": "file", "path": file.name, "size": size, "oid": oid}

    def answer_file(self, file: Path) -> None:
        if not file.exists():
            self.refuse(404, "EntryNotFound")
            return
        whole, status = file.read_bytes(), 200
        if self.damage and file.suffix == ".safetensors":
            whole = whole[:-1] + bytes([whole[-1] ^ 1])
        body, extra = whole, {"ETag": f'"{etag(file)}"', "Accept-Ranges": "bytes"}
        if asked := self.headers.get("Range"):
            first, last = asked.removeprefix("bytes=").split("-")
            body, status = whole[int(first) : int(last or len(whole)) + 1], 206
            extra["Content-Range"] = f"bytes {first}-{int(first) + len(body) - 1}/{len(whole)}"
        if self.command == "GET":
            self.sent[file.name] = self.sent.get(file.name, 0) + len(body)
        self.answer(status, body, extra)

    def answer_json(self, value: object) -> None:
        self.answer(200, json.dumps(value).encode(), {"Content-Type": "application/json"})

    def refuse(self, status: int, code: str) -> None:
        self.answer(status, b"", {"X-Error-Code": code, "X-Error-Message": "as the test says"})

    def answer(self, status: int, body: bytes, extra: dict[str, str]) -> None:
        self.send_response(status)
        for key, value in (
            {"X-Repo-Commit": COMMIT, "Content-Length": str(len(body))} | extra
        ).items():
            self.send_header(key, value)
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


def etag(file: Path) -> str:
    """As the hub has them: of large files SHA-256, of others another digest."""
    kind = hashlib.sha256 if file.suffix == ".safetensors" else hashlib.sha1
    return kind(file.read_bytes()).hexdigest()


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The server's address; some/wisp is sharded, some/single is not, some/empty has no weights."""
    root = tmp_path_factory.mktemp("hub")
    Hub.repos["some/wisp"] = write_checkpoint(root / "wisp", SIZES["tiny"], shard_bytes=300_000)
    Hub.repos["some/single"] = write_checkpoint(root / "single", SIZES["tiny"], tokenizer=TOKENIZER)
    Hub.repos["some/empty"] = write_checkpoint(root / "empty", SIZES["tiny"])
    (root / "empty" / "model.safetensors").unlink()
    Hub.repos["some/nothing"] = root / "nothing"
    (root / "nothing").mkdir()
    (root / "nothing" / "readme.md").write_text("nothing")
    (root / "wisp" / "huge.bin").write_bytes(bytes(1000))
    server = ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


ASK = """
import shutil
import sys
from types import SimpleNamespace
from kafila.errors import CheckpointProblem
from kafila.manifest import Manifest, config, locate
for line in sys.stdin.read().splitlines():
    try:
        print(eval(line))
    except CheckpointProblem as problem:
        print("problem:", problem)
"""


def ask(endpoint: str, cache: Path, *expressions: str, offline: bool = False) -> list[str]:
    """Evaluate the expressions in a process whose hub is the endpoint; a line for each."""
    env = {k: v for k, v in os.environ.items() if not k.startswith(("HF_", "HUGGING"))} | {
        "HF_ENDPOINT": endpoint,
        "HF_HOME": str(cache),
        "HF_HUB_OFFLINE": "1" if offline else "0",
        "HF_HUB_DISABLE_TELEMETRY": "1",
        "HF_HUB_DISABLE_XET": "1",
        "NO_PROXY": "127.0.0.1",
    }
    done = subprocess.run(
        [sys.executable, "-c", ASK],
        input="\n".join(expressions),
        env=env,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert len(lines) == len(expressions), done.stdout
    return lines


def test_manifest_reads_headers_and_a_member_fetches_its_share(hub: str, tmp_path: Path) -> None:
    Hub.sent.clear()
    of = 'Manifest.of("some/wisp").model_dump_json()'
    manifest = Manifest.model_validate_json(ask(hub, tmp_path, of)[0])
    local = Manifest.of(str(Hub.repos["some/wisp"]))
    assert manifest == local.model_copy(update={"name": "some/wisp", "revision": COMMIT})
    shards = sorted(f.name for f in Hub.repos["some/wisp"].glob("*.safetensors"))
    assert all(0 < Hub.sent[name] <= 100_001 for name in shards), "headers only"

    last = 'locate("some/wisp", blocks=range(5, 6), head=False)'
    folder = Path(ask(hub, tmp_path, last)[0])
    names = {file.name for file in folder.glob("*.safetensors")}
    assert names == set(indexed_shards(folder / INDEX, expected(SIZES["tiny"], [5], head=False)))
    assert names < set(shards)
    assert (folder / "generation_config.json").exists()
    assert not (folder / "huge.bin").exists()

    # Now without a network: what was fetched is there (all that serving its share takes), what was
    # not is said.
    again, digest, whole, manifest_again = ask(
        hub,
        tmp_path,
        last,
        f'config("some/wisp", "{COMMIT}").digest',
        'locate("some/wisp")',
        of,
        offline=True,
    )
    assert Path(again) == folder
    assert digest == SIZES["tiny"].digest
    for line in (whole, manifest_again):
        assert line.startswith("problem: some/wisp ")

    nowhere = ask("http://127.0.0.1:9", tmp_path, f'config("some/wisp", "{COMMIT}").digest', last)
    assert nowhere == [digest, again], "a pinned share needs no hub"

    everything, revision = ask(
        hub, tmp_path, 'locate("some/wisp")', f'locate("some/wisp", "{COMMIT}")'
    )
    assert everything == revision == str(folder)
    assert sorted(f.name for f in folder.glob("*.safetensors")) == shards
    (offline,) = ask(hub, tmp_path, of, offline=True)
    assert Manifest.model_validate_json(offline) == manifest


def test_a_start_at_a_pinned_commit_asks_nothing(hub: str, tmp_path: Path) -> None:
    """What it needs is in the cache: no request at all, though the hub is there."""
    start = [
        f'config("some/single", "{COMMIT}").digest',
        f'locate("some/single", "{COMMIT}", blocks=range(2))',
    ]
    first = ask(hub, tmp_path, *start)
    Hub.requests.clear()
    assert ask(hub, tmp_path, *start) == first
    assert Hub.requests == []


def test_no_room_for_a_share(hub: str, tmp_path: Path) -> None:
    cramped = 'setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=1000))'
    _, line = ask(hub, tmp_path, cramped, 'locate("some/single")')
    assert line.startswith("problem: some/single: this member's share needs ")
    assert f"in {tmp_path}" in line
    assert "1000 bytes is free" in line
    assert not list(tmp_path.rglob("model.safetensors"))


def test_a_damaged_file_is_not_kept(hub: str, tmp_path: Path) -> None:
    """Of the right size and with a readable header, but not of the digest that is its name."""
    Hub.damage = True
    (line,) = ask(hub, tmp_path, 'locate("some/single")')
    Hub.damage = False
    assert "model.safetensors came damaged" in line
    (folder,) = ask(hub, tmp_path, 'locate("some/single")')
    source = Hub.repos["some/single"] / "model.safetensors"
    assert (Path(folder) / "model.safetensors").read_bytes() == source.read_bytes()


def test_a_config_is_all_that_is_read_of_a_model(hub: str, tmp_path: Path) -> None:
    Hub.sent.clear()
    (digest,) = ask(hub, tmp_path, 'config("some/wisp").digest')
    assert digest == SIZES["tiny"].digest
    assert set(Hub.sent) == {"config.json"}


def test_single_file(hub: str, tmp_path: Path) -> None:
    manifest, folder = ask(
        hub, tmp_path, 'Manifest.of("some/single", "main").digest', 'locate("some/single")'
    )
    assert manifest == SIZES["tiny"].digest
    assert (Path(folder) / "model.safetensors").stat().st_size > 0


def test_refusals_are_one_sentence_each(hub: str, tmp_path: Path) -> None:
    cases = {
        ("some/gated", None): "is gated: accept its terms",
        ("some/private", None): "not on the hub, or private: check the name or log in",
        ("some/wisp", "v9"): "has no revision v9",
        ("some/empty", None): "model.safetensors",
        ("some/nothing", None): "config.json",
        ("some/broken", None): "the hub cannot be reached",
        ("some/a--b", None): "is not a hub id",
    }
    questions = [
        f"{verb}({repo!r}, {revision!r})"
        for repo, revision in cases
        for verb in ("Manifest.of", "locate")
    ]
    answers = iter(ask(hub, tmp_path, *questions))
    for (repo, revision), words in cases.items():
        for verb in ("Manifest.of", "locate"):
            line = next(answers)
            assert line.startswith("problem: "), (repo, revision, verb, line)
            assert repo in line
            assert words in line, (repo, verb)


def test_no_hub_at_all(tmp_path: Path) -> None:
    for offline in (False, True):
        # Port 9 of the own machine: nobody listens, so the refusal comes at once.
        lines = ask(
            "http://127.0.0.1:9",
            tmp_path,
            'Manifest.of("some/wisp")',
            'locate("some/wisp")',
            offline=offline,
        )
        for line in lines:
            assert line.startswith("problem: some/wisp ")
            assert "the hub cannot be reached" in line
