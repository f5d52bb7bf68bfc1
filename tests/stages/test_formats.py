"""Quantised checkpoints, and int8 in memory: the weights that were meant, the model they make."""

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from safetensors.numpy import save_file

from stages import convert
from stages.checkpoint import Checkpoint
from stages.config import Kept, Qwen3Config
from stages.formats import Awq, CheckpointError, Format, Fp8, read_format
from stages.linear import MOST_INPUTS, Int8, product
from stages.mesh import Split
from stages.stage import Stage
from stages.weights import Loader
from tests.reference import Reference
from tests.stages.test_stage import greedy, same
from tools import quantise
from tools.make_checkpoint import SIZES, write_checkpoint

Array = np.ndarray[Any, Any]

# Sizes that FP8's blocks of 128 do not divide, and that AWQ's groups of 64 do.
SMALL = dataclasses.replace(
    SIZES["tiny"], hidden=192, blocks=4, heads=4, kv_heads=2, head_dim=32, ffn=320, vocab=256
)
FORMATS: dict[str, Format] = {"fp8": Fp8((128, 128), ("lm_head",)), "awq": Awq(64, ())}
TOKENS = np.random.default_rng(3).integers(0, SMALL.vocab, 40).astype(np.int32)

# Root of the mean square of logits' errors, where logits have a standard deviation of 4.
# Unquantised bfloat16 errs by 0.06 here.
TOLERANCE = {"float32": 2e-5, "bfloat16": 0.12}
INT8_TOLERANCE = 0.2
"""Of int8 from the matrices it was made of; FP8 and AWQ are 0.8 and 1.7 from theirs."""


@pytest.fixture(autouse=True)
def kept_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not in the user's cache."""
    monkeypatch.setattr("stages.kept.FOLDER", tmp_path / "kept")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, str], Path]:
    """Folder of the checkpoint of a format and dtype; "plain" is the unquantised source."""
    root = tmp_path_factory.mktemp("formats")

    def folder(form: str, dtype: str) -> Path:
        plain, wanted = root / dtype, root / f"{form}-{dtype}"
        if not plain.exists():
            write_checkpoint(plain, dataclasses.replace(SMALL, dtype=dtype), shard_bytes=400_000)
        if form == "plain":
            return plain
        return wanted if wanted.exists() else quantise.quantise(plain, wanted, FORMATS[form])

    return folder


def open_stage(folder: Path, blocks: range = range(4), kept: Kept | None = None) -> Stage:
    checkpoint = Checkpoint.open(folder)
    head = blocks.start == 0
    return Stage.open(checkpoint, blocks, head=head, context=64, groups=1, rows=2, kept=kept)


def logits(stage: Stage) -> Array:
    return np.asarray(stage.logits(stage.prefill(0, 0, 0, TOKENS)))


def distance(a: Array, b: Array) -> float:
    return float(np.sqrt(np.mean((a - b) ** 2)))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("form", FORMATS)
def test_logits_are_those_of_the_dequantised_reference(
    made: Callable[[str, str], Path], form: str, dtype: str
) -> None:
    folder = made(form, dtype)
    wanted = Reference(folder).logits(TOKENS.tolist())
    assert distance(logits(open_stage(folder)), wanted) < TOLERANCE[dtype]
    plain = Reference(made("plain", dtype)).logits(TOKENS.tolist())
    assert distance(plain, wanted) > 0.5, "nothing was quantised"


@pytest.mark.parametrize("form", FORMATS)
def test_dequantised_weights_are_exact(made: Callable[[str, str], Path], form: str) -> None:
    """Products of values and scales have few enough bits for float32, and are rounded once."""
    folder = made(form, "bfloat16")
    config = Checkpoint.open(folder).config
    assert config.dtype == "bfloat16"
    reference = Reference(folder).weights
    checkpoint = Checkpoint.open(folder)
    loader = Loader(Split.of(config), lambda size: None)
    names = list(config.block_leaves())
    leaves = loader.load_all(names, checkpoint.block_tensors(2), config)
    for name, leaf in zip(names, leaves, strict=True):
        assert (leaf.shape, leaf.dtype) == (config.block_leaves()[name][0], jnp.bfloat16)
    q, down = (np.asarray(leaves[names.index(name)]) for name in ("q", "down"))
    for module, found in (("self_attn.q_proj", q), ("mlp.down_proj", down)):
        wanted = reference[f"model.layers.2.{module}.weight"].astype(ml_dtypes.bfloat16)
        assert same(found, wanted)


@pytest.mark.parametrize("form", ["plain", *FORMATS])
def test_int8_is_near_what_it_was_made_of(made: Callable[[str, str], Path], form: str) -> None:
    folder = made(form, "bfloat16")
    stage = open_stage(folder, kept="int8")
    reference = Reference(folder)
    wanted = reference.logits(TOKENS.tolist())
    found = logits(stage)
    assert 0.08 < distance(found, wanted) < INT8_TOLERANCE
    # And as near to its own weights as any bfloat16 computation.
    for name, weight in reference.weights.items():
        if ".layers." in name and weight.ndim == 2:
            values, scale = convert.int8(jnp.asarray(weight, jnp.float32))
            assert np.all(np.abs(weight - values * scale[:, None]) <= 0.5001 * scale[:, None])
            reference.weights[name] = np.asarray(values, np.float64) * np.asarray(scale)[:, None]
    own = reference.logits(TOKENS.tolist())
    assert distance(found, own) < TOLERANCE["bfloat16"]


@pytest.mark.parametrize(
    ("form", "kept"), [("plain", "int8"), ("fp8", None), ("fp8", "int8"), ("awq", None)]
)
def test_any_division_gives_the_same_bits(
    made: Callable[[str, str], Path], form: str, kept: Kept | None
) -> None:
    folder = made(form, "bfloat16")
    tokens, stream = greedy([open_stage(folder, kept=kept)], TOKENS, 8)
    ring = [open_stage(folder, blocks, kept) for blocks in (range(1), range(1, 3), range(3, 4))]
    again, divided = greedy(ring, TOKENS, 8)
    assert again == tokens
    assert same(divided, stream)
    # In another row, beside another request.
    beside, _ = greedy([*ring[:1], open_stage(folder, range(1, 4), kept)], TOKENS, 8, row=1)
    assert beside == tokens


@pytest.mark.parametrize("rows", [1, 2, 7, 16, 17, 40])
def test_a_product_with_int8(rows: int) -> None:
    rng = np.random.default_rng(rows)
    weight = rng.standard_normal((70, 300)).astype(np.float32)
    weight[3] = 0
    values, scale = convert.int8(jnp.asarray(weight))
    x = rng.standard_normal((rows, 300)).astype(np.float32)
    x[0, 5] = 50  # one value much larger than the others, as hidden states have them
    run = jax.jit(lambda x: product(x, Int8(values, scale)))
    found = np.asarray(run(x))
    wanted = x.astype(np.float64) @ (np.asarray(values, np.float64) * np.asarray(scale)[:, None]).T
    rounded = np.abs(x).astype(np.float64) @ np.abs(weight.astype(np.float64)).T / 256
    assert np.all(np.abs(found - wanted) <= rounded), "no worse than rounding x to bfloat16"
    assert not found[:, 3].any()
    if rows <= 16:
        alone = np.concatenate([np.asarray(run(x[i : i + 1])) for i in range(rows)])
        assert same(alone, found)


@pytest.mark.parametrize("size", [MOST_INPUTS, 140_000])
def test_sums_of_int8_never_overflow(size: int) -> None:
    weight = Int8(jnp.full((2, size), 127, jnp.int8), jnp.ones(2, jnp.float32))
    found = jax.jit(lambda x: product(x, weight))(np.ones((1, size), np.float32))
    np.testing.assert_allclose(found, 127 * size, rtol=1e-3)


def test_blocks_larger_than_a_matrix() -> None:
    parts = {
        "weight": jnp.ones((3, 5), jnp.float8_e4m3fn),
        "weight_scale_inv": jnp.full((3, 1), 2.0, jnp.bfloat16),
    }
    found = convert.convert(parts, Fp8((1, 1 << 40), ()), "bfloat16", None)
    assert np.asarray(found["weight"]).tolist() == [[2.0] * 5] * 3


def test_which_modules_are_not_quantised(tmp_path: Path) -> None:
    plain = write_checkpoint(tmp_path / "plain", SMALL)
    skipping = Fp8((128, 128), ("lm_head", "model.layers.1", "k_proj", "mlp.gate"))
    folder = quantise.quantise(plain, tmp_path / "fp8", skipping)
    config = Checkpoint.open(folder).config
    assert config.stored == skipping
    kinds = {
        name.removeprefix("model.layers."): tensor.dtype
        for name, tensor in Checkpoint.open(folder).tensors.items()
    }
    assert kinds["1.mlp.up_proj.weight"] == kinds["0.self_attn.k_proj.weight"] == "BF16"
    assert kinds["0.mlp.gate_proj.weight"] == "F8_E4M3", "mlp.gate is another module"
    assert "1.mlp.up_proj.weight_scale_inv" not in kinds
    wanted = Reference(folder).logits(TOKENS.tolist())
    assert distance(logits(open_stage(folder)), wanted) < TOLERANCE["bfloat16"]


FP8 = {"quant_method": "fp8", "fmt": "e4m3", "weight_block_size": [128, 128]}
AWQ = {
    "quant_method": "awq",
    "bits": 4,
    "group_size": 128,
    "zero_point": True,
    "version": "gemm",
}
REFUSED: list[tuple[Any, str]] = [
    ({"quant_method": "gptq", "bits": 8}, "quant_method 'gptq'; this version reads 'fp8'"),
    ({"quant_method": "compressed-tensors"}, "'compressed-tensors'; .*'awq' .*bfloat16"),
    ({"bits": 4}, "quant_method None"),
    ({"quant_method": ["fp8"]}, "quant_method"),
    ("fp8", "quantization_config is 'fp8', not an object"),
    (FP8 | {"fmt": "e5m2"}, "of fp8: fmt is 'e5m2'; this version reads 'e4m3' only"),
    (FP8 | {"activation_scheme": "static"}, "activation_scheme is 'static'"),
    (FP8 | {"weight_block_size": None}, "weight_block_size is None.*one factor a block"),
    (FP8 | {"weight_block_size": [128, 0]}, "weight_block_size"),
    (FP8 | {"modules_to_not_convert": "lm_head"}, "modules_to_not_convert"),
    (FP8 | {"modules_to_not_convert": ["a"] * 5000}, "more than 4096 names"),
    (AWQ | {"bits": 8}, "of awq: bits is 8; this version reads 4 only"),
    (AWQ | {"version": "gemv"}, "version is 'gemv'; this version reads 'gemm' only"),
    (AWQ | {"zero_point": False}, "zero_point is False"),
    (AWQ | {"zero_point": 1}, "zero_point is 1"),
    (AWQ | {"group_size": -1}, "group_size is -1"),
]


@pytest.mark.parametrize(("quantization", "words"), REFUSED)
def test_what_is_not_supported_is_refused_by_name(quantization: Any, words: str) -> None:
    with pytest.raises(CheckpointError, match=words):
        read_format(quantization)


def test_official_spellings() -> None:
    assert read_format(FP8 | {"activation_scheme": "dynamic"}) == Fp8((128, 128), ())
    assert read_format(AWQ | {"version": "GEMM", "modules_to_not_convert": None}) == Awq(128, ())
    for form in FORMATS.values():
        assert read_format(quantise.config_json(form)) == form


def test_groups_that_do_not_divide_a_matrix() -> None:
    with pytest.raises(CheckpointError, match="320 inputs cannot be AWQ of group_size 128"):
        Awq(128, ()).parts(192, 320)


SCALE = "model.layers.0.mlp.up_proj.weight_scale_inv"
VALUES = "model.layers.0.mlp.up_proj.weight"


def broken(folder: Path, to: Path, **changes: Array | None) -> Path:
    """The checkpoint as one file, with other tensors in the place of some; None takes one away."""
    to.mkdir()
    tensors = {name: quantise.read(t) for name, t in Checkpoint.open(folder).tensors.items()}
    kept = {name: array for name, array in (tensors | changes).items() if array is not None}
    save_file(kept, to / "model.safetensors")
    (to / "config.json").write_text((folder / "config.json").read_text())
    return to


FAULTS: list[tuple[dict[str, Array | None], str]] = [
    ({SCALE: None}, f"tensor {SCALE} is missing"),
    ({SCALE: np.ones((3, 1), np.float32)}, r"shape \[3, 1\], but the config asks for \[3, 2\]"),
    ({SCALE: np.ones((3, 2), np.int32)}, r"is I32, but .*\(fp8\) asks for BF16 or F16 or F32"),
    ({VALUES: np.ones((320, 192), np.float32)}, r"is F32, but .*\(fp8\) asks for F8_E4M3"),
    ({"lm_head.weight_scale_inv": np.ones((2, 2), np.float32)}, "belongs to no dense Qwen3"),
]


@pytest.mark.parametrize(("changes", "words"), FAULTS)
def test_a_fault_in_a_quantised_checkpoint_names_the_tensor(
    made: Callable[[str, str], Path],
    tmp_path: Path,
    changes: dict[str, Array | None],
    words: str,
) -> None:
    folder = broken(made("fp8", "bfloat16"), tmp_path / "broken", **changes)
    with pytest.raises(CheckpointError, match=words):
        Checkpoint.open(folder)


def test_a_truncated_scale(made: Callable[[str, str], Path], tmp_path: Path) -> None:
    folder = broken(made("awq", "bfloat16"), tmp_path / "broken")
    file = folder / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-1])
    with pytest.raises(CheckpointError, match="truncated: tensor"):
        Checkpoint.open(folder)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_scales_that_are_no_numbers(
    made: Callable[[str, str], Path], tmp_path: Path, value: float
) -> None:
    scale = np.ones((3, 2), np.float32)
    scale[2, 1] = value
    folder = broken(made("fp8", "bfloat16"), tmp_path / "broken", **{SCALE: scale})
    with pytest.raises(CheckpointError, match=r"weight_scale_inv .* is not finite"):
        open_stage(folder)


def test_the_digest_tells_formats_apart(made: Callable[[str, str], Path]) -> None:
    plain, fp8, awq = (Checkpoint.open(made(f, "bfloat16")).config for f in ("plain", "fp8", "awq"))
    finer = dataclasses.replace(fp8, stored=Fp8((64, 64), ("lm_head",)))
    in_int8 = [dataclasses.replace(config, kept="int8") for config in (plain, fp8)]
    digests = [config.digest for config in (plain, fp8, awq, finer, *in_int8)]
    assert len(set(digests)) == len(digests)


def test_leaves_in_memory_are_those_the_config_tells(made: Callable[[str, str], Path]) -> None:
    folder = made("fp8", "bfloat16")
    config: Qwen3Config = dataclasses.replace(Checkpoint.open(folder).config, kept="int8")
    leaves = config.block_leaves()
    names = list(leaves)
    loader = Loader(Split.of(config), lambda size: None)
    loaded = loader.load_all(names, Checkpoint.open(folder).block_tensors(0), config)
    found = {n: (a.shape, str(a.dtype)) for n, a in zip(names, loaded, strict=True)}
    assert found == leaves
    assert found["q"] == ((128, 192), "int8")
    assert found["q.scale"] == ((128,), "float32")
