"""Make tests/goldens: what transformers' own Qwen3 answers on small seeded checkpoints.

Needs torch and transformers; the default tests read the files it leaves and need neither. The
checkpoints themselves are not kept: `tools.make_checkpoint` rewrites them from their seed.

    python -m tools.make_goldens
"""

import dataclasses
import json
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import numpy as np
from numpy.typing import NDArray

from stages.config import Qwen3Config
from tools.make_checkpoint import SIZES, digest, stretched, write_checkpoint

GOLDENS = Path(__file__).parent.parent / "tests" / "goldens"

PROMPT_TOKENS = 37
"""No power of two, so that it never fills a bucket or a chunk exactly."""
NEW_TOKENS = 128
LOGITS_AT = (0, 20, PROMPT_TOKENS - 1, PROMPT_TOKENS, 100, PROMPT_TOKENS + NEW_TOKENS - 1)
"""Positions in prompt + answer whose logits are kept."""
CLEAR_GAP = 5e-3
"""Least distance of the two best logits; float32 errs by 1e-4 here, so choices are clear."""


@dataclass(frozen=True)
class Case:
    """A checkpoint that `write` makes, and which prompt it is asked."""

    config: Qwen3Config
    seed: int
    shard_bytes: int | None = None
    new_keys: bool = False
    spare_unembedding: bool = False

    def write(self, folder: Path) -> Path:
        """Make the checkpoint in a new folder."""
        return write_checkpoint(
            folder,
            self.config,
            seed=self.seed,
            shard_bytes=self.shard_bytes,
            new_keys=self.new_keys,
            spare_unembedding=self.spare_unembedding,
        )

    @property
    def prompt(self) -> list[int]:
        """Tokens spread over the vocabulary."""
        return [(i * i * 31 + 7 * i + self.seed) % self.config.vocab for i in range(PROMPT_TOKENS)]


@dataclass(frozen=True)
class Golden:
    """One case's answer. Logits are float32 [len(LOGITS_AT), vocab]."""

    digest: str
    tokens: list[int]
    smallest_gap: float
    logits: NDArray[np.float32]

    @classmethod
    def read(cls, name: str) -> "Golden":
        words = json.loads((GOLDENS / f"{name}.json").read_text(encoding="utf-8"))
        return cls(logits=np.load(GOLDENS / f"{name}.npy"), **words)

    def write(self, name: str) -> None:
        words = dataclasses.asdict(self)
        np.save(GOLDENS / f"{name}.npy", words.pop("logits"))
        (GOLDENS / f"{name}.json").write_text(json.dumps(words) + "\n", encoding="utf-8")


def _small(hidden: int, blocks: int, heads: int, kv_heads: int, **more: Any) -> Qwen3Config:
    """float32, and (as in 0.6B, 4B and 32B) heads that together are wider than the stream."""
    base = dataclasses.replace(SIZES["tiny"], dtype="float32", vocab=512)
    return dataclasses.replace(
        base, hidden=hidden, blocks=blocks, heads=heads, kv_heads=kv_heads, **more
    )


CASES = {
    "tied": Case(_small(64, 6, 4, 2), seed=1),
    "tied-spare": Case(_small(64, 5, 4, 2), seed=9, spare_unembedding=True, new_keys=True),
    "untied-sharded": Case(
        _small(48, 7, 6, 3, head_dim=16, ffn=112, tied=False), seed=3, shard_bytes=90_000
    ),
    "yarn": Case(
        stretched(_small(64, 5, 4, 1, max_positions=48, rope_theta=1e4), 4.0),
        seed=4,
        shard_bytes=200_000,
    ),
    "yarn-new-keys": Case(
        stretched(_small(40, 6, 8, 4, head_dim=8, max_positions=64, tied=False), 8.0),
        seed=6,
        new_keys=True,
    ),
}


def ask_transformers(case: Case, folder: Path) -> Golden:
    """What transformers' Qwen3 answers in float32 on the CPU with its plain attention."""
    import torch  # type: ignore[import-not-found,unused-ignore]
    from transformers import (  # type: ignore[import-not-found,unused-ignore]
        AutoModelForCausalLM,
    )

    model = AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float32, attn_implementation="eager", local_files_only=True
    ).eval()
    prompt = torch.tensor([case.prompt])
    with torch.inference_mode():
        whole = model.generate(
            prompt,
            attention_mask=torch.ones_like(prompt),
            max_new_tokens=NEW_TOKENS,
            do_sample=False,
            eos_token_id=None,
            pad_token_id=0,
        )
        logits = model(whole).logits[0]
    best = logits[PROMPT_TOKENS - 1 : -1].topk(2).values
    return Golden(
        digest=digest(folder),
        tokens=whole[0, PROMPT_TOKENS:].tolist(),
        smallest_gap=float((best[:, 0] - best[:, 1]).min()),
        logits=logits[list(LOGITS_AT)].numpy(),
    )


@click.command()
@click.argument("names", nargs=-1, type=click.Choice(list(CASES)))
def main(names: tuple[str, ...]) -> None:
    """Make the golden files of the named cases, or of all."""
    GOLDENS.mkdir(exist_ok=True)
    for name in names or CASES:
        with tempfile.TemporaryDirectory() as scratch:
            golden = ask_transformers(CASES[name], CASES[name].write(Path(scratch) / "model"))
        if golden.smallest_gap < CLEAR_GAP:
            raise click.ClickException(f"{name}: gap {golden.smallest_gap:.2g}; take another seed")
        golden.write(name)
        kinds = len(set(golden.tokens))
        click.echo(f"{name}: smallest gap {golden.smallest_gap:.2g}, {kinds} different tokens")


if __name__ == "__main__":
    sys.exit(main())
