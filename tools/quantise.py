"""Write a checkpoint once more in the layout of the official FP8 or AWQ repositories.

For tests and benchmarks: rounded to the nearest value, without any of the calibration that released
models had. One shard is in memory at a time.

    python -m tools.quantise /tmp/model /tmp/model-fp8 --to fp8
"""

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import click
import ml_dtypes
import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import save_file

from stages.checkpoint import INDEX, Checkpoint, Tensor
from stages.formats import WORDS, Awq, CheckpointError, Format, Fp8, quantises

Array = NDArray[Any]

LARGEST = 448.0
"""Of e4m3; what the largest value of a block becomes."""


def fp8(weight: Array, format: Fp8) -> dict[str, Array]:
    """float32 [out, in] -> the tensors it becomes."""
    rows, columns = format.block
    (out, into), (_, (down, across)) = weight.shape, format.parts(*weight.shape)["weight_scale_inv"]
    padded = np.zeros((down * rows, across * columns), np.float32)
    padded[:out, :into] = weight
    blocks = padded.reshape(down, rows, across, columns)
    scale = (np.abs(blocks).max((1, 3)) / np.float32(LARGEST)).astype(ml_dtypes.bfloat16)
    steps = blocks / np.where(scale > 0, scale, 1).astype(np.float32)[:, None, :, None]
    values = steps.reshape(padded.shape)[:out, :into].clip(-LARGEST, LARGEST)
    return {"weight": values.astype(ml_dtypes.float8_e4m3fn), "weight_scale_inv": scale}


def awq(weight: Array, format: Awq) -> dict[str, Array]:
    """float32 [out, in] -> the tensors it becomes."""
    out, into = weight.shape
    groups = weight.reshape(out, -1, format.group)
    low, high = np.minimum(groups.min(2), 0), np.maximum(groups.max(2), 0)
    scale = np.maximum((high - low) / 15, 1e-6).astype(np.float16)  # float16 has none much smaller
    single = scale.astype(np.float32)
    zeros = np.round(-low / single).clip(0, 15)
    values = (np.round(groups / single[:, :, None]) + zeros[:, :, None]).clip(0, 15)
    return {
        "qweight": _packed(values.reshape(out, into).T),
        "qzeros": _packed(zeros.T),
        "scales": np.ascontiguousarray(scale.T),
    }


def _packed(values: Array) -> Array:
    """Whole numbers 0 to 15 [n, out] -> words int32 [n, out / 8]."""
    eights = values.astype(np.uint32).reshape(len(values), -1, 8)
    words = np.zeros(eights.shape[:2], np.uint32)
    for place, output in enumerate(Awq.ORDER):
        words |= eights[:, :, output] << np.uint32(4 * place)
    return words.view(np.int32)


def quantised(weight: Array, format: Format) -> dict[str, Array]:
    """float32 [out, in] -> the tensors it becomes."""
    return fp8(weight, format) if isinstance(format, Fp8) else awq(weight, format)


def config_json(format: Format) -> dict[str, object]:
    """The `quantization_config` of a format."""
    skipped = list(format.skipped) or None
    if isinstance(format, Fp8):
        return {
            "quant_method": "fp8",
            "fmt": "e4m3",
            "activation_scheme": "dynamic",
            "weight_block_size": list(format.block),
            "modules_to_not_convert": skipped,
        }
    return {
        "quant_method": "awq",
        "bits": 4,
        "group_size": format.group,
        "zero_point": True,
        "version": "gemm",
        "modules_to_not_convert": skipped,
    }


def quantise(source: Path, folder: Path, format: Format) -> Path:
    """Write the checkpoint of folder `source` into a new folder, shard by shard; return it.

    With AWQ what is not quantised becomes float16, as in released ones; float32 stays.
    """
    if folder.exists():
        raise FileExistsError(f"{folder} exists already")
    checkpoint = Checkpoint.open(source)
    part = folder.with_name(folder.name + ".part")
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir(parents=True)
    half = isinstance(format, Awq) and checkpoint.config.dtype == "bfloat16"
    shards: dict[str, list[str]] = {}
    for name, tensor in checkpoint.tensors.items():
        shards.setdefault(tensor.file.name, []).append(name)
    places: dict[str, str] = {}
    for file, names in shards.items():
        arrays: dict[str, Array] = {}
        for name in names:
            weight, module = read(checkpoint.tensors[name]), name.removesuffix(".weight")
            if weight.ndim == 2 and ".layers." in name and quantises(format, module):
                parts = quantised(weight.astype(np.float32), format)
                arrays |= {f"{module}.{part}": array for part, array in parts.items()}
            else:
                arrays[name] = weight.astype(np.float16) if half else weight
        save_file(arrays, part / file, metadata={"format": "pt"})
        places |= dict.fromkeys(arrays, file)
    config = json.loads((source / "config.json").read_text())
    config["quantization_config"] = config_json(format)
    if half:
        config["dtype" if "dtype" in config else "torch_dtype"] = "float16"
    (part / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    if (source / INDEX).exists():
        (part / INDEX).write_text(json.dumps({"weight_map": places}, indent=2) + "\n")
    for other in source.iterdir():
        if other.suffix != ".safetensors" and not (part / other.name).exists():
            shutil.copyfile(other, part / other.name)
    return part.rename(folder)


def read(tensor: Tensor) -> Array:
    """A tensor's values as they lie on disk."""
    with tensor.file.open("rb") as file:
        file.seek(tensor.start)
        raw = file.read(tensor.nbytes)
    return np.frombuffer(raw, WORDS[tensor.dtype]).reshape(tensor.shape)


FORMATS: dict[str, Format] = {"fp8": Fp8((128, 128), ("lm_head",)), "awq": Awq(128, ())}
"""As released."""


@click.command()
@click.argument("source", type=click.Path(path_type=Path))
@click.argument("folder", type=click.Path(path_type=Path))
@click.option("--to", type=click.Choice(list(FORMATS)), required=True)
def main(source: Path, folder: Path, to: str) -> None:
    """Write the unquantised checkpoint SOURCE into a new FOLDER, quantised."""
    try:
        quantise(source, folder, FORMATS[to])
    except (CheckpointError, OSError) as error:
        raise click.ClickException(str(error)) from None


if __name__ == "__main__":
    sys.exit(main())
