"""Qwen3 once more, as plainly as it can be said: numpy, float64, all positions at once, no cache.

Independent of `stages`: its own reading of the config and of quantised matrices, the files by the
safetensors package.
"""

import json
import math
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray
from safetensors import deserialize

Array = NDArray[np.float64]


DTYPES: dict[str, Any] = {
    "F32": np.float32,
    "F16": np.float16,
    "BF16": ml_dtypes.bfloat16,
    "F8_E4M3": ml_dtypes.float8_e4m3fn,
    "I32": np.int32,
}


class Reference:
    """A checkpoint's folder as a function from tokens to logits."""

    def __init__(self, folder: Path) -> None:
        self.config: dict[str, Any] = json.loads((folder / "config.json").read_text())
        self.weights: dict[str, Array] = {}
        for file in folder.glob("*.safetensors"):
            tensors: list[tuple[str, Any]] = deserialize(file.read_bytes())  # type: ignore[no-untyped-call]
            for name, tensor in tensors:
                kind = DTYPES[tensor["dtype"]]
                self.weights[name] = np.frombuffer(tensor["data"], kind).reshape(tensor["shape"])
        if quantization := self.config.get("quantization_config"):
            self.weights = dequantised(self.weights, quantization)
        self.weights = {name: array.astype(np.float64) for name, array in self.weights.items()}

    def logits(self, tokens: list[int]) -> Array:
        """Tokens [n] -> logits [n, vocab] for the token after each."""
        embed = self.weights["model.embed_tokens.weight"]
        x = embed[tokens]
        cos, sin = rotations(self.config, len(tokens))
        for block in range(self.config["num_hidden_layers"]):
            x = self.block(f"model.layers.{block}.", x, cos, sin)
        x = self.norm("model.norm.weight", x)
        unembed = embed if self.config["tie_word_embeddings"] else self.weights["lm_head.weight"]
        return x @ unembed.T

    def choices(self, prompt: list[int], answer: list[int]) -> list[int]:
        """Likeliest token after the prompt and after each token of the answer but the last.

        Equals the answer exactly if the answer is what greedy decoding gives.
        """
        after = self.logits(prompt + answer)[len(prompt) - 1 : -1]
        return [int(token) for token in np.argmax(after, axis=-1)]

    def block(self, name: str, x: Array, cos: Array, sin: Array) -> Array:
        """Residual stream [n, hidden] through one block."""
        n, heads, kv_heads = len(x), *self.heads()
        h = self.norm(name + "input_layernorm.weight", x)
        q = self.linear(name + "self_attn.q_proj", h).reshape(n, heads, -1)
        k = self.linear(name + "self_attn.k_proj", h).reshape(n, kv_heads, -1)
        v = self.linear(name + "self_attn.v_proj", h).reshape(n, kv_heads, -1)
        q = rotate(self.norm(name + "self_attn.q_norm.weight", q), cos, sin)
        k = rotate(self.norm(name + "self_attn.k_norm.weight", k), cos, sin)
        group = heads // kv_heads
        k, v = np.repeat(k, group, axis=1), np.repeat(v, group, axis=1)
        scores = np.einsum("ihd,jhd->hij", q, k) / math.sqrt(q.shape[-1])
        scores[:, np.triu(np.ones((n, n), dtype=bool), 1)] = -np.inf
        attended = np.einsum("hij,jhd->ihd", softmax(scores), v).reshape(n, -1)
        x = x + self.linear(name + "self_attn.o_proj", attended)
        h = self.norm(name + "post_attention_layernorm.weight", x)
        gate, up = self.linear(name + "mlp.gate_proj", h), self.linear(name + "mlp.up_proj", h)
        return x + self.linear(name + "mlp.down_proj", gate / (1 + np.exp(-gate)) * up)

    def heads(self) -> tuple[int, int]:
        return self.config["num_attention_heads"], self.config["num_key_value_heads"]

    def linear(self, name: str, x: Array) -> Array:
        return x @ self.weights[name + ".weight"].T

    def norm(self, name: str, x: Array) -> Array:
        mean_square = np.mean(x * x, axis=-1, keepdims=True)
        root = np.sqrt(mean_square + float(self.config["rms_norm_eps"]))
        return np.asarray(x / root * self.weights[name])


def dequantised(tensors: dict[str, Any], quantization: dict[str, Any]) -> dict[str, Any]:
    """Matrices of FP8 and AWQ layouts as one `weight` each, float64 [out, in]."""
    weights = {}
    for name, array in tensors.items():
        module, _, part = name.rpartition(".")
        if f"{module}.weight_scale_inv" in tensors:
            rows, columns = quantization["weight_block_size"]
            out, into = tensors[f"{module}.weight"].shape
            scale = tensors[f"{module}.weight_scale_inv"].astype(np.float64)
            spread = scale.repeat(rows, 0)[:out].repeat(columns, 1)[:, :into]
            weights[f"{module}.weight"] = tensors[f"{module}.weight"].astype(np.float64) * spread
        elif part == "qweight":
            steps = [outputs(tensors[f"{module}.{part}"]) for part in ("qweight", "qzeros")]
            zeros, scale = steps[1], tensors[f"{module}.scales"].astype(np.float64)
            groups = np.arange(len(array)) // quantization["group_size"]
            weights[f"{module}.weight"] = ((steps[0] - zeros[groups]) * scale[groups]).T
        elif part == "weight":
            weights[name] = array
    return weights


def outputs(words: NDArray[np.int32]) -> Array:
    """AWQ's words [n, out / 8] -> values 0 to 15 [n, out].

    The even ones of eight outputs lie in the lower half of a word in their order, four bits each,
    the odd ones in the upper half.
    """
    values = np.empty((len(words), words.shape[1], 8))
    for output in range(8):
        values[:, :, output] = (words >> (16 * (output % 2) + 4 * (output // 2))) & 15
    return values.reshape(len(words), -1)


def softmax(scores: Array) -> Array:
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return np.asarray(weights / weights.sum(axis=-1, keepdims=True))


def rotate(x: Array, cos: Array, sin: Array) -> Array:
    """Turn each head's pair (i, i + half) by its position's angle; x [n, heads, head_dim]."""
    first, second = np.split(x, 2, axis=-1)
    return np.concatenate([first * cos - second * sin, second * cos + first * sin], axis=-1)


def rotations(config: dict[str, Any], n: int) -> tuple[Array, Array]:
    """Cosine and sine [n, 1, head_dim / 2] of positions 0..n-1, with YaRN where configured."""
    rope = config.get("rope_parameters") or config.get("rope_scaling") or {}
    theta, dim = float(rope.get("rope_theta") or config["rope_theta"]), int(config["head_dim"])
    pairs = np.arange(dim // 2)
    frequencies = theta ** (-2.0 * pairs / dim)
    scale = 1.0
    if rope.get("rope_type", "default") == "yarn":
        # YaRN (Peng et al. 2023, section 3.2 and 3.4): a pair that turns often within the original
        # context keeps its frequency, one that turns less than once is slowed down by the factor.
        original, factor = rope["original_max_position_embeddings"], float(rope["factor"])

        def pair_turning(times: float) -> float:
            return dim * math.log(original / (times * 2 * math.pi)) / (2 * math.log(theta))

        low = max(math.floor(pair_turning(32)), 0)
        high = min(math.ceil(pair_turning(1)), dim - 1)
        slowed = np.clip((pairs - low) / (high - low), 0, 1)
        frequencies = frequencies * (1 - slowed) + frequencies / factor * slowed
        scale = 0.1 * math.log(factor) + 1
    angles = np.arange(n)[:, None, None] * frequencies
    return np.cos(angles) * scale, np.sin(angles) * scale
