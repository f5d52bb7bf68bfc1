"""A Hugging Face checkpoint on disk: which bytes of which file are which tensor.

Reads `config.json` and the headers of safetensors files, never a weight; imports no JAX.
Format: https://github.com/huggingface/safetensors#format (8-byte little-endian header length, JSON
header, then the tensors' bytes without gaps).
"""

import json
import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

from stages.config import DTYPES, Qwen3Config
from stages.formats import FLOATS, ITEMSIZES, CheckpointError, Parts, Shape, quantises

__all__ = ["DTYPES", "Checkpoint", "CheckpointError", "Tensor"]

SINGLE = "model.safetensors"
INDEX = "model.safetensors.index.json"

MAX_HEADER = 100_000_000
"""The format's own bound on a header; a longer one is a broken or hostile file."""

MOST_DIMENSIONS = 8
"""Of a tensor; a model's have two at most."""

MAX_JSON = 64 << 20
"""Bound on config and index files; the index of the largest Qwen3 has 60 KB."""

_BLOCK_NAMES = {
    "input_norm": "input_layernorm",
    "q": "self_attn.q_proj",
    "k": "self_attn.k_proj",
    "v": "self_attn.v_proj",
    "q_norm": "self_attn.q_norm",
    "k_norm": "self_attn.k_norm",
    "o": "self_attn.o_proj",
    "post_norm": "post_attention_layernorm",
    "gate": "mlp.gate_proj",
    "up": "mlp.up_proj",
    "down": "mlp.down_proj",
}
_HEAD_NAMES = {
    "embed": "model.embed_tokens.weight",
    "norm": "model.norm.weight",
    "unembed": "lm_head.weight",
}


@dataclass(frozen=True)
class Tensor:
    """Where a tensor lies: bytes `start` to `stop` of `file`, row-major, little-endian."""

    file: Path
    dtype: str
    """As the header writes it: a word of `stages.formats.ITEMSIZES`."""
    shape: Shape
    start: int
    stop: int

    @property
    def nbytes(self) -> int:
        return self.stop - self.start


@dataclass(frozen=True)
class Checkpoint:
    """A checked checkpoint. `tensors` holds the ones of the model, by their names on disk."""

    path: Path
    config: Qwen3Config
    generation: dict[str, Any]
    """`generation_config.json`, empty where there is none."""
    tensors: dict[str, Tensor]

    @classmethod
    def open(
        cls, path: str | Path, blocks: Iterable[int] | None = None, *, head: bool = True
    ) -> "Checkpoint":
        """Read and check a checkpoint's folder; headers only.

        With `blocks` given, only shards that hold those blocks (and, if `head`, the head's tensors)
        need to be there: a member downloads no more.

        Raises CheckpointError, naming file and tensor, for whatever is missing, truncated,
        duplicated, of another shape, dtype or architecture.
        """
        path = Path(path)
        if not path.is_dir():
            raise CheckpointError(f"{path}: no such folder")
        config = read_config(path / "config.json")
        generation = path / "generation_config.json"
        wanted = expected(config, blocks, head=head)
        headers = {name: read_header(path / name) for name in shards(path, wanted)}
        return cls(
            path=path,
            config=config,
            generation=read_json(generation) if generation.exists() else {},
            tensors=choose(path, config, wanted, headers),
        )

    def files(self) -> dict[Path, tuple[int, ...]]:
        """What `identity` says now of each file that the tensors lie in, but for the last: others
        may change permissions meanwhile, or link to it. Raises CheckpointError."""
        return {file: identity(file)[:-1] for file in {t.file for t in self.tensors.values()}}

    def block_tensors(self, block: int) -> dict[str, dict[str, Tensor]]:
        """Tensors of one block by the short names of `Qwen3Config.block_shapes`, and by part.

        The only part is "weight", unless a matrix is quantised (`stages.formats`).
        """
        tensors = {}
        for short, shape in self.config.block_shapes().items():
            module = _module(block, short)
            parts = _parts(self.config, module, shape)
            tensors[short] = {part: self.tensors[f"{module}.{part}"] for part in parts}
        return tensors

    def head_tensors(self) -> dict[str, dict[str, Tensor]]:
        """Tensors of the head by the short names of `Qwen3Config.head_shapes`, and by part."""
        shorts = self.config.head_shapes()
        return {short: {"weight": self.tensors[_HEAD_NAMES[short]]} for short in shorts}


def expected(
    config: Qwen3Config, blocks: Iterable[int] | None = None, *, head: bool = True
) -> dict[str, Shape]:
    """Name on disk -> shape of every tensor of the given blocks (default: all) and the head."""
    return {name: shape for name, (_, shape) in _expected(config, blocks, head=head).items()}


def _expected(
    config: Qwen3Config, blocks: Iterable[int] | None = None, *, head: bool = True
) -> Parts:
    """Name on disk -> dtypes it may have, and its shape."""
    tensors: Parts = {}
    if head:
        dtypes = _dtypes(config)
        tensors |= {_HEAD_NAMES[name]: (dtypes, s) for name, s in config.head_shapes().items()}
    for block in range(config.blocks) if blocks is None else blocks:
        if block not in range(config.blocks):
            raise CheckpointError(f"the model has blocks 0-{config.blocks - 1}, no block {block}")
        for short, shape in config.block_shapes().items():
            module = _module(block, short)
            parts = _parts(config, module, shape)
            tensors |= {f"{module}.{part}": wanted for part, wanted in parts.items()}
    return tensors


def _module(block: int, short: str) -> str:
    """Name on disk of what a block's tensors of this short name belong to."""
    return f"model.layers.{block}.{_BLOCK_NAMES[short]}"


def _parts(config: Qwen3Config, module: str, shape: Shape) -> Parts:
    """What a weight of this shape is stored as."""
    if config.stored is not None and len(shape) == 2 and quantises(config.stored, module):
        return config.stored.parts(*shape)
    return {"weight": (_dtypes(config), shape)}


def _dtypes(config: Qwen3Config) -> tuple[str, ...]:
    """Of tensors that are not quantised."""
    return (DTYPES[config.dtype],) if config.stored is None else FLOATS


def read_config(file: Path) -> Qwen3Config:
    """The model's config from a `config.json`; CheckpointError names the file."""
    try:
        return Qwen3Config.from_dict(read_json(file))
    except CheckpointError as error:
        if str(error).startswith(str(file)):
            raise
        raise CheckpointError(f"{file}: {error}") from None


def read_json(file: Path) -> dict[str, Any]:
    """A JSON object from a file of bounded size; CheckpointError names the file."""
    try:
        if file.stat().st_size > MAX_JSON:
            raise CheckpointError(f"{file}: larger than {MAX_JSON >> 20} MiB")
        text = file.read_bytes()
    except OSError as error:
        raise CheckpointError(f"{file}: {_reason(error)}") from None
    return _parse(file, text)


def shards(path: Path, wanted: Iterable[str]) -> list[str]:
    """Names of the files that hold the wanted tensors, of a single-file or a sharded checkpoint."""
    if (path / SINGLE).exists():
        return [SINGLE]
    index = path / INDEX
    if not index.exists():
        raise CheckpointError(f"{path}: neither {SINGLE} nor {INDEX} is there")
    return indexed_shards(index, wanted)


def indexed_shards(index: Path, wanted: Iterable[str]) -> list[str]:
    """Names of the shards that the index gives for the wanted tensors, sorted."""
    places = read_json(index).get("weight_map")
    if not isinstance(places, dict):
        raise CheckpointError(f"{index}: weight_map is missing")
    names = set()
    for tensor in wanted:
        name = places.get(tensor)
        if name is None:
            raise CheckpointError(f"{index}: tensor {tensor} is missing")
        # A shard lies beside its index; anything else would read files of other folders.
        if not isinstance(name, str) or Path(name).name != name or not name.isprintable():
            raise CheckpointError(f"{index}: tensor {tensor} lies in {name!r}, not a shard's name")
        names.add(name)
    return sorted(names)


def identity(file: Path) -> tuple[int, ...]:
    """What a file has no longer when something else is written to its place, or over it.

    Copies of another model may have the same size and date, but not the same time of the inode's
    change, which comes last. Raises CheckpointError.
    """
    try:
        found = file.stat()
    except OSError as error:
        raise CheckpointError(f"{file} cannot be read: {_reason(error)}") from None
    return found.st_size, found.st_mtime_ns, found.st_ino, found.st_ctime_ns


def read_header(file: Path) -> dict[str, Tensor]:
    """Every tensor of one safetensors file, from its header; CheckpointError names the file."""
    try:
        size = file.stat().st_size
        with file.open("rb") as f:
            prefix = f.read(8)
            if len(prefix) < 8:
                raise CheckpointError(f"{file}: truncated ({size:,} bytes, no header)")
            (length,) = struct.unpack("<Q", prefix)
            if length > MAX_HEADER:
                raise CheckpointError(f"{file}: not a safetensors file (header of {length} bytes)")
            if 8 + length > size:
                raise CheckpointError(f"{file}: truncated within its header ({size:,} bytes)")
            header = _parse(file, f.read(length))
    except FileNotFoundError:
        raise CheckpointError(f"{file}: this shard is missing") from None
    except OSError as error:
        raise CheckpointError(f"{file}: {_reason(error)}") from None
    header.pop("__metadata__", None)
    tensors = {name: _tensor(file, name, 8 + length, entry) for name, entry in header.items()}
    _check_extent(file, 8 + length, size, tensors)
    return tensors


def choose(
    path: Path,
    config: Qwen3Config,
    wanted: Mapping[str, Shape],
    headers: Mapping[str, Mapping[str, Tensor]],
) -> dict[str, Tensor]:
    """Check the headers (file name -> tensors) against the config; return the wanted tensors.

    Raises CheckpointError for a tensor that is missing, in two files, of no Qwen3 model, or of
    another shape or dtype than the config says.
    """
    known = _expected(config)
    # The official 0.6B file carries the unembedding although it is the embedding once more.
    spare = {_HEAD_NAMES["unembed"]} if config.tied else set()
    found: dict[str, Tensor] = {}
    for file, header in headers.items():
        for name, tensor in header.items():
            where = f"{path / file}: tensor {name}"
            if name in found:
                raise CheckpointError(f"{where} is in {found[name].file.name} too")
            found[name] = tensor
            if name in spare:
                continue
            if name not in known:
                raise CheckpointError(f"{where} belongs to no dense Qwen3 of this config")
            dtypes, shape = known[name]
            if tensor.dtype not in dtypes:
                raise CheckpointError(f"{where} is {tensor.dtype}, {_wanted(config, dtypes)}")
            if tensor.shape != shape:
                raise CheckpointError(
                    f"{where} has shape {list(tensor.shape)}, but the config asks for {list(shape)}"
                )
    for name in wanted:
        if name not in found:
            raise CheckpointError(f"{path}: tensor {name} is missing from {', '.join(headers)}")
    return {name: found[name] for name in wanted}


def _wanted(config: Qwen3Config, dtypes: tuple[str, ...]) -> str:
    if config.stored is None:
        return (
            f"but the config's dtype is {config.dtype}; "
            "convert the checkpoint to one of bfloat16 and float32 throughout"
        )
    return f"but the config's quantization_config ({config.stored.name}) asks for " + " or ".join(
        dtypes
    )


def _tensor(file: Path, name: str, base: int, entry: Any) -> Tensor:
    """One entry of a header; `base` is where the tensors' bytes begin."""
    match entry:
        case {"dtype": str(dtype), "shape": [*shape], "data_offsets": [int(start), int(stop)]} if (
            0 <= start <= stop
            and len(shape) <= MOST_DIMENSIONS
            and all(isinstance(n, int) and 0 <= n < 1 << 63 for n in shape)
        ):
            pass
        case _:
            raise CheckpointError(f"{file}: tensor {name} has a malformed header entry")
    if dtype in ITEMSIZES and stop - start != prod(shape) * ITEMSIZES[dtype]:
        raise CheckpointError(
            f"{file}: tensor {name} has {stop - start:,} bytes, "
            f"which do not make shape {shape} of {dtype}"
        )
    return Tensor(file, dtype, tuple(shape), base + start, base + stop)


def _check_extent(file: Path, base: int, size: int, tensors: Mapping[str, Tensor]) -> None:
    """The tensors must fill the file from `base` to its end, without gap or overlap."""
    end = base
    for name, tensor in sorted(tensors.items(), key=lambda item: (item[1].start, item[1].stop)):
        if tensor.start != end:
            raise CheckpointError(f"{file}: tensor {name} overlaps another or leaves a gap")
        if tensor.stop > size:
            raise CheckpointError(
                f"{file}: truncated: tensor {name} ends at byte {tensor.stop:,} "
                f"of a file of {size:,} bytes; fetch the file again"
            )
        end = tensor.stop
    if end != size:
        raise CheckpointError(f"{file}: {size - end:,} bytes after the last tensor")


def _parse(file: Path, text: bytes) -> dict[str, Any]:
    try:
        value = json.loads(text, object_pairs_hook=_unique)
    except CheckpointError as error:
        raise CheckpointError(f"{file}: {error}") from None
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{file}: not valid JSON ({error})") from None
    if not isinstance(value, dict):
        raise CheckpointError(f"{file}: not a JSON object")
    return value


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """JSON lets a key appear twice and Python keeps the last; for tensors that hides a fault."""
    value = dict(pairs)
    if len(value) != len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise CheckpointError(f"{twice} is there twice")
    return value


def _reason(error: OSError) -> str:
    return (error.strerror or str(error)).lower()
