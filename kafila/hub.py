"""Models on the Hugging Face hub: read their headers, download a member's share.

All of the hub's failures come out as one CheckpointProblem sentence. The client, its cache, its
tokens and `HF_ENDPOINT` are huggingface_hub's own.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import huggingface_hub as hub
from huggingface_hub import errors

from kafila.errors import CheckpointProblem
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

    Raises CheckpointProblem.
    """
    with _one_sentence(repo, revision):
        folder = Path(hub.snapshot_download(repo, revision=revision, allow_patterns=list(_WORDS)))
        wanted = expected(read_config(folder / "config.json"), blocks, head=head)
        index = folder / INDEX
        names = indexed_shards(index, wanted) if index.exists() else [SINGLE]
        hub.snapshot_download(repo, revision=folder.name, allow_patterns=names)
        Checkpoint.open(folder, blocks, head=head)
        return folder


def _config(repo: str, revision: str | None) -> tuple[Path, Qwen3Config]:
    """The snapshot's folder in the cache, and the config in it."""
    # Not hf_hub_download, which tries for half a minute to reach a hub that is not there.
    folder = Path(hub.snapshot_download(repo, revision=revision, allow_patterns="config.json"))
    return folder, read_config(folder / "config.json")


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
    except errors.HFValidationError:
        problem = "is not a hub id"
    except _UNREACHABLE as error:
        first = (str(error).strip() or type(error).__name__).splitlines()[0]
        problem = f"could not be read from the hub: {first}"
    raise CheckpointProblem(f"{repo} {problem}")
