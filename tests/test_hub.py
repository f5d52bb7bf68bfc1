"""The hub's real client against a small server in the hub's place, each case in its own process.

A process a case, because the client reads its endpoint and cache from the environment on import.
"""

import fcntl
import hashlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
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
    "some/gated": (403, "GatedRepo", "as the test says"),
    "some/private": (401, "RepoNotFound", "as the test says"),
    "some/broken": (500, "", "as the test says"),
    "some/expired": (401, "", "Invalid credentials in Authorization header"),
    "some/forbidden": (403, "", "as the test says"),
    "elsewhere": (403, "", "as the test says"),
}
TOKEN = "hf_of_the_test"


class Hub(BaseHTTPRequestHandler):
    """As much of the hub as its client asks for: repository info, tree, files by range."""

    protocol_version = "HTTP/1.1"
    repos: ClassVar[dict[str, Path]] = {}
    sent: ClassVar[dict[str, int]] = {}
    """File name -> bytes of it that went out."""
    requests: ClassVar[list[str]] = []
    damage: ClassVar[bool] = False
    """Weights go out with their last byte changed."""
    stall: ClassVar[bool] = False
    """Of weights only the first half goes out, and nothing more."""
    asked_further = threading.Event()
    refuse_first: ClassVar[bool] = False
    """The first shard goes out to nobody."""
    sizeless: ClassVar[bool] = False
    """Of weights no size is told."""
    together: ClassVar[threading.Barrier | None] = None
    """Weights go out when so many are asked for."""

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        self.requests.append(self.path)
        parts = unquote(urlsplit(self.path).path).strip("/").split("/")
        api = parts[:2] == ["api", "models"]
        repo, rest = "/".join(parts[2:4] if api else parts[:2]), parts[4:] if api else parts[2:]
        if self.headers["Host"].startswith("localhost"):
            self.refuse(*REFUSALS["elsewhere"])
        elif repo in REFUSALS:
            self.refuse(*REFUSALS[repo])
        elif repo not in self.repos:
            self.refuse(401, "RepoNotFound")
        elif repo == "some/closed" and self.headers.get("Authorization") != f"Bearer {TOKEN}":
            self.refuse(403, "GatedRepo")
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
        if self.command == "HEAD" and self.sizeless and file.suffix == ".safetensors":
            extra["Content-Length"] = ""
        if self.command == "GET" and file.suffix == ".safetensors" and not asked:
            if self.together:
                self.together.wait(60)
            if self.refuse_first and file.name.startswith("model-00001"):
                port = self.connection.getsockname()[1]
                self.answer(302, b"", {"Location": f"http://localhost:{port}/elsewhere"})
                return
        if self.command == "GET":
            self.sent[file.name] = self.sent.get(file.name, 0) + len(body)
            if self.stall and file.suffix == ".safetensors":
                extra["Content-Length"] = str(len(body))
                self.answer(status, body[: len(body) // 2], extra)
                self.asked_further.wait(200)
                return
        self.answer(status, body, extra)

    def answer_json(self, value: object) -> None:
        self.answer(200, json.dumps(value).encode(), {"Content-Type": "application/json"})

    def refuse(self, status: int, code: str, words: str = "as the test says") -> None:
        self.answer(status, b"", {"X-Error-Code": code, "X-Error-Message": words})

    def answer(self, status: int, body: bytes, extra: dict[str, str]) -> None:
        self.send_response(status)
        for key, value in (
            {"X-Repo-Commit": COMMIT, "Content-Length": str(len(body))} | extra
        ).items():
            if value:
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
    Hub.repos["some/closed"] = Hub.repos["some/single"]
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


def environment(endpoint: str, cache: Path, **more: str) -> dict[str, str]:
    """Of a process whose hub is the endpoint."""
    others = {k: v for k, v in os.environ.items() if not k.startswith(("HF_", "HUGGING"))}
    return (
        others
        | {
            "HF_ENDPOINT": endpoint,
            "HF_HOME": str(cache),
            "HF_HUB_DISABLE_TELEMETRY": "1",
            "HF_HUB_DISABLE_XET": "1",
            "NO_PROXY": "127.0.0.1,localhost",
        }
        | more
    )


def ask(endpoint: str, cache: Path, *expressions: str, **more: str) -> list[str]:
    """Evaluate the expressions in a process whose hub is the endpoint; a line for each.

    `more` goes into its environment.
    """
    done = subprocess.run(
        [sys.executable, "-c", ASK],
        input="\n".join(expressions),
        env=environment(endpoint, cache, **more),
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
        HF_HUB_OFFLINE="1",
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
    (offline,) = ask(hub, tmp_path, of, HF_HUB_OFFLINE="1")
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


def blob(cache: Path) -> tuple[Path, bytes]:
    """Where the weights of some/single come to lie, and what they are."""
    source = Hub.repos["some/single"] / "model.safetensors"
    return cache / "hub" / "models--some--single" / "blobs" / etag(source), source.read_bytes()


def test_a_download_goes_on_where_a_killed_one_ended(hub: str, tmp_path: Path) -> None:
    file, whole = blob(tmp_path)
    part = file.with_name(f"{file.name}.incomplete")
    fetch = 'locate("some/single")'
    break_off(hub, tmp_path, fetch, part, signal.SIGKILL)
    part.write_bytes(whole[: len(whole) // 2])  # what of it had left Python's buffer is chance

    Hub.sent.clear()
    (folder,) = ask(hub, tmp_path, fetch)
    assert Hub.sent["model.safetensors"] == len(whole) - len(whole) // 2
    assert (Path(folder) / "model.safetensors").resolve() == file
    assert file.read_bytes() == whole
    assert not part.exists()


def break_off(hub: str, cache: Path, fetch: str, part: Path, number: signal.Signals) -> None:
    """Send this signal to a process that fetches, once `part` is there; nothing more comes then."""
    Hub.stall = True
    Hub.asked_further.clear()
    try:
        with subprocess.Popen(
            [sys.executable, "-c", ASK],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=environment(hub, cache, HF_HUB_DOWNLOAD_TIMEOUT="200"),
            text=True,
        ) as process:
            assert process.stdin is not None
            process.stdin.write(fetch)
            process.stdin.close()
            deadline = time.monotonic() + 60
            while not part.exists() and time.monotonic() < deadline:
                time.sleep(0.05)
            process.send_signal(number)
            try:
                assert process.wait(60) != 0
            finally:
                process.kill()
    finally:
        Hub.asked_further.set()
        Hub.stall = False


def test_an_interrupted_download_ends_though_nothing_comes(hub: str, tmp_path: Path) -> None:
    file, _ = blob(tmp_path)
    part = file.with_name(f"{file.name}.incomplete")
    break_off(hub, tmp_path, 'locate("some/single")', part, signal.SIGINT)
    assert not file.exists()


def test_several_shards_come_at_once(hub: str, tmp_path: Path) -> None:
    shards = list(Hub.repos["some/wisp"].glob("*.safetensors"))
    at_once = next(count for count in (4, 3, 2) if len(shards) % count == 0)
    Hub.together = threading.Barrier(at_once)
    (folder,) = ask(hub, tmp_path, 'locate("some/wisp")')
    Hub.together = None
    for shard in shards:
        assert (Path(folder) / shard.name).read_bytes() == shard.read_bytes()


def test_the_first_error_ends_a_download(hub: str, tmp_path: Path) -> None:
    """Though of the other shards nothing comes any more."""
    Hub.stall = Hub.refuse_first = True
    Hub.asked_further.clear()
    (line,) = ask(hub, tmp_path, 'locate("some/wisp")', HF_HUB_DOWNLOAD_TIMEOUT="200")
    Hub.asked_further.set()
    Hub.stall = Hub.refuse_first = False
    assert line == (
        "problem: some/wisp is refused by localhost (HTTP 403), to which the hub leads; "
        "try again later"
    ), "no word of a token"
    (folder,) = ask(hub, tmp_path, 'locate("some/wisp")')
    for shard in Hub.repos["some/wisp"].glob("*.safetensors"):
        assert (Path(folder) / shard.name).read_bytes() == shard.read_bytes()


def test_a_hub_that_tells_no_size(hub: str, tmp_path: Path) -> None:
    Hub.sizeless = True
    (line,) = ask(hub, tmp_path, 'locate("some/single")')
    Hub.sizeless = False
    assert "No such file" not in line, "of ours; what the client makes of it is its own"


def test_a_file_that_another_process_fetches(hub: str, tmp_path: Path) -> None:
    """Or fetched: where files cannot be locked, a killed one leaves its lock."""
    file, _ = blob(tmp_path)
    lock = tmp_path / "hub" / ".locks" / file.parents[1].name / f"{file.name}.lock"
    lock.parent.mkdir(parents=True)
    with lock.open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        _, line = ask(
            hub,
            tmp_path,
            'setattr(__import__("kafila.hub").hub, "LOAD_SECONDS", 0.5)',
            'locate("some/single")',
        )
    assert line.startswith("problem: some/single: model.safetensors is still being downloaded by ")
    assert line.endswith(f"if there is none, remove {lock}")


def test_killed_before_the_contents_were_compared(hub: str, tmp_path: Path) -> None:
    """All of it is there, right or wrong, but not under its name: it is compared now."""
    file, whole = blob(tmp_path)
    part = file.with_name(f"{file.name}.incomplete")
    part.parent.mkdir(parents=True)
    for left, sent in ((whole, 0), (whole[:-1] + b"?", len(whole)), (whole + b"?", len(whole))):
        part.write_bytes(left)
        file.unlink(missing_ok=True)
        Hub.sent.clear()
        (folder,) = ask(hub, tmp_path, 'locate("some/single")')
        assert Hub.sent.get("model.safetensors", 0) == sent
        assert (Path(folder) / "model.safetensors").read_bytes() == whole
        assert not part.exists()


def test_a_token_that_is_gone_is_missed_before_anything_is_fetched(
    hub: str, tmp_path: Path
) -> None:
    first, last = (
        f'locate("some/closed", "{COMMIT}", blocks=range({n}), head=False)' for n in (1, 6)
    )
    config = f'config("some/closed", "{COMMIT}").digest'
    (digest,) = ask(hub, tmp_path, config, HF_TOKEN=TOKEN)
    assert digest == SIZES["tiny"].digest
    Hub.sent.clear()
    (line,) = ask(hub, tmp_path, last)
    assert "some/closed is gated" in line
    assert Hub.sent == {}
    (folder,) = ask(hub, tmp_path, first, HF_TOKEN=TOKEN)
    assert (Path(folder) / "model.safetensors").exists()
    assert ask(hub, tmp_path, last) == [folder], "what is there needs no token"


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
        ("some/expired", None): "is refused by 127.0.0.1 (HTTP 401), which was asked without",
        ("some/forbidden", None): "is refused by 127.0.0.1 (HTTP 403), which was asked without",
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


def test_a_token_is_named_where_there_is_one(hub: str, tmp_path: Path) -> None:
    (line,) = ask(hub, tmp_path, 'locate("some/expired")', HF_TOKEN=TOKEN)
    assert "is refused by 127.0.0.1 (HTTP 401): this machine's token is wrong" in line


def test_no_hub_at_all(tmp_path: Path) -> None:
    for offline in ("0", "1"):
        # Port 9 of the own machine: nobody listens, so the refusal comes at once.
        lines = ask(
            "http://127.0.0.1:9",
            tmp_path,
            'Manifest.of("some/wisp")',
            'locate("some/wisp")',
            HF_HUB_OFFLINE=offline,
        )
        for line in lines:
            assert line.startswith("problem: some/wisp ")
            assert "the hub cannot be reached" in line
