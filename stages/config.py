"""The shape of a Qwen3 model, read from a `config.json`; knows no files, weights or devices."""

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

from stages.formats import CheckpointError, Format, Shape, read_format

DTYPES = {"bfloat16": "BF16", "float32": "F32"}
"""The dtypes this version computes in: a config's word -> a tensor header's."""

BYTES = {"int8": 1, "bfloat16": 2, "float32": 4}
"""Of one element in memory."""

Kept = Literal["int8"]
"""How block matrices may be kept in memory otherwise than in the model's dtype."""

LIMITS = {
    "blocks": 1 << 10,
    "hidden": 1 << 16,
    "heads": 1 << 10,
    "kv_heads": 1 << 10,
    "head_dim": 1 << 10,
    "ffn": 1 << 19,
    "vocab": 1 << 22,
    "max_positions": 1 << 30,
}
"""Bounds on what a config may ask for, ten and more times what any Qwen3 has."""

MAX_BLOCK_WEIGHTS = 1 << 32
"""Weights of one block, whatever its sizes; the 32B's has 488 million."""


@dataclass(frozen=True)
class Yarn:
    """YaRN position interpolation (Peng et al. 2023, section 3.4), its defaults filled in."""

    factor: float
    original_positions: int
    """Positions the model was trained on before stretching."""
    attention_factor: float
    """Multiplies cos and sin; `0.1 ln(factor) + 1` unless the config says otherwise."""
    beta_fast: float
    beta_slow: float
    truncate: bool
    """Whether the ramp between both betas starts and ends on whole dimensions."""


@dataclass(frozen=True)
class Qwen3Config:
    """Dense Qwen3. Products of heads and head_dim need not equal hidden."""

    hidden: int
    blocks: int
    heads: int
    kv_heads: int
    head_dim: int
    ffn: int
    vocab: int
    eps: float
    rope_theta: float
    yarn: Yarn | None
    tied: bool
    """One matrix embeds and unembeds."""
    max_positions: int
    """Longest sequence the positions are made for; YaRN's stretch included."""
    dtype: str
    """"bfloat16" or "float32": of KV cache, residual stream, and weights unless `kept`; of every
    tensor of the checkpoint, unless `stored`."""
    stored: Format | None = None
    """How block matrices lie on disk, where they are quantised there."""
    kept: Kept | None = None
    """How block matrices sit in memory, where not in dtype."""

    @classmethod
    def from_dict(cls, d: Mapping[str, Any]) -> "Qwen3Config":
        """Read the keys of a `config.json`, in their older or newer spelling; ignore the rest.

        Raises CheckpointError for anything but a dense Qwen3 with full attention in bfloat16,
        float32 or a format of `stages.formats`, and for missing or impossible values.
        """
        _refuse_other_models(d)
        stored = read_format(d.get("quantization_config"))
        theta, yarn = _rope(d)
        positions = _positions(d, "max_position_embeddings")
        if yarn is not None:
            positions = max(positions, int(yarn.factor * yarn.original_positions))
            if positions > LIMITS["max_positions"]:
                raise CheckpointError(f"YaRN stretches to more than {LIMITS['max_positions']}")
        config = cls(
            hidden=_count(d, "hidden_size", LIMITS["hidden"]),
            blocks=_blocks(d),
            heads=_count(d, "num_attention_heads", LIMITS["heads"]),
            kv_heads=_count(d, "num_key_value_heads", LIMITS["kv_heads"]),
            head_dim=_count(d, "head_dim", LIMITS["head_dim"], default=128),
            ffn=_count(d, "intermediate_size", LIMITS["ffn"]),
            vocab=_count(d, "vocab_size", LIMITS["vocab"]),
            eps=_positive(d, "rms_norm_eps", 1e-6),
            rope_theta=theta,
            yarn=yarn,
            tied=_flag(d, "tie_word_embeddings"),
            max_positions=positions,
            dtype=_dtype(d, quantised=stored is not None),
            stored=stored,
        )
        if config.heads % config.kv_heads:
            raise CheckpointError(
                f"num_attention_heads is {config.heads}, which num_key_value_heads "
                f"{config.kv_heads} does not divide"
            )
        if config.head_dim % 2:
            raise CheckpointError(f"head_dim is {config.head_dim}; rotary positions need it even")
        if config.block_weights > MAX_BLOCK_WEIGHTS:
            raise CheckpointError(f"a block of {config.block_weights:,} weights is none of Qwen3's")
        return config

    @property
    def itemsize(self) -> int:
        """Bytes of one element of `dtype`."""
        return BYTES[self.dtype]

    @property
    def kv_bytes(self) -> int:
        """Bytes of keys and values that one token leaves in one block."""
        return 2 * self.kv_heads * self.head_dim * self.itemsize

    @property
    def digest(self) -> str:
        """`sha256:...` over every field: equal for the older and newer spelling of one config.

        The config decides name, dtype and shape of every tensor (a checkpoint that deviates is
        refused), so equal digests mean interchangeable headers, kept alike in memory. It says
        nothing of the weights.
        """
        fields = asdict(self)
        del fields["kept"], fields["stored"]
        if self.stored is not None:
            fields["stored"] = {self.stored.name: asdict(self.stored)}
        canonical = json.dumps(fields, sort_keys=True, separators=(",", ":"))
        digest = "sha256:" + hashlib.sha256(canonical.encode()).hexdigest()
        return kept_digest(digest, self.kept)

    def block_shapes(self) -> dict[str, Shape]:
        """Shape of each of a block's tensors; matrices are [out, in] as they lie on disk."""
        q, kv = self.heads * self.head_dim, self.kv_heads * self.head_dim
        return {
            "input_norm": (self.hidden,),
            "q": (q, self.hidden),
            "k": (kv, self.hidden),
            "v": (kv, self.hidden),
            "q_norm": (self.head_dim,),
            "k_norm": (self.head_dim,),
            "o": (self.hidden, q),
            "post_norm": (self.hidden,),
            "gate": (self.ffn, self.hidden),
            "up": (self.ffn, self.hidden),
            "down": (self.hidden, self.ffn),
        }

    def block_leaves(self) -> dict[str, tuple[Shape, str]]:
        """Shape and dtype of each of a block's arrays in memory."""
        leaves: dict[str, tuple[Shape, str]] = {}
        for name, shape in self.block_shapes().items():
            if self.kept and len(shape) == 2:
                leaves |= {name: (shape, self.kept), f"{name}.scale": (shape[:1], "float32")}
            else:
                leaves[name] = shape, self.dtype
        return leaves

    def head_leaves(self) -> dict[str, tuple[Shape, str]]:
        """Shape and dtype of each of the head's arrays in memory."""
        return {name: (shape, self.dtype) for name, shape in self.head_shapes().items()}

    @property
    def block_weights(self) -> int:
        """Weights of one block."""
        return sum(math.prod(shape) for shape in self.block_shapes().values())

    def head_shapes(self) -> dict[str, Shape]:
        """Shape of each of the head's tensors; no "unembed" when "embed" serves as both."""
        shapes: dict[str, Shape] = {"embed": (self.vocab, self.hidden), "norm": (self.hidden,)}
        if not self.tied:
            shapes["unembed"] = (self.vocab, self.hidden)
        return shapes


def kept_digest(digest: str, kept: Kept | None) -> str:
    """Digest of a config that is kept so in memory, from that of the config kept in its dtype."""
    if kept is None:
        return digest
    return "sha256:" + hashlib.sha256(f"{digest} kept as {kept}".encode()).hexdigest()


def _refuse_other_models(d: Mapping[str, Any]) -> None:
    architectures = _list(d, "architectures")
    if d.get("model_type") != "qwen3" or any(a != "Qwen3ForCausalLM" for a in architectures):
        found = architectures or d.get("model_type") or "none named"
        raise CheckpointError(
            f"the architecture is {found!r:.60}; "
            "this version serves dense Qwen3 (Qwen3ForCausalLM) only"
        )
    if d.get("attention_bias"):
        raise CheckpointError("attention_bias is true; Qwen3 as released has none, nor has Kafila")
    if d.get("hidden_act", "silu") != "silu":
        raise CheckpointError(f"hidden_act is {d['hidden_act']!r:.60}; only 'silu' is Qwen3's")
    kinds = _list(d, "layer_types")
    if not kinds and d.get("use_sliding_window") and d.get("sliding_window") is not None:
        full = d.get("max_window_layers")  # so many blocks, from the first on, do without
        if not isinstance(full, int) or full < _blocks(d):
            kinds = ["sliding_attention"]
    if any(kind != "full_attention" for kind in kinds):
        raise CheckpointError("some blocks use a sliding window; only full attention is supported")


def _rope(d: Mapping[str, Any]) -> tuple[float, Yarn | None]:
    """Base and scaling from `rope_parameters` (newer) or `rope_theta` and `rope_scaling`."""
    rope = d.get("rope_parameters") or d.get("rope_scaling") or {}
    if not isinstance(rope, Mapping):
        raise CheckpointError(f"rope_parameters is {rope!r:.60}, not an object")
    theta = _positive({"rope_theta": rope.get("rope_theta", d.get("rope_theta"))}, "rope_theta")
    if theta <= 1:
        raise CheckpointError(f"rope_theta is {theta}; rotary positions need it above 1")
    if rope.get("partial_rotary_factor", 1.0) != 1.0:
        raise CheckpointError("partial_rotary_factor is not 1; Qwen3 rotates whole heads")
    kind = rope.get("rope_type", rope.get("type", "default"))
    if kind == "default":
        return theta, None
    if kind != "yarn":
        raise CheckpointError(f"rope_type is {kind!r:.60}; 'default' and 'yarn' are supported")
    factor = _positive(rope, "factor")
    if factor < 1:
        raise CheckpointError(f"YaRN's factor is {factor}, which is below 1")
    if rope.get("original_max_position_embeddings") is not None:
        original = _positions(rope, "original_max_position_embeddings")
    else:
        original = _positions(d, "max_position_embeddings")
    return theta, Yarn(
        factor=factor,
        original_positions=original,
        attention_factor=_attention_factor(rope, factor),
        beta_fast=_positive(rope, "beta_fast", 32.0),
        beta_slow=_positive(rope, "beta_slow", 1.0),
        truncate=_flag(rope, "truncate", True),
    )


def _attention_factor(rope: Mapping[str, Any], factor: float) -> float:
    if rope.get("attention_factor") is not None:
        return _positive(rope, "attention_factor")
    if rope.get("mscale") and rope.get("mscale_all_dim"):
        scale, all_dim = _positive(rope, "mscale"), _positive(rope, "mscale_all_dim")
        return (0.1 * scale * math.log(factor) + 1) / (0.1 * all_dim * math.log(factor) + 1)
    return 0.1 * math.log(factor) + 1


def _dtype(d: Mapping[str, Any], *, quantised: bool) -> str:
    dtype = d.get("dtype", d.get("torch_dtype"))
    if quantised and dtype == "float16":  # AWQ's scales are; nothing is computed in it
        return "bfloat16"
    if dtype is None:
        raise CheckpointError('neither dtype nor torch_dtype is given; add "dtype": "bfloat16"')
    if not isinstance(dtype, str) or dtype not in DTYPES:
        raise CheckpointError(f"dtype is {dtype!r:.60}; this version reads bfloat16 and float32")
    return dtype


def _blocks(d: Mapping[str, Any]) -> int:
    return _count(d, "num_hidden_layers", LIMITS["blocks"])


def _positions(d: Mapping[str, Any], key: str) -> int:
    return _count(d, key, LIMITS["max_positions"])


def _list(d: Mapping[str, Any], key: str) -> list[Any]:
    value = d.get(key)
    if value is None:
        return []
    if not isinstance(value, list):
        raise CheckpointError(f"{key} is {value!r:.60}, not a list")
    return value


def _count(d: Mapping[str, Any], key: str, limit: int, *, default: int | None = None) -> int:
    value = d.get(key, default)
    if value is None:
        raise CheckpointError(f"{key} is missing")
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise CheckpointError(f"{key} is {value!r:.60}, not a positive whole number")
    if value > limit:
        raise CheckpointError(f"{key} is more than {limit}")
    return value


def _positive(d: Mapping[str, Any], key: str, default: float | None = None) -> float:
    value = d.get(key)
    value = default if value is None else value
    if value is None:
        raise CheckpointError(f"{key} is missing")
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise CheckpointError(f"{key} is {value!r:.60}, not a number")
    if not 1e-12 <= value <= 1e12:  # beyond lies no sense, but overflow
        raise CheckpointError(f"{key} is {value!r:.60}, not a positive number of sensible size")
    return float(value)


def _flag(d: Mapping[str, Any], key: str, default: bool = False) -> bool:
    value = d.get(key, default)
    if not isinstance(value, bool):
        raise CheckpointError(f"{key} is {value!r:.60}, not true or false")
    return value
