"""Manifests: sizes against the published table, and each fault as one CheckpointProblem."""

import dataclasses
import json
from math import prod
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from kafila.errors import BadFile, CheckpointProblem
from kafila.manifest import Manifest, locate
from kafila.probe.report import parse_probes
from stages.checkpoint import DTYPES, Checkpoint, Tensor, expected
from stages.config import Qwen3Config
from tests.session.samples import MANIFEST
from tools.make_checkpoint import SIZES, write_checkpoint
from tools.quantise import FORMATS, quantise

# size: block bytes, embedding bytes, all bytes, KV bytes per token: bfloat16, as published.
TABLE = {
    "0.6B": (31_461_888, 311_164_928, 1_192_099_840, 114_688),
    "1.7B": (100_672_000, 622_329_856, 3_441_149_952, 114_688),
    "4B": (201_861_632, 777_912_320, 8_044_936_192, 147_456),
    "4B-2507": (201_861_632, 777_912_320, 8_044_936_192, 147_456),
    "8B": (385_892_864, 1_244_659_712, 16_381_470_720, 147_456),
    "14B": (660_623_872, 1_555_824_640, 29_536_614_400, 163_840),
    "32B": (975_196_672, 1_555_824_640, 65_524_246_528, 262_144),
}


def headers_only(config: Qwen3Config) -> Checkpoint:
    """A checkpoint as its headers would describe it."""
    tensors, start = {}, 0
    for name, shape in expected(config).items():
        size = config.itemsize
        for n in shape:
            size *= n
        tensors[name] = Tensor(Path("x"), DTYPES[config.dtype], shape, start, start + size)
        start += size
    return Checkpoint(Path(), config, {}, tensors)


@pytest.mark.parametrize("size", TABLE)
def test_sizes_of_the_released_models(size: str) -> None:
    block, embed, whole, kv = TABLE[size]
    config = SIZES[size]
    manifest = Manifest.of_checkpoint(headers_only(config), name=size)
    norm = 2 * config.hidden
    assert manifest.block_bytes == block
    assert manifest.kv_bytes * manifest.blocks == kv
    assert manifest.head_read_bytes == embed + norm
    assert manifest.head_resident_bytes == embed * (1 if config.tied else 2) + norm
    assert manifest.blocks * block + manifest.head_resident_bytes == whole
    assert manifest.max_context == config.max_positions
    float32 = dataclasses.replace(config, dtype="float32")
    doubled = Manifest.of_checkpoint(headers_only(float32), name=size)
    assert (doubled.block_bytes, doubled.kv_bytes) == (2 * block, 2 * manifest.kv_bytes)
    assert doubled.digest != manifest.digest


@pytest.mark.parametrize("shard_bytes", [None, 100_000])
def test_a_folder(tmp_path: Path, shard_bytes: int | None) -> None:
    folder = write_checkpoint(tmp_path / "wisp", SIZES["tiny"], shard_bytes=shard_bytes)
    manifest = Manifest.of(str(folder))
    assert (manifest.name, manifest.revision, manifest.dtype) == ("wisp", None, "bfloat16")
    assert manifest.digest == SIZES["tiny"].digest
    weights = sum(file.stat().st_size for file in folder.glob("*.safetensors"))
    told = manifest.blocks * manifest.block_bytes + manifest.head_resident_bytes
    assert 0 < weights - told < 60_000, "all but the files' headers"
    assert Manifest.model_validate_json(manifest.model_dump_json()) == manifest
    assert locate(str(folder), blocks=range(2), head=False) == folder


@pytest.mark.parametrize("form", FORMATS)
def test_quantised_checkpoints_count_as_they_sit_in_memory(tmp_path: Path, form: str) -> None:
    """Dequantised to bfloat16, whatever they take on disk; or in int8."""
    config = dataclasses.replace(SIZES["tiny"], hidden=128, ffn=256)
    folder = write_checkpoint(tmp_path / "plain", config)
    plain = Manifest.of(str(folder))
    found = Manifest.of(str(quantise(folder, tmp_path / form, FORMATS[form])))
    assert (found.dtype, found.stored, found.kept) == ("bfloat16", form, None)
    for key in ("block_bytes", "head_read_bytes", "head_resident_bytes", "kv_bytes"):
        assert getattr(found, key) == getattr(plain, key)
    on_disk = sum(file.stat().st_size for file in (tmp_path / form).glob("*.safetensors"))
    assert on_disk < found.blocks * found.block_bytes + found.head_resident_bytes
    assert found.digest != plain.digest
    assert Manifest.model_validate_json(found.model_dump_json()) == found


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
def test_int8_counts_a_byte_a_weight_and_a_scale_a_row(size: str, dtype: str) -> None:
    config = dataclasses.replace(SIZES[size], dtype=dtype)
    plain = Manifest.of_checkpoint(headers_only(config), name=size)
    found = plain.kept_as("int8")
    kept = dataclasses.replace(config, kept="int8")
    bytes_of = {"int8": 1, "bfloat16": 2, "float32": 4}
    leaves = kept.block_leaves().values()
    assert found.block_bytes == sum(prod(shape) * bytes_of[dtype] for shape, dtype in leaves)
    assert found.digest == kept.digest != plain.digest
    assert (found.head_resident_bytes, found.kv_bytes) == (
        plain.head_resident_bytes,
        plain.kv_bytes,
    )
    assert found.kept_as("int8") == found.kept_as(None) == found
    assert "kept" not in plain.model_dump()
    assert found.model_dump()["kept"] == "int8"


def test_the_embedded_model() -> None:
    manifest = Manifest.of("demo")
    assert (manifest.name, manifest.revision) == ("demo", None)
    assert Checkpoint.open(locate("demo")).config.digest == manifest.digest


def test_the_name_is_the_folders_even_if_spelled_as_a_dot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = write_checkpoint(tmp_path / "wisp", SIZES["tiny"])
    monkeypatch.chdir(folder)
    assert Manifest.of(".").name == "wisp"


@pytest.mark.parametrize("ask", [Manifest.of, locate])
def test_sources_that_are_none(ask: object, tmp_path: Path) -> None:
    assert callable(ask)
    for source, revision, words in [
        (str(tmp_path / "none"), None, "no such folder; name it with --model.*hub id.*'demo'"),
        ("no/such/id", None, "no such folder"),
        (str(tmp_path), "main", "has no revisions"),
        ("demo", "main", "has no revisions"),
    ]:
        with pytest.raises(CheckpointProblem, match=words):
            ask(source, revision)


BOUNDS = [
    ({"hidden": 1 << 40}, "hidden must be less than or equal to 65536, not '1099511627776'"),
    ({"kv_heads": 0}, "kv_heads must be greater than or equal to 1, not '0'"),
    ({"kv_heads": 3}, "manifest: kv_heads 3 must divide heads 4"),
    ({"head_dim": 31}, "head_dim: Input should be a multiple of 2"),
    ({"ffn": 0}, "ffn must be greater than or equal to 1, not '0'"),
    ({"hidden": 65536, "ffn": 1 << 19}, "manifest: a block of these sizes is larger than any"),
    ({"blocks": -1}, "blocks must be greater than or equal to 1"),
    ({"vocab": 1 << 50}, "vocab must be less than or equal to"),
    ({"block_bytes": 0}, "block_bytes must be greater than or equal to 1"),
    ({"kept": "int4"}, "kept must be 'int8', not 'int4'"),
    ({"stored": "gptq"}, "stored must be 'fp8' or 'awq', not 'gptq'"),
    ({"dtype": "int4"}, "dtype must be 'bfloat16' or 'float32', not 'int4'"),
    ({"digest": "x"}, "digest must be sha256: and 64 hexadecimal digits"),
    ({"name": "\x1b[2J"}, "name must be text on one line, without control characters"),
    ({"revision": 5}, "revision must be text, not '5'; write \"5\" in quotes"),
    ({"heads": True}, "heads must be a whole number, not 'true'"),
    ({"depth": 3}, "unknown key 'depth'"),
]


@pytest.mark.parametrize(("change", "words"), BOUNDS)
def test_another_members_manifest_is_bounded(change: dict[str, Any], words: str) -> None:
    """A host's manifest decides what its joiners allocate and measure."""
    sizes = MANIFEST.model_dump() | change
    with pytest.raises(ValidationError):
        Manifest.model_validate_json(json.dumps(sizes))
    file = {"format": 1, "manifest": sizes, "reports": []}
    with pytest.raises(BadFile) as caught:
        parse_probes(json.dumps(file))
    assert words in str(caught.value)


def test_a_folders_name_is_checked_too(tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path / "wi\x1bsp", SIZES["tiny"])
    with pytest.raises(CheckpointProblem, match=r"'wi\\x1bsp': name: ") as caught:
        Manifest.of(str(folder))
    assert str(caught.value).isprintable()


def test_a_fault_of_the_files_is_a_checkpoint_problem(tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path / "wisp", SIZES["tiny"])
    (folder / "model.safetensors").write_bytes(b"")
    with pytest.raises(CheckpointProblem, match=r"model\.safetensors: truncated") as caught:
        Manifest.of(str(folder))
    assert caught.value.exit_code == 5
