"""Manifests: sizes against the published table, and each fault as one CheckpointProblem."""

import dataclasses
from pathlib import Path

import pytest

from kafila.errors import CheckpointProblem
from kafila.manifest import Manifest, locate
from stages.checkpoint import DTYPES, Checkpoint, Tensor, expected
from stages.config import Qwen3Config
from tools.make_checkpoint import SIZES, write_checkpoint

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
        (str(tmp_path / "none"), None, "no such folder.*hub id.*'demo'"),
        ("no/such/id", None, "no such folder"),
        (str(tmp_path), "main", "has no revisions"),
        ("demo", "main", "has no revisions"),
    ]:
        with pytest.raises(CheckpointProblem, match=words):
            ask(source, revision)


def test_a_fault_of_the_files_is_a_checkpoint_problem(tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path / "wisp", SIZES["tiny"])
    (folder / "model.safetensors").write_bytes(b"")
    with pytest.raises(CheckpointProblem, match=r"model\.safetensors: truncated") as caught:
        Manifest.of(str(folder))
    assert caught.value.exit_code == 5
