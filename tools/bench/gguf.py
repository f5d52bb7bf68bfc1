"""A GGUF file with random weights of a Qwen3's shape, so that llama.cpp can run it for comparison.

Format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md (version 3: counts, typed
key-value pairs, tensor descriptions, then the tensors at multiples of 32 bytes). No vocabulary:
token numbers are all that a benchmark needs.
"""

import struct
from pathlib import Path
from typing import BinaryIO

import numpy as np

from stages.config import Qwen3Config
from stages.formats import Shape

ALIGNMENT = 32
UINT32, FLOAT32, STRING = 4, 6, 8
F32, BF16 = 0, 30
MOSTLY = {F32: 0, BF16: 32}
"""Type of most tensors -> the file's type."""

BLOCK_NAMES = {
    "input_norm": "attn_norm",
    "q": "attn_q",
    "k": "attn_k",
    "v": "attn_v",
    "q_norm": "attn_q_norm",
    "k_norm": "attn_k_norm",
    "o": "attn_output",
    "post_norm": "ffn_norm",
    "gate": "ffn_gate",
    "up": "ffn_up",
    "down": "ffn_down",
}
HEAD_NAMES = {"embed": "token_embd", "norm": "output_norm", "unembed": "output"}


def write(file: Path, config: Qwen3Config) -> Path:
    """Write it: matrices in the config's dtype, norms in float32."""
    kind = BF16 if config.dtype == "bfloat16" else F32
    tensors = {
        f"{name}.weight": shape
        for name, shape in [
            *((HEAD_NAMES[short], shape) for short, shape in config.head_shapes().items()),
            *(
                (f"blk.{i}.{BLOCK_NAMES[short]}", shape)
                for i in range(config.blocks)
                for short, shape in config.block_shapes().items()
            ),
        ]
    }
    kinds = {name: kind if len(shape) > 1 else F32 for name, shape in tensors.items()}
    pairs = _pairs(config, kind)
    with file.open("wb") as to:
        to.write(b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(pairs)))
        for key, (typed, value) in pairs.items():
            to.write(_string(key) + struct.pack("<I", typed))
            to.write(
                _string(value) if isinstance(value, str) else struct.pack(_FORMAT[typed], value)
            )
        offset = 0
        for name, shape in tensors.items():
            to.write(_string(name) + struct.pack(f"<I{len(shape)}Q", len(shape), *shape[::-1]))
            to.write(struct.pack("<IQ", kinds[name], offset))
            offset += _padded(_size(shape, kinds[name]))
        to.write(bytes(-to.tell() % ALIGNMENT))
        for name, shape in tensors.items():
            _write_values(to, shape, kinds[name])
    return file


_FORMAT = {UINT32: "<I", FLOAT32: "<f"}


def _pairs(config: Qwen3Config, kind: int) -> dict[str, tuple[int, int | float | str]]:
    own: dict[str, tuple[int, int | float | str]] = {
        "block_count": (UINT32, config.blocks),
        "context_length": (UINT32, config.max_positions),
        "embedding_length": (UINT32, config.hidden),
        "feed_forward_length": (UINT32, config.ffn),
        "attention.head_count": (UINT32, config.heads),
        "attention.head_count_kv": (UINT32, config.kv_heads),
        "attention.key_length": (UINT32, config.head_dim),
        "attention.value_length": (UINT32, config.head_dim),
        "attention.layer_norm_rms_epsilon": (FLOAT32, config.eps),
        "rope.freq_base": (FLOAT32, config.rope_theta),
        "vocab_size": (UINT32, config.vocab),
    }
    return {
        "general.architecture": (STRING, "qwen3"),
        "general.file_type": (UINT32, MOSTLY[kind]),
        "tokenizer.ggml.model": (STRING, "no_vocab"),
        **{f"qwen3.{key}": value for key, value in own.items()},
    }


def _write_values(to: BinaryIO, shape: Shape, kind: int) -> None:
    """Norms are ones; a matrix repeats a few values that keep its input's variance."""
    if kind == F32 and len(shape) == 1:
        values = np.ones(shape, np.float32)
    else:
        draw = np.random.default_rng(0).standard_normal(65_521, dtype=np.float32)
        scaled = (draw / np.sqrt(shape[-1])).astype("bfloat16" if kind == BF16 else np.float32)
        values = np.resize(scaled, shape)
    to.write(values.tobytes())
    to.write(bytes(-values.nbytes % ALIGNMENT))


def _size(shape: Shape, kind: int) -> int:
    return int(np.prod(shape)) * (2 if kind == BF16 else 4)


def _padded(size: int) -> int:
    return size + -size % ALIGNMENT


def _string(text: str) -> bytes:
    return struct.pack("<Q", len(text)) + text.encode()
