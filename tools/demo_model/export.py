"""Writing the checkpoint as a Hugging Face directory, and reading it back."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import jax
import jax.numpy as jnp
from safetensors.flax import load_file, save_file
from tokenizers import Tokenizer

from .model import ModelConfig, Params
from .tokenizer import END_OF_TEXT_ID, IM_END_ID, tokenizer_config


def _write_json(path: Path, value: Mapping[str, object]) -> None:
    path.write_text(json.dumps(value, indent=2) + "\n", encoding="utf-8")


def write(folder: Path, config: ModelConfig, params: Params, tokenizer: Tokenizer) -> None:
    """The checkpoint's files but for its card; weights in bfloat16."""
    tensors = {name: value.astype(jnp.bfloat16) for name, value in params.items()}
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "model.safetensors").chmod(0o644)  # the writer makes it private
    tokenizer.save(str(folder / "tokenizer.json"), pretty=False)
    _write_json(folder / "tokenizer_config.json", tokenizer_config(config.max_positions))
    _write_json(folder / "config.json", config.to_hf(IM_END_ID, END_OF_TEXT_ID))
    _write_json(
        folder / "generation_config.json",
        {
            "do_sample": True,
            "eos_token_id": [IM_END_ID, END_OF_TEXT_ID],
            "pad_token_id": END_OF_TEXT_ID,
            "temperature": 0.6,
            "top_k": 20,
            "top_p": 0.95,
        },
    )


def read(folder: Path) -> tuple[dict[str, jax.Array], Tokenizer]:
    """The written weights, back in float32, and the written tokenizer."""
    tensors = load_file(folder / "model.safetensors")
    params = {name: jnp.asarray(value, jnp.float32) for name, value in tensors.items()}
    return params, Tokenizer.from_file(str(folder / "tokenizer.json"))


def size(folder: Path) -> int:
    """Bytes of all files in `folder`."""
    return sum(path.stat().st_size for path in folder.iterdir() if path.is_file())
