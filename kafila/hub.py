"""Models on the Hugging Face hub: read their headers, download a member's share.

All of the hub's failures come out as one CheckpointProblem sentence. The client, its cache, its
tokens and `HF_ENDPOINT` are huggingface_hub's own; only what fetches a weight file is here, since
not every version of the client goes on with half a file, and none compares contents.
"""

import hashlib
import io
import logging
import os
import queue
import re
import shutil
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import huggingface_hub as hub
from huggingface_hub import constants, errors
from huggingface_hub.file_download import http_get
from huggingface_hub.utils import (  # type: ignore[attr-defined]  # exported lazily
    WeakFileLock,
    build_hf_headers,
)

from kafila.defaults import DOWNLOADS, LOAD_SECONDS
from kafila.errors import CheckpointProblem
from kafila.words import gib
from stages.checkpoint import (
    INDEX,
    SINGLE,
    Checkpoint,
    CheckpointError,
    Tensor,
    choose,
    expected,
    indexed_shards,
    read_config,
)
from stages.config import Qwen3Config

log = logging.getLogger(__name__)

_WORDS = (
    "config.json",
    "generation_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "chat_template.jinja",
    INDEX,
)
"""What every member needs beside its weights; all of it small."""

_COMMIT = re.compile(r"[0-9a-f]{40}")
_SHA256 = re.compile(r"[0-9a-f]{64}")

_UNREACHABLE: tuple[type[Exception], ...] = (
    OSError,
    *(base for base in errors.HfHubHTTPError.__bases__ if issubclass(base, Exception)),
)
"""The system's errors and the transport's (requests' or httpx', as the client's version has it)."""


def headers(repo: str, revision: str | None) -> tuple[str, Checkpoint]:
    """The repository's commit and its checkpoint as far as config and tensor headers tell it.

    Weights stay where they are, so the tensors' offsets are relative to their file's data. Without
    a network, a complete copy in the hub's cache serves as well. Raises CheckpointProblem.
    """
    with _one_sentence(repo, revision):
        folder, config = _config(repo, revision)
        try:
            files = hub.get_safetensors_metadata(repo, revision=folder.name).files_metadata
        except _UNREACHABLE:
            cached = _cached(folder)
            if cached is None:
                raise
            return folder.name, cached
        tensors = {
            name: {
                tensor: Tensor(folder / name, info.dtype, tuple(info.shape), *info.data_offsets)
                for tensor, info in file_metadata.tensors.items()
            }
            for name, file_metadata in files.items()
        }
        chosen = choose(Path(repo), config, expected(config), tensors)
        return folder.name, Checkpoint(folder, config, {}, chosen)


def config(repo: str, revision: str | None) -> Qwen3Config:
    """The repository's config, from the hub or its cache. Raises CheckpointProblem."""
    with _one_sentence(repo, revision):
        return _config(repo, revision)[1]


def download(repo: str, revision: str | None, blocks: range | None, *, head: bool) -> Path:
    """Folder in the hub's cache with the shards of the given blocks and the head; downloads them.

    Whole shards: other programs and later plans then find them. What is in the cache at a pinned
    commit is taken from there without asking the hub. Raises CheckpointProblem, also where the disk
    has no room for what is missing.
    """
    with _one_sentence(repo, revision):
        if (found := _pinned(repo, revision)) and _complete(found, blocks, head=head):
            return found
        folder = Path(hub.snapshot_download(repo, revision=revision, allow_patterns=list(_WORDS)))
        wanted = expected(read_config(folder / "config.json"), blocks, head=head)
        index = folder / INDEX
        names = indexed_shards(index, wanted) if index.exists() else [SINGLE]
        if missing := [name for name in names if not (folder / name).exists()]:
            _fetch(repo, folder, missing)
            hub.snapshot_download(repo, revision=folder.name, allow_patterns=missing)
        Checkpoint.open(folder, blocks, head=head)
        return folder


def _pinned(repo: str, revision: str | None) -> Path | None:
    """The cache's folder of a commit, which never changes; None for what may: a branch, a tag."""
    if revision is None or not _COMMIT.fullmatch(revision):
        return None
    found = hub.try_to_load_from_cache(repo, "config.json", revision=revision)
    return Path(found).parent if isinstance(found, str) else None


def _config(repo: str, revision: str | None) -> tuple[Path, Qwen3Config]:
    """The snapshot's folder in the cache, and the config in it."""
    folder = _pinned(repo, revision)
    if folder is None:
        # Not hf_hub_download, which tries for half a minute to reach a hub that is not there.
        folder = Path(hub.snapshot_download(repo, revision=revision, allow_patterns="config.json"))
    return folder, read_config(folder / "config.json")


def _fetch(repo: str, folder: Path, names: list[str]) -> None:
    """Put the contents of these files of the snapshot into the cache, where the client finds them.

    It keeps large files under their SHA-256, and half a file beside that: only what has been
    compared gets the name, whenever a process is killed. What has no SHA-256 or no size, or is too
    large for HTTP, is left to the client.
    """
    urls = {name: hub.hf_hub_url(repo, name, revision=folder.name) for name in names}
    found = {name: hub.get_hf_file_metadata(url) for name, url in urls.items()}
    sizes = {name: metadata.size or 0 for name, metadata in found.items()}
    kept, cache = folder.parents[1], folder.parents[2]
    blobs, locks = kept / "blobs", cache / ".locks" / kept.name
    files = {
        name: blobs / (metadata.etag or "")
        for name, metadata in found.items()
        if 0 < sizes[name] <= constants.MAX_HTTP_DOWNLOAD_SIZE
        and _SHA256.fullmatch(metadata.etag or "")
    }
    _check_room(repo, folder, sum(sizes.values()) - sum(map(_begun, files.values())))
    for made in (blobs, locks):
        made.mkdir(parents=True, exist_ok=True)
    stop = threading.Event()

    def fetch(name: str) -> None:
        file = files[name]
        with _turn(name, locks / f"{file.name}.lock"):
            if not file.exists():
                _fetch_file(name, urls[name], sizes[name], file, stop)

    _several(fetch, files, stop)


def _several(fetch: Callable[[str], None], names: Iterable[str], stop: threading.Event) -> None:
    """Fetch them all, DOWNLOADS at a time. The first error is raised at once, and stops the others.

    On daemon threads, which nobody waits for: an executor's would hold up the end of the process.
    """
    left, ended = queue.SimpleQueue[str](), queue.SimpleQueue[BaseException | None]()
    for name in names:
        left.put(name)

    def work() -> None:
        problem = None
        try:
            while not stop.is_set():
                fetch(left.get_nowait())
        except queue.Empty:
            pass
        except BaseException as error:
            problem = error
        ended.put(problem)

    threads = [
        threading.Thread(target=work, daemon=True) for _ in range(min(DOWNLOADS, left.qsize()))
    ]
    try:
        for thread in threads:
            thread.start()
        for _ in threads:
            if problem := ended.get():
                raise problem
    finally:
        stop.set()


@contextmanager
def _turn(name: str, lock: Path) -> Iterator[None]:
    """One process at a time at this file, by the client's own lock. Raises CheckpointError."""
    with ExitStack() as held:
        try:
            held.enter_context(WeakFileLock(lock, timeout=1.0))
        except TimeoutError:
            log.warning("%s: waiting for another process to download it (%s)", name, lock)
            try:
                held.enter_context(WeakFileLock(lock, timeout=LOAD_SECONDS))
            except TimeoutError:
                raise CheckpointError(
                    f"{name} is still being downloaded by another process after "
                    f"{LOAD_SECONDS / 60:.0f} minutes; if there is none, remove {lock}"
                ) from None
        yield


class _Stopped(Exception):
    """Another file's download has failed."""


class _Part(io.BufferedWriter):
    """Half a file, to be gone on with, until the download is to stop."""

    def __init__(self, file: Path, stop: threading.Event) -> None:
        super().__init__(io.FileIO(file, "a"))
        self._stop = stop

    def write(self, data: Any) -> int:
        if self._stop.is_set():
            raise _Stopped
        return super().write(data)


def _fetch_file(name: str, url: str, size: int, file: Path, stop: threading.Event) -> None:
    """Download `file`, which is named by its SHA-256, from where an earlier download ended."""
    part, begun = _part(file), _begun(file)
    if begun < size:
        with _Part(part, stop) as f:
            http_get(
                url,
                f,
                resume_size=begun,
                headers=build_hf_headers(),
                expected_size=size,
                displayed_filename=name,
            )
            f.flush()
            os.fsync(f.fileno())  # or after a power cut the name may be there, and zeros under it
    with part.open("rb") as f:
        digest = hashlib.file_digest(f, "sha256").hexdigest()
    if digest == file.name:
        part.replace(file)
        return
    part.unlink()
    if not begun:
        raise CheckpointError(f"{name} came damaged and is removed; fetch it again")
    log.warning("%s: what an earlier download left of it is damaged; it is fetched anew", name)
    _fetch_file(name, url, size, file, stop)


def _part(file: Path) -> Path:
    """Where the contents of a file of the cache are, until they are complete and compared."""
    return file.with_name(f"{file.name}.incomplete")


def _begun(file: Path) -> int:
    """How many bytes of it are there, or of what is to become it."""
    there = next((each for each in (file, _part(file)) if each.exists()), None)
    return there.stat().st_size if there else 0


def _check_room(repo: str, folder: Path, need: int) -> None:
    """Is there room for so many bytes on the disk of this snapshot's cache?"""
    free = shutil.disk_usage(folder).free
    if free < need:
        raise CheckpointProblem(
            f"{repo}: this member's share needs {gib(need)} more in {folder.parents[2]}, where "
            f"{gib(free)} is free: make room there, or set HF_HOME to a folder on another disk"
        )


def _complete(folder: Path, blocks: range | None, *, head: bool) -> bool:
    if head and not (folder / "tokenizer.json").exists():  # another program fetched only weights
        return False
    try:
        Checkpoint.open(folder, blocks, head=head)
    except CheckpointError:
        return False
    return True


def _cached(folder: Path) -> Checkpoint | None:
    try:
        return Checkpoint.open(folder)
    except CheckpointError:
        return None


@contextmanager
def _one_sentence(repo: str, revision: str | None) -> Iterator[None]:
    try:
        yield
        return
    except CheckpointError as error:
        raise CheckpointProblem(f"{repo}: {error}") from None
    except errors.GatedRepoError:
        problem = "is gated: accept its terms on the hub, then log in (HF_TOKEN or hf auth login)"
    except errors.RepositoryNotFoundError:
        problem = (
            "is not on the hub, or private: check the name or log in (HF_TOKEN or hf auth login)"
        )
    except errors.RevisionNotFoundError:
        problem = f"has no revision {revision} on the hub"
    except errors.NotASafetensorsRepoError:
        problem = f"has neither {SINGLE} nor {INDEX} on the hub"
    except errors.SafetensorsParsingError as error:
        problem = f"has a safetensors header that cannot be read ({error})"
    except errors.LocalEntryNotFoundError as error:
        problem = _unwelcome(error.__cause__) or (
            "is not in this machine's cache and the hub cannot be reached: check the network "
            "(and HF_HUB_OFFLINE), or name a local folder"
        )
    except errors.EntryNotFoundError:
        problem = f"lacks weights on the hub: neither {SINGLE} nor all shards of {INDEX} are there"
    except errors.HFValidationError:
        problem = "is not a hub id"
    except _UNREACHABLE as error:
        first = (str(error).strip() or type(error).__name__).splitlines()[0]
        problem = _unwelcome(error) or f"could not be read from the hub: {first}"
    raise CheckpointProblem(f"{repo} {problem}")


def _unwelcome(error: BaseException | None) -> str | None:
    """What to do where access was refused; None: it was something else."""
    response = getattr(error, "response", None)
    status = getattr(response, "status_code", None)
    if status not in (401, 403):
        return None
    host = urlsplit(str(getattr(response, "url", ""))).hostname
    if host != urlsplit(constants.ENDPOINT).hostname:  # where the hub's storage or a proxy is
        return f"is refused by {host} (HTTP {status}), to which the hub leads; try again later"
    if hub.get_token():
        return (
            f"is refused by {host} (HTTP {status}): this machine's token is wrong, has expired, or "
            "may not read it; log in anew (HF_TOKEN or hf auth login)"
        )
    return (
        f"is refused by {host} (HTTP {status}), which was asked without a token: log in if it "
        "needs one (HF_TOKEN or hf auth login)"
    )
