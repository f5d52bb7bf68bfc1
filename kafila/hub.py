"""Models on the Hugging Face hub: read their headers, download a member's share.

All of the hub's failures come out as one CheckpointProblem sentence. The client, its cache, its
tokens and `HF_ENDPOINT` are huggingface_hub's own.
"""

import hashlib
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import huggingface_hub as hub
from huggingface_hub import errors

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

    Whole shards: the client then resumes them, and other programs and later plans find them. What
    is in the cache at a pinned commit is taken from there without asking the hub. Raises
    CheckpointProblem, also where the disk has no room for what is missing.
    """
    with _one_sentence(repo, revision):
        if (found := _pinned(repo, revision)) and _complete(found, blocks, head=head):
            return found
        folder = Path(hub.snapshot_download(repo, revision=revision, allow_patterns=list(_WORDS)))
        wanted = expected(read_config(folder / "config.json"), blocks, head=head)
        index = folder / INDEX
        names = indexed_shards(index, wanted) if index.exists() else [SINGLE]
        if missing := [name for name in names if not (folder / name).exists()]:
            _check_room(repo, folder, missing)
            hub.snapshot_download(repo, revision=folder.name, allow_patterns=missing)
            for name in missing:
                _verify(folder / name)
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


def _check_room(repo: str, folder: Path, names: list[str]) -> None:
    """Is there room on the cache's disk for these files of the snapshot in this folder?"""
    urls = (hub.hf_hub_url(repo, name, revision=folder.name) for name in names)
    need = sum(hub.get_hf_file_metadata(url).size or 0 for url in urls)
    # The client goes on with what an earlier download left.
    need -= sum(part.stat().st_size for part in folder.parents[1].glob("blobs/*.incomplete"))
    free = shutil.disk_usage(folder).free
    if free < need:
        raise CheckpointProblem(
            f"{repo}: this member's share needs {gib(need)} more in {folder.parents[2]}, where "
            f"{gib(free)} is free: make room there, or set HF_HOME to a folder on another disk"
        )


def _verify(file: Path) -> None:
    """The hub names large files by their SHA-256; the client compares only sizes."""
    blob = file.resolve()
    if not _SHA256.fullmatch(blob.name):
        return
    with blob.open("rb") as f:
        found = hashlib.file_digest(f, "sha256").hexdigest()
    if found != blob.name:
        file.unlink()
        blob.unlink(missing_ok=True)
        raise CheckpointError(f"{file.name} came damaged and is removed; fetch it again")


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
    except errors.LocalEntryNotFoundError:
        problem = (
            "is not in this machine's cache and the hub cannot be reached: check the network "
            "(and HF_HUB_OFFLINE), or name a local folder"
        )
    except errors.EntryNotFoundError:
        problem = f"lacks weights on the hub: neither {SINGLE} nor all shards of {INDEX} are there"
    except errors.HFValidationError:
        problem = "is not a hub id"
    except _UNREACHABLE as error:
        first = (str(error).strip() or type(error).__name__).splitlines()[0]
        problem = f"could not be read from the hub: {first}"
    raise CheckpointProblem(f"{repo} {problem}")
