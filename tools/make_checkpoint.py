"""Write a random-weight Qwen3 checkpoint of any shape, bit for bit the same for the same seed.

For tests and benchmarks: the weights say nothing, but files, names, shapes and bytes are those of
a real checkpoint, and activations stay in a sane range. One piece of one tensor is in memory at a
time, so the 32B shape needs no more than the smallest.

    python -m tools.make_checkpoint 0.6B /tmp/model
    python -m tools.make_checkpoint tiny /tmp/model --blocks 5 --untied --dtype float32 --shard 1
"""

import dataclasses
import hashlib
import json
import math
import shutil
import struct
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import click
import numpy as np
from numpy.typing import NDArray

from stages.checkpoint import DTYPES, INDEX, SINGLE, expected
from stages.config import Qwen3Config, Yarn
from stages.formats import CheckpointError, Shape
from tools.quantise import FORMATS, quantise

PIECE = 1 << 22
"""Values made at a time; a multiple of the four that one draw gives."""

TOKENIZER = Path(__file__).parent.parent / "kafila" / "demo_model"
TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json")


def _size(
    hidden: int, blocks: int, heads: int, ffn: int, *, tied: bool, long: bool = False
) -> Qwen3Config:
    return Qwen3Config(
        hidden=hidden,
        blocks=blocks,
        heads=heads,
        kv_heads=8,
        head_dim=128,
        ffn=ffn,
        vocab=151936,
        eps=1e-6,
        rope_theta=5e6 if long else 1e6,
        yarn=None,
        tied=tied,
        max_positions=262144 if long else 40960,
        dtype="bfloat16",
    )


SIZES = {
    "tiny": dataclasses.replace(
        _size(64, 6, 4, 160, tied=True), kv_heads=2, head_dim=32, vocab=2048, max_positions=4096
    ),
    "0.6B": _size(1024, 28, 16, 3072, tied=True),
    "1.7B": _size(2048, 28, 16, 6144, tied=True),
    "4B": _size(2560, 36, 32, 9728, tied=True),
    "4B-2507": _size(2560, 36, 32, 9728, tied=True, long=True),
    "8B": _size(4096, 36, 32, 12288, tied=False),
    "14B": _size(5120, 40, 40, 17408, tied=False),
    "32B": _size(5120, 64, 64, 25600, tied=False),
}
"""The dense Qwen3 family as released, and one for tests."""


def write_checkpoint(
    folder: Path,
    config: Qwen3Config,
    *,
    seed: int = 0,
    shard_bytes: int | None = None,
    new_keys: bool = False,
    spare_unembedding: bool = False,
    tokenizer: Path | None = None,
) -> Path:
    """Write the checkpoint into a new folder, which appears when it is complete; return it.

    `shard_bytes` splits it into shards of about that size with an index; `new_keys` spells the
    config as transformers 5 does; `spare_unembedding` repeats a tied embedding as `lm_head.weight`,
    as the official 0.6B file does; `tokenizer` is a folder to copy a tokenizer from.
    """
    if folder.exists():
        raise FileExistsError(f"{folder} exists already")
    part = folder.with_name(folder.name + ".part")
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir(parents=True)
    shapes = expected(config)
    if spare_unembedding and config.tied:
        shapes["lm_head.weight"] = shapes["model.embed_tokens.weight"]
    _write_json(part / "config.json", config_json(config, new_keys=new_keys))
    _write_json(part / "generation_config.json", {"do_sample": False})
    shards = _shards(config, shapes, shard_bytes)
    places: dict[str, str] = {}
    for number, names in enumerate(shards, 1):
        file = SINGLE
        if shard_bytes is not None:
            file = f"model-{number:05}-of-{len(shards):05}.safetensors"
        places |= dict.fromkeys(names, file)
        with (part / file).open("wb") as f:
            _write_header(f, config, {name: shapes[name] for name in names})
            for name in names:
                for piece in tensor_bytes(config, name, shapes[name], seed):
                    f.write(piece)
    if shard_bytes is not None:
        total = sum(math.prod(shape) for shape in shapes.values()) * config.itemsize
        index = {"metadata": {"total_size": total}, "weight_map": places}
        _write_json(part / INDEX, index)
    if tokenizer is not None:
        for name in TOKENIZER_FILES:
            shutil.copyfile(tokenizer / name, part / name)
    return part.rename(folder)


def config_json(config: Qwen3Config, *, new_keys: bool = False) -> dict[str, object]:
    """The `config.json` of a config, in the older or newer spelling of its keys."""
    rope: dict[str, object] = {}
    if config.yarn is not None:
        rope = {
            "rope_type": "yarn",
            "factor": config.yarn.factor,
            "original_max_position_embeddings": config.yarn.original_positions,
        }
    common = {
        "architectures": ["Qwen3ForCausalLM"],
        "model_type": "qwen3",
        "attention_bias": False,
        "hidden_act": "silu",
        "hidden_size": config.hidden,
        "num_hidden_layers": config.blocks,
        "num_attention_heads": config.heads,
        "num_key_value_heads": config.kv_heads,
        "head_dim": config.head_dim,
        "intermediate_size": config.ffn,
        "vocab_size": config.vocab,
        "rms_norm_eps": config.eps,
        "tie_word_embeddings": config.tied,
        "max_position_embeddings": config.max_positions,
        "use_sliding_window": False,
        "sliding_window": None,
    }
    if new_keys:
        return common | {
            "dtype": config.dtype,
            "layer_types": ["full_attention"] * config.blocks,
            "rope_parameters": {"rope_type": "default", **rope, "rope_theta": config.rope_theta},
        }
    return common | {
        "torch_dtype": config.dtype,
        "max_window_layers": config.blocks,
        "rope_scaling": rope or None,
        "rope_theta": config.rope_theta,
    }


def tensor_bytes(config: Qwen3Config, name: str, shape: Shape, seed: int) -> Iterator[bytes]:
    """The bytes of one tensor, in pieces.

    Each value takes 16 of the raw bits of a PCG64 keyed by seed and name, whose stream numpy keeps
    stable (NEP 19), as a uniform step about the mean; all arithmetic on it is exact or correctly
    rounded float32. So the bytes depend on neither numpy's version nor the machine.
    """
    if name == "lm_head.weight" and config.tied:
        name = "model.embed_tokens.weight"
    key = hashlib.sha256(f"{seed} {name}".encode()).digest()
    bits = np.random.PCG64(np.random.SeedSequence(int.from_bytes(key[:16], "little")))
    mean, spread = _distribution(config, name, shape)
    step = np.float32(spread / 32768)
    left = math.prod(shape)
    while left:
        count = min(left, PIECE)
        raw = bits.random_raw(-(-count // 4)).astype("<u8").view("<u2")[:count]
        values = (raw.astype(np.float32) - np.float32(32767.5)) * step + np.float32(mean)
        yield _encode(values, config.dtype)
        left -= count


def _distribution(config: Qwen3Config, name: str, shape: Shape) -> tuple[float, float]:
    """Mean and half-width of a tensor's uniform values.

    A matrix keeps its input's variance; what is added to the residual stream is scaled by
    1/sqrt(2 blocks), so that depth does not blow it up. Logits get a standard deviation of 4 and
    attention scores one of about 2, so that a greedy choice is clear and depends on what came
    before. That comes from a large final norm and a small embedding: a large embedding, tied, would
    make every token predict itself.
    """
    if name == "model.norm.weight":
        return 16.0, 2.0
    if "norm" in name:
        return (1.5 if "q_norm" in name or "k_norm" in name else 1.0), 0.25
    gain = 1.0
    if "o_proj" in name or "down_proj" in name:
        gain = 1 / math.sqrt(2 * config.blocks)
    if name in ("model.embed_tokens.weight", "lm_head.weight"):
        gain = 0.25
    return 0.0, gain * math.sqrt(3 / shape[-1])


def _encode(values: NDArray[np.float32], dtype: str) -> bytes:
    if dtype == "float32":
        return values.astype("<f4").tobytes()
    bits = values.view(np.uint32)
    # Round to nearest, ties to even; the values are finite.
    return ((bits + np.uint32(0x7FFF) + ((bits >> 16) & 1)) >> 16).astype("<u2").tobytes()


def _shards(
    config: Qwen3Config, shapes: dict[str, Shape], shard_bytes: int | None
) -> list[list[str]]:
    shards: list[list[str]] = [[]]
    filled = 0
    for name, shape in shapes.items():
        size = math.prod(shape) * config.itemsize
        if shard_bytes is not None and shards[-1] and filled + size > shard_bytes:
            shards.append([])
            filled = 0
        shards[-1].append(name)
        filled += size
    return shards


def _write_header(f: BinaryIO, config: Qwen3Config, shapes: dict[str, Shape]) -> None:
    header: dict[str, object] = {"__metadata__": {"format": "pt"}}
    start = 0
    for name, shape in shapes.items():
        stop = start + math.prod(shape) * config.itemsize
        header[name] = {
            "dtype": DTYPES[config.dtype],
            "shape": list(shape),
            "data_offsets": [start, stop],
        }
        start = stop
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)  # the format asks for aligned data
    f.write(struct.pack("<Q", len(text)) + text)


def _write_json(file: Path, value: object) -> None:
    file.write_text(json.dumps(value, indent=2, sort_keys=True) + "\n", encoding="utf-8")


def digest(folder: Path) -> str:
    """SHA-256 over names and bytes of the checkpoint's files."""
    whole = hashlib.sha256()
    for file in sorted(folder.iterdir()):
        whole.update(f"{file.name} {file.stat().st_size}\n".encode())
        with file.open("rb") as f:
            while piece := f.read(1 << 20):
                whole.update(piece)
    return whole.hexdigest()


@click.command(context_settings={"show_default": True})
@click.argument("size", type=click.Choice(list(SIZES)))
@click.argument("folder", type=click.Path(path_type=Path))
@click.option("--hidden", type=click.IntRange(1), help="Width of the residual stream.")
@click.option("--blocks", type=click.IntRange(1), help="Transformer blocks.")
@click.option("--heads", type=click.IntRange(1), help="Query heads.")
@click.option("--kv-heads", type=click.IntRange(1), help="Key and value heads.")
@click.option("--head-dim", type=click.IntRange(2), help="Width of a head; even.")
@click.option("--ffn", type=click.IntRange(1), help="Width of the feed-forward part.")
@click.option("--vocab", type=click.IntRange(1), help="Rows of the embedding.")
@click.option("--tied/--untied", default=None, help="Embedding and unembedding one matrix or two.")
@click.option("--dtype", type=click.Choice(list(DTYPES)), help="Of every tensor.")
@click.option("--yarn", "factor", type=click.FloatRange(1), help="Stretch positions by a factor.")
@click.option("--shard", type=click.FloatRange(0, min_open=True), help="Largest shard, in MB.")
@click.option("--new-keys", is_flag=True, help="Spell config.json as transformers 5 does.")
@click.option("--format", type=click.Choice(list(FORMATS)), help="As official quantised ones.")
@click.option("--tokenizer", is_flag=True, help="Add the demo model's tokenizer, to serve it.")
@click.option("--seed", type=click.IntRange(0), default=0, help="Same seed, same bytes.")
def main(
    size: str,
    folder: Path,
    factor: float | None,
    shard: float | None,
    new_keys: bool,
    format: str | None,
    tokenizer: bool,
    seed: int,
    **changes: int | bool | str | None,
) -> None:
    """Write a random-weight checkpoint of SIZE, changed by the options, into a new FOLDER."""
    given = {name: value for name, value in changes.items() if value is not None}
    config = stretched(dataclasses.replace(SIZES[size], **given), factor)  # type: ignore[arg-type]
    written = folder.with_name(folder.name + ".plain") if format else folder
    try:
        if folder.exists():
            raise FileExistsError(f"{folder} exists already")
        write_checkpoint(
            written,
            Qwen3Config.from_dict(config_json(config)),
            seed=seed,
            shard_bytes=None if shard is None else int(shard * 1e6),
            new_keys=new_keys,
            tokenizer=TOKENIZER if tokenizer else None,
        )
        if format:
            quantise(written, folder, FORMATS[format])
            shutil.rmtree(written)
    except (CheckpointError, OSError) as error:
        raise click.ClickException(str(error)) from None
    size_bytes = sum(file.stat().st_size for file in folder.iterdir())
    click.echo(f"{folder}: {config.blocks} blocks, {size_bytes:,} bytes")


def stretched(config: Qwen3Config, factor: float | None) -> Qwen3Config:
    """The config with YaRN over its present positions (Peng et al. 2023), defaults as theirs."""
    if factor is None:
        return config
    yarn = Yarn(
        factor=factor,
        original_positions=config.max_positions,
        attention_factor=0.1 * math.log(factor) + 1,
        beta_fast=32.0,
        beta_slow=1.0,
        truncate=True,
    )
    return dataclasses.replace(config, yarn=yarn, max_positions=int(factor * config.max_positions))


if __name__ == "__main__":
    sys.exit(main())
