"""The checkpoint maker: same seed, same bytes; every option reaches the files; sane weights."""

import dataclasses
import json
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from click.testing import CliRunner

from stages.checkpoint import Checkpoint, Tensor
from tests.reference import Reference
from tools.make_checkpoint import (
    SIZES,
    TOKENIZER_FILES,
    digest,
    main,
    tensor_bytes,
    write_checkpoint,
)

TINY = dataclasses.replace(SIZES["tiny"], blocks=2, vocab=96)


def read_tensor(tensor: Tensor) -> bytes:
    return tensor.file.read_bytes()[tensor.start : tensor.stop]


def test_made_checkpoints_depend_on_the_seed_alone(tmp_path: Path) -> None:
    first = write_checkpoint(tmp_path / "a", TINY, seed=5)
    again = write_checkpoint(tmp_path / "b", TINY, seed=5)
    other = write_checkpoint(tmp_path / "c", TINY, seed=6)
    assert digest(first) == digest(again) != digest(other)
    with pytest.raises(FileExistsError):
        write_checkpoint(first, TINY)
    # Sharding moves tensors, not their bytes.
    shards = Checkpoint.open(write_checkpoint(tmp_path / "d", TINY, seed=5, shard_bytes=9_000))
    for name, tensor in Checkpoint.open(first).tensors.items():
        assert read_tensor(tensor) == read_tensor(shards.tensors[name])


def test_the_generator_gives_what_it_always_gave() -> None:
    config = dataclasses.replace(TINY, dtype="float32")
    (single,) = tensor_bytes(config, "model.norm.weight", (6,), seed=3)
    values = np.frombuffer(single, "<f4")
    assert values.tolist() == [
        15.916961669921875,
        14.381744384765625,
        17.655303955078125,
        14.083709716796875,
        14.172210693359375,
        15.646087646484375,
    ]


def test_rounding_to_bfloat16_is_to_nearest_even() -> None:
    shape = (256, 64)
    config = dataclasses.replace(TINY, dtype="float32")
    single = b"".join(tensor_bytes(config, "model.embed_tokens.weight", shape, seed=3))
    half = b"".join(tensor_bytes(TINY, "model.embed_tokens.weight", shape, seed=3))
    assert np.frombuffer(single, "<f4").astype(ml_dtypes.bfloat16).tobytes() == half


def test_a_tensor_in_pieces_is_the_tensor_in_one(monkeypatch: pytest.MonkeyPatch) -> None:
    shape = (37, 11)
    whole = b"".join(tensor_bytes(TINY, "lm_head.weight", shape, 1))
    monkeypatch.setattr("tools.make_checkpoint.PIECE", 64)
    pieces = list(tensor_bytes(TINY, "lm_head.weight", shape, 1))
    assert len(pieces) == 7
    assert b"".join(pieces) == whole


def test_activations_stay_sane(tmp_path: Path) -> None:
    config = dataclasses.replace(TINY, blocks=24, tied=False)
    reference = Reference(write_checkpoint(tmp_path / "deep", config))
    logits = reference.logits(list(range(40)))
    assert 2 < logits.std() < 8


def test_every_option_reaches_the_files(tmp_path: Path) -> None:
    folder = tmp_path / "made"
    words = (
        "tiny --hidden 48 --blocks 3 --heads 6 --kv-heads 3 --head-dim 16 --ffn 80 --vocab 100 "
        "--untied --dtype float32 --yarn 2 --shard 0.05 --new-keys --seed 9"
    )
    done = CliRunner().invoke(main, [*words.split(), str(folder)])
    assert done.exit_code == 0, done.output
    assert "3 blocks" in done.output
    checkpoint = Checkpoint.open(folder)
    config = checkpoint.config
    assert (config.hidden, config.blocks, config.heads, config.kv_heads) == (48, 3, 6, 3)
    assert (config.head_dim, config.ffn, config.vocab) == (16, 80, 100)
    assert (config.tied, config.dtype) == (False, "float32")
    assert config.yarn is not None
    assert (config.yarn.factor, config.max_positions) == (2.0, 2 * SIZES["tiny"].max_positions)
    assert len({tensor.file for tensor in checkpoint.tensors.values()}) > 1
    assert "rope_parameters" in json.loads((folder / "config.json").read_text())
    other = write_checkpoint(tmp_path / "other", config, seed=9, shard_bytes=50_000, new_keys=True)
    assert digest(other) == digest(folder)


def test_with_a_tokenizer(tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    for name in TOKENIZER_FILES:
        (source / name).write_text(name)
    folder = write_checkpoint(tmp_path / "made", TINY, tokenizer=source)
    assert all((folder / name).read_text() == name for name in TOKENIZER_FILES)


def test_words_that_make_no_checkpoint(tmp_path: Path) -> None:
    for words, message in [
        (["tiny", "--heads", "3"], "does not divide"),
        (["tiny", "--head-dim", "7"], "head_dim is 7"),
    ]:
        done = CliRunner().invoke(main, [*words, str(tmp_path / "made")])
        assert done.exit_code == 1
        assert message in done.output
    done = CliRunner().invoke(main, ["tiny", str(tmp_path)])
    assert done.exit_code == 1
    assert "exists already" in done.output
    assert not list(tmp_path.iterdir()), "nothing half-written"
