"""How the matrices of a quantised checkpoint lie on disk: FP8 in blocks, AWQ in four bits.

Names, dtypes and shapes, as the official Qwen3-*-FP8 and Qwen3-*-AWQ repositories have them; knows
no files, and no arithmetic (`stages.convert`). Only block matrices are quantised: embedding,
unembedding and norms lie there as in any other checkpoint.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

Shape = tuple[int, ...]

FLOATS = ("BF16", "F16", "F32")
"""Header dtypes of what is not quantised beside quantised matrices, scales included."""

WORDS = {
    "F8_E4M3": "float8_e4m3fn",
    "F16": "float16",
    "BF16": "bfloat16",
    "F32": "float32",
    "I8": "int8",
    "I32": "int32",
}
"""A tensor header's dtype -> numpy's word for it."""

ITEMSIZES = {"F8_E4M3": 1, "F16": 2, "BF16": 2, "F32": 4, "I8": 1, "I32": 4}
"""Bytes of one element."""

SCALES = {"weight_scale_inv", "scales"}
"""Tensors of factors, by the last word of their names."""

MOST_SKIPPED = 1 << 12
"""Modules that a config may leave out; released ones name two or three a block."""

Parts = dict[str, tuple[tuple[str, ...], Shape]]
"""Last word of a tensor's name -> the header dtypes it may have, and its shape."""


class CheckpointError(ValueError):
    """A checkpoint that cannot be used; one sentence naming file, key or tensor."""


@dataclass(frozen=True)
class Fp8:
    """Values of 8 bits (e4m3), and a factor for each block of rows and columns.

    `weight` is [out, in]; `weight_scale_inv` is what it is to be multiplied by, its name aside.
    """

    name: ClassVar[str] = "fp8"
    block: tuple[int, int]
    """Rows and columns that share a factor."""
    skipped: tuple[str, ...]
    """Modules that are not quantised; whole dotted parts of their names."""

    @classmethod
    def read(cls, d: Mapping[str, Any]) -> "Fp8":
        _only(d, "fmt", "e4m3", default="e4m3")
        # Static factors of activations would be further tensors.
        _only(d, "activation_scheme", "dynamic", default="dynamic")
        block = d.get("weight_block_size")
        match block:
            case [int(rows), int(columns)] if rows > 0 and columns > 0:
                return cls((rows, columns), _skipped(d))
        raise CheckpointError(
            f"weight_block_size is {block!r:.60}; this version reads FP8 with one factor a block, "
            "as in [128, 128]"
        )

    def parts(self, out: int, into: int) -> Parts:
        rows, columns = self.block
        return {
            "weight": (("F8_E4M3",), (out, into)),
            "weight_scale_inv": (FLOATS, (-(-out // rows), -(-into // columns))),
        }


@dataclass(frozen=True)
class Awq:
    """Values of 4 bits; a zero and a scale for each `group` of inputs of an output.

    Everything is transposed, [in, out]; eight successive outputs share a word of 32 bits, in the
    order ORDER. A weight is (value - zero) * scale.
    """

    name: ClassVar[str] = "awq"
    ORDER: ClassVar[tuple[int, ...]] = (0, 2, 4, 6, 1, 3, 5, 7)
    """Which of a word's eight outputs is in its lowest four bits, in the next four, and so on."""
    group: int
    skipped: tuple[str, ...]

    @classmethod
    def read(cls, d: Mapping[str, Any]) -> "Awq":
        _only(d, "bits", 4)
        _only(d, "version", "gemm", default="gemm")
        _only(d, "zero_point", True)
        group = d.get("group_size")
        if not isinstance(group, int) or isinstance(group, bool) or group < 1:
            raise CheckpointError(f"group_size is {group!r:.60}, not a positive whole number")
        return cls(group, _skipped(d))

    def parts(self, out: int, into: int) -> Parts:
        if out % 8 or into % self.group:
            raise CheckpointError(
                f"a matrix of {out} outputs and {into} inputs cannot be AWQ of group_size "
                f"{self.group}: outputs come in eights, inputs in whole groups"
            )
        return {
            "qweight": (("I32",), (into, out // 8)),
            "qzeros": (("I32",), (into // self.group, out // 8)),
            "scales": (FLOATS, (into // self.group, out)),
        }


Format = Fp8 | Awq

_FORMATS: dict[object, type[Fp8] | type[Awq]] = {format.name: format for format in (Fp8, Awq)}


def read_format(quantization: object) -> Format | None:
    """The format from a config's `quantization_config`; None where the checkpoint has none.

    Raises CheckpointError, which names what is not supported and what is.
    """
    if quantization is None:
        return None
    if not isinstance(quantization, Mapping):
        raise CheckpointError(f"quantization_config is {quantization!r:.60}, not an object")
    method = quantization.get("quant_method")
    if not isinstance(method, str) or method not in _FORMATS:
        raise CheckpointError(
            f"the checkpoint is quantised with quant_method {method!r:.60}; this version reads "
            "'fp8' (e4m3 in blocks), 'awq' (4 bits, gemm), and unquantised bfloat16 and float32"
        )
    try:
        return _FORMATS[method].read(quantization)
    except CheckpointError as error:
        raise CheckpointError(f"quantization_config of {method}: {error}") from None


def quantises(format: Format | None, module: str) -> bool:
    """Whether the matrix of this module, named with dots, is quantised."""
    if format is None:
        return False
    return not any(f".{skipped}." in f".{module}." for skipped in format.skipped)


def _skipped(d: Mapping[str, Any]) -> tuple[str, ...]:
    skipped = d.get("modules_to_not_convert") or []
    if not isinstance(skipped, list) or not all(isinstance(name, str) for name in skipped):
        raise CheckpointError(f"modules_to_not_convert is {skipped!r:.60}, not a list of names")
    if len(skipped) > MOST_SKIPPED:
        raise CheckpointError(f"modules_to_not_convert has more than {MOST_SKIPPED} names")
    return tuple(skipped)


def _only(d: Mapping[str, Any], key: str, wanted: object, default: object = None) -> None:
    found = d.get(key)
    found = default if found is None else found
    if isinstance(found, str):
        found = found.lower()
    if found != wanted or isinstance(found, bool) != isinstance(wanted, bool):
        raise CheckpointError(f"{key} is {d.get(key)!r:.60}; this version reads {wanted!r} only")
