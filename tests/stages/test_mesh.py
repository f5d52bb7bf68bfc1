"""A stage on several devices answers as on one, and each device holds its part and no more."""

import dataclasses
from collections.abc import Callable
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax
import pytest

from stages.checkpoint import Checkpoint
from stages.config import Kept, Qwen3Config
from stages.functions import Functions
from stages.measure import _limits, _workspace, slight
from stages.mesh import Split
from tests.stages import on_devices
from tools.make_checkpoint import SIZES, write_checkpoint

DEMO = Path("kafila/demo_model").resolve()

SMALL = dataclasses.replace(
    SIZES["tiny"], hidden=64, blocks=2, heads=8, kv_heads=4, head_dim=16, ffn=96, vocab=300
)


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Checkpoints; nothing divides the vocabulary of "odd"."""
    folder = tmp_path_factory.mktemp("mesh")
    small = dataclasses.replace(SMALL, dtype="float32")
    odd = dataclasses.replace(small, vocab=301, tied=False)
    return {
        "demo": DEMO,
        "float32": in_float32(DEMO, folder / "float32"),
        "small": write_checkpoint(folder / "small", small),
        "odd": write_checkpoint(folder / "odd", odd),
    }


def in_float32(source: Path, target: Path) -> Path:
    from safetensors.flax import load_file, save_file

    target.mkdir()
    words = (source / "config.json").read_text().replace('"bfloat16"', '"float32"')
    (target / "config.json").write_text(words)
    tensors = load_file(source / "model.safetensors")
    save_file({k: v.astype("float32") for k, v in tensors.items()}, target / "model.safetensors")
    return target


@pytest.fixture(scope="module")
def alone(folders: dict[str, Path]) -> Callable[[str, str], Any]:
    """What one device says: this process'."""
    return cache(lambda name, word: on_devices.found(folders[name], word))


@pytest.mark.parametrize(
    ("devices", "cases"),
    [
        (2, [("demo", ""), ("float32", ""), ("demo", "int8"), ("demo", "unkept")]),
        (3, [("demo", "")]),  # two KV heads: one device is left out
        (4, [("small", ""), ("odd", ""), ("small", "accelerator")]),
    ],
)
def test_several_devices_answer_as_one_and_share_what_it_holds(
    folders: dict[str, Path],
    alone: Callable[[str, str], Any],
    devices: int,
    cases: list[tuple[str, str]],
) -> None:
    whole = on_devices.CONTEXT
    told = on_devices.run(devices, [(folders[name], word) for name, word in cases])
    for (name, word), found in zip(cases, told, strict=True):
        kept: Kept | None = "int8" if word in ("int8", "unkept") else None
        one = alone(name, kept or "")
        config = dataclasses.replace(Checkpoint.open(folders[name]).config, kept=kept)
        count = min(devices, config.kv_heads)
        assert found["answers"] == one["answers"]
        assert found["devices"].startswith(f"{count} x cpu")
        assert ("left out: cpu 2;" in found["devices"]) == (devices == 3)
        # The cache: its heads are shared out, and every call writes to it where it lies.
        assert [len(each) for each in found["slot"]] == [count, count]
        assert {part for each in found["slot"] for part in each} == {one["slot"][0][0] // count}
        blocks = config.blocks if word == "accelerator" else 1  # of one call
        assert found["spans"] == [blocks, blocks]
        assert one["kept"][f"decode 2 of {whole}"] == 2 * sum(size for (size,) in one["slot"])
        assert {call.rpartition(" of ")[0] for call in found["kept"]} == {
            call.rpartition(" of ")[0] for call in one["kept"]
        }
        for call, size in found["kept"].items():
            same = one["kept"][call.rpartition(" of ")[0] + f" of {whole}"] // count
            assert size == same
        functions = Functions(config, head=True)
        assert functions.head is not None
        for key, names in (("leaves", functions.block.names), ("head", functions.head.names)):
            for leaf, mine, (size,) in zip(names, found[key], one[key], strict=True):
                all_of_it = is_whole(leaf, odd=name == "odd")
                assert mine == [size if all_of_it else size // count] * count, leaf
        if word == "accelerator":
            assert found["depths"] == [whole // 4, whole], "both of which the answers need"
            two_sums_a_block = {"all-reduce": 2 * blocks}
            assert found["between"] == [two_sums_a_block] * 2, "and no weights"


def is_whole(leaf: str, *, odd: bool) -> bool:
    """Norms, scales of matrices whose inputs are split, and a vocabulary that is not divided."""
    return "norm" in leaf or leaf in ("o.scale", "down.scale") or (odd and "embed" in leaf)


def test_a_probe_tells_of_several_devices_as_of_one() -> None:
    (found,) = on_devices.run(2, [(DEMO, "probe")])
    assert (found["platform"], found["device_ids"], found["device_bytes"]) == ("cpu", [], None)
    assert min(found[key] for key in ("bandwidth", "flops", "overhead_us", "block_ns")) > 0
    config = Checkpoint.open(DEMO).config
    base, row, _ = _workspace(config)
    # A device's part of the logits is half, and so is much of what a prefill holds.
    assert row / 2 < found["workspace_row"] + 1
    assert base / 4 < found["workspace_base"] < 4 * base


def cards(*kinds: str, limit: int | None = None) -> tuple[Any, ...]:
    """As JAX shows NVIDIA's."""
    return tuple(
        SimpleNamespace(
            platform="gpu",
            device_kind=kind,
            id=i,
            local_hardware_id=i,
            memory_stats=lambda i=i: limit and {"bytes_limit": limit + i},
        )
        for i, kind in enumerate(kinds)
    )


def split_of(monkeypatch: pytest.MonkeyPatch, config: Qwen3Config, *kinds: str) -> Split:
    monkeypatch.setattr(jax, "devices", lambda: list(cards(*kinds)))
    return Split.of(config)


@pytest.mark.parametrize(
    ("size", "here", "used"),
    [("0.6B", 1, 1), ("0.6B", 2, 2), ("8B", 3, 2), ("8B", 7, 4), ("14B", 8, 8), ("32B", 12, 8)],
)
def test_the_most_devices_that_divide_a_model(
    monkeypatch: pytest.MonkeyPatch, size: str, here: int, used: int
) -> None:
    found = split_of(monkeypatch, SIZES[size], *["H200"] * here)
    assert (found.count, len(found.left_out)) == (used, here - used)
    assert found.names == tuple(str(i) for i in range(used))
    assert split_of(monkeypatch, slight(SIZES[size]), *["H200"] * here).count == used
    # Any Qwen3's vocabulary is divided, too.
    shape = SIZES[size].head_shapes()["embed"]
    assert shape[0] % used == 0


def test_what_is_left_out_is_said_and_why(monkeypatch: pytest.MonkeyPatch) -> None:
    assert split_of(monkeypatch, SIZES["8B"], "H200").words == "H200"
    assert split_of(monkeypatch, SIZES["8B"], "H200", "H200").words == "2 x H200"
    three = split_of(monkeypatch, SIZES["8B"], "H200", "H200", "H200").words
    assert three.startswith("2 x H200 (left out: H200 2; 8 KV heads and an MLP 12288 wide divide")
    mixed = split_of(monkeypatch, SIZES["8B"], "RTX 4090", "GT 1030")
    assert mixed.count == 1
    assert "left out: GT 1030 1; devices of another kind" in mixed.words


def test_devices_have_one_name_for_every_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of two members with a card each, both call it their first."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3,GPU-5f")
    assert Split(cards("H200", "H200")).names == ("3", "GPU-5f")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert Split(cards("H200")).names == ("0",)


def test_the_room_is_of_devices_that_all_tell_theirs() -> None:
    assert _limits(cards("H200", "H200", limit=70)) == [70, 71]
    assert _limits(cards("H200", "H200")) == []
    assert _limits(jax.devices()) == []


def test_a_vocabulary_that_is_not_divided_is_counted_for_each_device() -> None:
    even, odd = SMALL.head_leaves(), dataclasses.replace(SMALL, vocab=301).head_leaves()
    norm, embed = 64 * 2, 301 * 64 * 2
    assert Split(cards(*["H200"] * 4)).copies(even) == 3 * norm
    assert Split(cards(*["H200"] * 4)).copies(odd) == 3 * (norm + embed)
    assert Split(cards("H200")).copies(odd) == 0
