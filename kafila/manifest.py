"""What planning must know of a model: sizes in exact bytes, from its config and tensor headers.

Never loads a weight and never a device; where the files come from (a folder, the embedded demo
model, a hub id) is decided here and nowhere else.
"""

import re
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from kafila.errors import CheckpointProblem
from stages.checkpoint import Checkpoint, CheckpointError

DEMO = "demo"
"""The word that names the embedded model; a folder of that name is `./demo`."""

_DEMO_FOLDER = Path(__file__).parent / "demo_model"
_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")


class Manifest(BaseModel):
    """A model's sizes. Reading is not residence: the head keeps more than it reads per token."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    """The hub id, `demo`, or the folder's name."""
    revision: str | None
    """The hub's commit; None for a folder."""
    digest: str
    """`Qwen3Config.digest`: equal for equal configs, so for equal tensor headers."""
    dtype: str
    """Of weights, KV cache and residual stream: "bfloat16" or "float32"."""
    blocks: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    ffn: int
    vocab: int
    tied: bool
    max_context: int
    """Tokens; YaRN's stretch included."""
    block_bytes: int
    """One block's tensors: what it reads per token, and what it keeps."""
    head_read_bytes: int
    """What the head reads per token: unembedding and final norm (an embedding is one row)."""
    head_resident_bytes: int
    """What the head keeps: embedding, unembedding (one copy when tied) and final norm."""
    kv_bytes: int
    """Keys and values of one token in one block."""

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
        try:
            checkpoint = Checkpoint.open(folder)
        except CheckpointError as error:
            raise CheckpointProblem(str(error)) from None
        name = DEMO if source == DEMO else folder.resolve().name
        return cls.of_checkpoint(checkpoint, name=name)

    @classmethod
    def of_checkpoint(
        cls, checkpoint: Checkpoint, *, name: str, revision: str | None = None
    ) -> "Manifest":
        """The manifest of a whole opened checkpoint."""
        config = checkpoint.config
        block = checkpoint.block_tensors(0)
        head = checkpoint.head_tensors()
        unembed = head.get("unembed", head["embed"])
        return cls(
            name=name,
            revision=revision,
            digest=config.digest,
            dtype=config.dtype,
            blocks=config.blocks,
            hidden=config.hidden,
            heads=config.heads,
            kv_heads=config.kv_heads,
            head_dim=config.head_dim,
            ffn=config.ffn,
            vocab=config.vocab,
            tied=config.tied,
            max_context=config.max_positions,
            block_bytes=sum(tensor.nbytes for tensor in block.values()),
            head_read_bytes=unembed.nbytes + head["norm"].nbytes,
            head_resident_bytes=sum(tensor.nbytes for tensor in head.values()),
            kv_bytes=config.kv_bytes,
        )


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


def _is_hub_id(source: str) -> bool:
    return source != DEMO and not Path(source).exists() and bool(_HUB_ID.fullmatch(source))


def _folder(source: str, revision: str | None) -> Path:
    if revision is not None:
        raise CheckpointProblem(f"{source} has no revisions; only a hub id has")
    folder = _DEMO_FOLDER if source == DEMO else Path(source).expanduser()
    if not folder.is_dir():
        raise CheckpointProblem(
            f"{source}: no such folder; name a checkpoint's folder, a hub id such as "
            f"Qwen/Qwen3-8B, or '{DEMO}'"
        )
    return folder
