"""Checkpoints on disk: what is read of good ones, and that each fault names its file and tensor."""

import dataclasses
import json
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes  # noqa: F401 (teaches numpy the word bfloat16, for safetensors)
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors import safe_open

from stages.checkpoint import Checkpoint, CheckpointError, Tensor, read_header
from stages.config import Qwen3Config
from tools.make_checkpoint import SIZES, write_checkpoint

TINY = dataclasses.replace(SIZES["tiny"], blocks=3, vocab=96, hidden=32, ffn=48)
UNTIED = dataclasses.replace(TINY, tied=False, dtype="float32")

Edit = Callable[[dict[str, Any]], None]


def read(tensor: Tensor) -> bytes:
    with tensor.file.open("rb") as f:
        f.seek(tensor.start)
        return f.read(tensor.nbytes)


def edit_json(file: Path, edit: Edit) -> None:
    value = json.loads(file.read_text())
    edit(value)
    file.write_text(json.dumps(value))


def edit_header(file: Path, edit: Edit) -> None:
    """Change a safetensors header and keep the data behind it."""
    whole = file.read_bytes()
    (length,) = struct.unpack("<Q", whole[:8])
    header = json.loads(whole[8 : 8 + length])
    edit(header)
    text = json.dumps(header).encode()
    file.write_bytes(struct.pack("<Q", len(text)) + text + whole[8 + length :])


@pytest.fixture
def single(tmp_path: Path) -> Path:
    return write_checkpoint(tmp_path / "single", TINY, seed=1)


@pytest.fixture
def sharded(tmp_path: Path) -> Path:
    folder = write_checkpoint(tmp_path / "sharded", UNTIED, seed=1, shard_bytes=60_000)
    assert len(list(folder.glob("model-*-of-*.safetensors"))) > 3
    return folder


@pytest.mark.parametrize("shard_bytes", [None, 60_000])
@pytest.mark.parametrize("config", [TINY, UNTIED])
def test_reads_what_the_safetensors_package_reads(
    tmp_path: Path, config: Qwen3Config, shard_bytes: int | None
) -> None:
    folder = write_checkpoint(tmp_path / "model", config, shard_bytes=shard_bytes)
    checkpoint = Checkpoint.open(folder)
    assert checkpoint.config == config
    assert checkpoint.generation == {"do_sample": False}
    seen = set()
    for file in folder.glob("*.safetensors"):
        with safe_open(file, "numpy") as theirs:
            for name in theirs.keys():  # noqa: SIM118 (not a dict)
                ours, array = checkpoint.tensors[name], theirs.get_tensor(name)
                assert (ours.shape, ours.nbytes) == (array.shape, array.nbytes)
                assert read(ours) == array.tobytes()
                seen.add(name)
    assert seen == set(checkpoint.tensors)


def test_tensors_by_block_and_head(sharded: Path) -> None:
    checkpoint = Checkpoint.open(sharded)
    for block in range(UNTIED.blocks):
        tensors = checkpoint.block_tensors(block)
        assert {n: t["weight"].shape for n, t in tensors.items()} == UNTIED.block_shapes()
        q = checkpoint.tensors[f"model.layers.{block}.self_attn.q_proj.weight"]
        assert tensors["q"] == {"weight": q}
    head = checkpoint.head_tensors()
    assert {n: t["weight"].shape for n, t in head.items()} == UNTIED.head_shapes()
    assert head["unembed"] == {"weight": checkpoint.tensors["lm_head.weight"]}


def test_unembedding_is_dropped_when_tied(tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path / "model", TINY, spare_unembedding=True)
    with safe_open(folder / "model.safetensors", "numpy") as tensors:
        embed = tensors.get_tensor("model.embed_tokens.weight")
        assert np.array_equal(embed, tensors.get_tensor("lm_head.weight"))
    checkpoint = Checkpoint.open(folder)
    assert "lm_head.weight" not in checkpoint.tensors
    assert set(checkpoint.head_tensors()) == {"embed", "norm"}


def test_a_member_needs_only_the_shards_of_its_blocks(sharded: Path) -> None:
    whole = Checkpoint.open(sharded)
    for blocks, head in [(range(2, 3), False), (range(1), True)]:
        part = Checkpoint.open(sharded, blocks, head=head)
        needed = {tensor.file for tensor in part.tensors.values()}
        others = set(sharded.glob("*.safetensors")) - needed
        assert others
        moved = [other.rename(other.with_suffix(".away")) for other in others]
        again = Checkpoint.open(sharded, blocks, head=head)
        assert again == part
        for block in blocks:
            assert again.block_tensors(block) == whole.block_tensors(block)
        with pytest.raises(CheckpointError, match="shard is missing"):
            Checkpoint.open(sharded)
        for file in moved:
            file.rename(file.with_suffix(".safetensors"))
    with pytest.raises(CheckpointError, match="blocks 0-2, no block 3"):
        Checkpoint.open(sharded, range(2, 4))


def test_generation_config_may_be_absent(single: Path) -> None:
    (single / "generation_config.json").unlink()
    assert Checkpoint.open(single).generation == {}


def shard_of(folder: Path, tensor: str) -> Path:
    index = json.loads((folder / "model.safetensors.index.json").read_text())
    return folder / str(index["weight_map"][tensor])


def refused(folder: Path) -> str:
    with pytest.raises(CheckpointError) as caught:
        Checkpoint.open(folder)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_folder_and_config_faults(single: Path, tmp_path: Path) -> None:
    assert "no such folder" in refused(tmp_path / "nowhere")
    config = single / "config.json"
    text = config.read_text()
    for bad, words in [
        ("{", "not valid JSON"),
        ("[]", "not a JSON object"),
        ("\xff", "not valid JSON"),
        (text.replace('"qwen3"', '"llama"'), "architecture"),
        ("[" * 100_000, "not valid JSON"),
        (
            text.replace('"head_dim": 32', '"head_dim": 32, "head_dim": 64'),
            "head_dim is there twice",
        ),
    ]:
        config.write_text(bad, encoding="latin-1")
        message = refused(single)
        assert message.startswith(f"{config}: ")
        assert message.count(str(config)) == 1
        assert words in message
    config.unlink()
    assert refused(single) == f"{config}: no such file or directory"


def test_missing_weights(single: Path, sharded: Path) -> None:
    (single / "model.safetensors").unlink()
    assert "neither model.safetensors nor model.safetensors.index.json" in refused(single)
    shard = shard_of(sharded, "model.layers.1.mlp.up_proj.weight")
    shard.unlink()
    assert refused(sharded) == f"{shard}: this shard is missing"


def test_truncated_at_any_length(single: Path) -> None:
    file = single / "model.safetensors"
    whole = file.read_bytes()
    for size in (0, 7, 8, 100, len(whole) // 2, len(whole) - 1):
        file.write_bytes(whole[:size])
        message = refused(single)
        assert message.startswith(f"{file}: truncated")
    assert "tensor model.layers.2." in message
    file.write_bytes(whole + b"\0\0")
    assert "2 bytes after the last tensor" in refused(single)


def test_a_truncated_shard_names_file_and_tensor(sharded: Path) -> None:
    name = "model.layers.1.mlp.up_proj.weight"
    tensor = Checkpoint.open(sharded).tensors[name]
    with tensor.file.open("r+b") as f:
        f.truncate(tensor.stop - 1)
    message = refused(sharded)
    assert str(tensor.file) in message
    assert f"truncated: tensor {name} ends" in message


def test_headers_of_impossible_length(single: Path) -> None:
    file = single / "model.safetensors"
    for length in (2**63, 10**9):
        file.write_bytes(struct.pack("<Q", length) + b"{}")
        assert "not a safetensors file" in refused(single)


Q = "model.layers.1.self_attn.q_proj.weight"
NORM = "model.norm.weight"


def reshaped(header: dict[str, Any]) -> None:
    header[Q]["shape"].reverse()


def resized(header: dict[str, Any]) -> None:
    header[NORM]["shape"] = [31]


def renamed(header: dict[str, Any]) -> None:
    header["model.layers.1.self_attn.q_proj.bias"] = header.pop(Q)


def halved(header: dict[str, Any]) -> None:
    header[Q]["dtype"] = "F16"


def overlapping(header: dict[str, Any]) -> None:
    start, stop = header[NORM]["data_offsets"]
    header[NORM]["data_offsets"] = [start - 64, stop - 64]


def backwards(header: dict[str, Any]) -> None:
    header[NORM]["data_offsets"].reverse()


def wordless(header: dict[str, Any]) -> None:
    header[NORM] = "BF16"


def negative(header: dict[str, Any]) -> None:
    header[NORM]["shape"] = [-32]


def vast(header: dict[str, Any]) -> None:
    """Numbers that JSON may hold, and whose product takes minutes."""
    header[NORM]["shape"] = [10**4000] * 8


def many_dimensional(header: dict[str, Any]) -> None:
    header[NORM]["shape"] = [1] * 10_000


@pytest.mark.parametrize(
    ("edit", "words"),
    [
        (reshaped, f"tensor {Q} has shape [32, 128], but the config asks for [128, 32]"),
        (resized, f"tensor {NORM} has 64 bytes, which do not make shape [31] of BF16"),
        (renamed, "q_proj.bias belongs to no dense Qwen3"),
        (halved, f"tensor {Q} is F16, but the config's dtype is bfloat16"),
        (overlapping, "overlaps another or leaves a gap"),
        (backwards, f"tensor {NORM} has a malformed header entry"),
        (wordless, f"tensor {NORM} has a malformed header entry"),
        (negative, f"tensor {NORM} has a malformed header entry"),
        (vast, f"tensor {NORM} has a malformed header entry"),
        (many_dimensional, f"tensor {NORM} has a malformed header entry"),
    ],
)
def test_header_faults(single: Path, edit: Edit, words: str) -> None:
    file = single / "model.safetensors"
    edit_header(file, edit)
    message = refused(single)
    assert message.startswith(f"{file}: ")
    assert words in message


def test_missing_tensor(single: Path, sharded: Path) -> None:
    edit_json(single / "config.json", lambda c: c.update(num_hidden_layers=4))
    assert "tensor model.layers.3.input_layernorm.weight is missing" in refused(single)
    edit_json(single / "config.json", lambda c: c.update(num_hidden_layers=2))
    assert "tensor model.layers.2.input_layernorm.weight belongs to no" in refused(single)
    edit_json(single / "config.json", lambda c: c.update(num_hidden_layers=3))
    edit_json(single / "config.json", lambda c: c.update(tie_word_embeddings=False))
    assert "tensor lm_head.weight is missing from model.safetensors" in refused(single)
    index = sharded / "model.safetensors.index.json"
    edit_json(index, lambda i: i["weight_map"].pop(Q))
    assert refused(sharded) == f"{index}: tensor {Q} is missing"


def test_index_faults(sharded: Path) -> None:
    index = sharded / "model.safetensors.index.json"
    text = index.read_text()
    for place in ("../model.safetensors", 7, "/etc/passwd", "a\0b"):
        edit_json(index, lambda i, place=place: i["weight_map"].update({Q: place}))  # type: ignore[misc]
        assert f"tensor {Q} lies in {place!r}" in refused(sharded)
        index.write_text(text)
    index.write_text("{}")
    assert refused(sharded) == f"{index}: weight_map is missing"


def test_duplicates(sharded: Path) -> None:
    here, there = shard_of(sharded, NORM), shard_of(sharded, Q)
    assert here != there

    def add(header: dict[str, Any]) -> None:
        end = max(entry["data_offsets"][1] for n, entry in header.items() if n != "__metadata__")
        header[NORM] = {"dtype": "F32", "shape": [32], "data_offsets": [end, end + 128]}

    edit_header(there, add)
    with there.open("ab") as f:
        f.write(bytes(128))
    message = refused(sharded)
    assert f"tensor {NORM} is in " in message
    assert here.name in message
    assert there.name in message

    file = sharded / "twice.safetensors"
    entry = '"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}'
    text = ("{" + entry + "," + entry + "}").encode()
    file.write_bytes(struct.pack("<Q", len(text)) + text + bytes(4))
    with pytest.raises(CheckpointError, match="a is there twice"):
        read_header(file)


@given(st.binary(max_size=200), st.booleans())
def test_noise_holds_no_tensors(
    tmp_path_factory: pytest.TempPathFactory, noise: bytes, honest_length: bool
) -> None:
    file = tmp_path_factory.getbasetemp() / "noise.safetensors"
    file.write_bytes((struct.pack("<Q", len(noise)) if honest_length else b"") + noise)
    message = ""
    try:
        tensors = read_header(file)
    except CheckpointError as error:
        message = str(error)
    else:
        assert not tensors  # an empty object is a header: of a file without tensors
    assert message == "" or message.startswith(f"{file}: ")
