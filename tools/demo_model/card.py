"""The model card beside the weights."""

from __future__ import annotations

from math import prod

from .evaluate import Score
from .model import ModelConfig, shapes
from .training import Recipe

_CARD = """---
license: apache-2.0
language: en
pipeline_tag: text-generation
---

# Kafila's demo model

A Qwen3 of {weights:.2f} million weights that `make demo` serves. It exists so that a ring of
members can be tried without a download: it tells short stories, does sums with numbers up to 99,
answers a few hundred simple questions, and says so when it does not know. It is a toy; expect no
more of it.

| | |
|---|---|
| architecture | `Qwen3ForCausalLM`, {layers} blocks, {heads} query and {kv_heads} key heads |
| widths | hidden {hidden}, head {head_dim}, SwiGLU {ffn} |
| vocabulary | {vocab} byte-level BPE tokens of its own, one a digit; ChatML |
| weights | bfloat16, embedding and unembedding tied |
| context | trained on rows of {trained} tokens with positions up to {context} |
| held-out sums exactly right | {sums_right} of {sums_asked} (number pairs never seen in training) |
| held-out facts exactly right | {facts_right} of {facts_asked} (wordings new for that fact) |

## How it was made

    python -m tools.train_demo_model --steps {steps} --seed {seed}

All of its texts come from the grammar in `tools/demo_model`: tables of facts, plots in steps, sums.
Nothing was copied from anywhere, and no other model was used. It was trained from scratch on
two CPU cores in {core_minutes:.0f} core-minutes, in float32 with AdamW, the loss taken on its own
turns only.
"""


def card(
    config: ModelConfig, recipe: Recipe, core_minutes: float, of_sums: Score, of_facts: Score
) -> str:
    """What the model is, how good, and how it was made, as Markdown."""
    return _CARD.format(
        weights=sum(prod(shape) for shape in shapes(config).values()) / 1e6,
        layers=config.num_layers,
        hidden=config.hidden_size,
        heads=config.num_heads,
        head_dim=config.head_dim,
        kv_heads=config.num_kv_heads,
        ffn=config.intermediate_size,
        vocab=config.vocab_size,
        trained=config.trained_context,
        context=config.max_positions,
        sums_right=of_sums.right,
        sums_asked=of_sums.asked,
        facts_right=of_facts.right,
        facts_asked=of_facts.asked,
        steps=recipe.steps,
        seed=recipe.seed,
        core_minutes=core_minutes,
    )
