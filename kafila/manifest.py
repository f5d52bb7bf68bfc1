"""What planning must know of a model: sizes in exact bytes, from its config and tensor headers.

Never loads a weight and never a device; where the files come from (a folder, the embedded demo
model, a hub id) is decided here and nowhere else.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from math import prod
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, ValidationError, model_validator

from kafila.errors import CheckpointProblem
from kafila.schema import Count, Digest, Strict, Words, without_absent
from stages.checkpoint import Checkpoint, CheckpointError, read_config
from stages.config import (
    BYTES,
    LIMITS,
    MAX_BLOCK_WEIGHTS,
    Kept,
    Qwen3Config,
    kept_digest,
)
from stages.formats import Shape

DEMO = "demo"
"""The word that names the embedded model; a folder of that name is `./demo`."""

_DEMO_FOLDER = Path(__file__).parent / "demo_model"
_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")


class Manifest(Strict):
    """A model's sizes. Reading is not residence: the head keeps more than it reads per token.

    It may come from a file or another member, who measure and plan by it: nothing in it is larger
    than `stages.config` allows a config to be.
    """

    name: Words
    """The hub id, `demo`, or the folder's name."""
    revision: Words | None
    """The hub's commit; None for a folder."""
    digest: Digest
    """`Qwen3Config.digest`: equal for equal configs, so for equal tensor headers kept alike."""
    dtype: Literal["bfloat16", "float32"]
    """Of KV cache and residual stream, and of weights that are not `kept` otherwise."""
    stored: Literal["fp8", "awq"] | None = None
    """How block matrices lie on disk, where they are quantised there."""
    kept: Kept | None = None
    """How block matrices sit in memory, where not in dtype; None and left out if they do."""
    blocks: Annotated[int, Field(ge=1, le=LIMITS["blocks"])]
    hidden: Annotated[int, Field(ge=1, le=LIMITS["hidden"])]
    heads: Annotated[int, Field(ge=1, le=LIMITS["heads"])]
    kv_heads: Annotated[int, Field(ge=1, le=LIMITS["kv_heads"])]
    head_dim: Annotated[int, Field(ge=2, le=LIMITS["head_dim"], multiple_of=2)]
    ffn: Annotated[int, Field(ge=1, le=LIMITS["ffn"])]
    vocab: Annotated[int, Field(ge=1, le=LIMITS["vocab"])]
    tied: bool
    max_context: Annotated[int, Field(ge=1, le=LIMITS["max_positions"])]
    """Tokens; YaRN's stretch included."""
    block_bytes: Count
    """One block's tensors as they sit in memory: what it reads per token, and what it keeps."""
    head_read_bytes: Count
    """What the head reads per token: unembedding and final norm (an embedding is one row)."""
    head_resident_bytes: Count
    """What the head keeps: embedding, unembedding (one copy when tied) and final norm."""
    kv_bytes: Count
    """Keys and values of one token in one block."""

    _as_written = without_absent("stored", "kept")

    @model_validator(mode="after")
    def _possible(self) -> "Manifest":
        if self.heads % self.kv_heads:
            raise ValueError(f"kv_heads {self.kv_heads} must divide heads {self.heads}")
        if self.matrix_weights > MAX_BLOCK_WEIGHTS:
            raise ValueError("a block of these sizes is larger than any that can be served")
        return self

    @property
    def matrix_weights(self) -> int:
        """Weights in the matrices of one block."""
        attention = 2 * (self.heads + self.kv_heads) * self.head_dim  # q and o; k and v
        return self.hidden * (attention + 3 * self.ffn)

    def kept_as(self, kept: Kept | None) -> "Manifest":
        """The same model with its block matrices kept so in memory, where that is asked for."""
        if kept in (None, self.kept):
            return self
        rows = (self.heads + 2 * self.kv_heads) * self.head_dim + 2 * self.hidden + 2 * self.ffn
        saved = self.matrix_weights * (BYTES[self.dtype] - BYTES[kept]) - BYTES["float32"] * rows
        changes = {
            "kept": kept,
            "digest": kept_digest(self.digest, kept),
            "block_bytes": self.block_bytes - saved,
        }
        return self.model_validate(self.model_dump() | changes)

    @classmethod
    def of(cls, source: str, revision: str | None = None) -> "Manifest":
        """The manifest of a local folder, of `demo`, or of a hub id (config and headers only).

        Raises CheckpointProblem.
        """
        if _is_hub_id(source):
            from kafila import hub  # the client takes a while to import; folders need none of it

            commit, checkpoint = hub.headers(source, revision)
            return cls.of_checkpoint(checkpoint, name=source, revision=commit)
        folder = _folder(source, revision)
        with _in_words():
            checkpoint = Checkpoint.open(folder)
        name = DEMO if source == DEMO else folder.resolve().name
        return cls.of_checkpoint(checkpoint, name=name)

    @classmethod
    def of_checkpoint(
        cls, checkpoint: Checkpoint, *, name: str, revision: str | None = None
    ) -> "Manifest":
        """The manifest of a whole opened checkpoint. Raises CheckpointProblem."""
        config = checkpoint.config
        head = {name: _bytes(*leaf) for name, leaf in config.head_leaves().items()}
        sizes = {
            "name": name,
            "revision": revision,
            "digest": config.digest,
            "dtype": config.dtype,
            "stored": config.stored and config.stored.name,
            "blocks": config.blocks,
            "hidden": config.hidden,
            "heads": config.heads,
            "kv_heads": config.kv_heads,
            "head_dim": config.head_dim,
            "ffn": config.ffn,
            "vocab": config.vocab,
            "tied": config.tied,
            "max_context": config.max_positions,
            "block_bytes": sum(_bytes(*leaf) for leaf in config.block_leaves().values()),
            "head_read_bytes": head.get("unembed", head["embed"]) + head["norm"],
            "head_resident_bytes": sum(head.values()),
            "kv_bytes": config.kv_bytes,
        }
        try:
            return cls.model_validate(sizes)
        except ValidationError as error:  # the config has been checked; a name may be anything
            fault = error.errors(include_url=False)[0]
            raise CheckpointProblem(f"{name!r}: {fault['loc'][-1]}: {fault['msg']}") from None


def config(source: str, revision: str | None = None) -> Qwen3Config:
    """The config alone: what tells whether `source` is a model, without its weights or the hub.

    Of a hub id no more than `config.json` is needed, from the hub or its cache. Raises
    CheckpointProblem.
    """
    if _is_hub_id(source):
        from kafila import hub

        return hub.config(source, revision)
    with _in_words():
        return read_config(_folder(source, revision) / "config.json")


def locate(
    source: str,
    revision: str | None = None,
    *,
    blocks: range | None = None,
    head: bool = True,
) -> Path:
    """The local folder that holds the weights of the given blocks (default: all) and the head.

    A hub id is downloaded (or taken from the hub's cache): no more shards than these blocks need,
    and always the config, tokenizer and template. Open it with
    `Checkpoint.open(folder, blocks, head=head)`. Raises CheckpointProblem.
    """
    if _is_hub_id(source):
        from kafila import hub

        return hub.download(source, revision, blocks, head=head)
    return _folder(source, revision)


@contextmanager
def _in_words() -> Iterator[None]:
    try:
        yield
    except CheckpointError as error:
        raise CheckpointProblem(str(error)) from None


def _bytes(shape: Shape, dtype: str) -> int:
    """Of an array in memory."""
    return prod(shape) * BYTES[dtype]


def _is_hub_id(source: str) -> bool:
    return source != DEMO and not Path(source).exists() and bool(_HUB_ID.fullmatch(source))


def _folder(source: str, revision: str | None) -> Path:
    if revision is not None:
        raise CheckpointProblem(f"{source} has no revisions; only a hub id has")
    folder = _DEMO_FOLDER if source == DEMO else Path(source).expanduser()
    if not folder.is_dir():
        raise CheckpointProblem(
            f"{source}: no such folder; name it with --model: a checkpoint's folder, a hub id "
            f"such as Qwen/Qwen3-8B, or '{DEMO}'"
        )
    return folder
