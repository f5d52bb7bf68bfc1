"""A compact Qwen3 for training: float32, whole sequences, weights under their checkpoint names.

The trainer needs gradients and whole sequences, the server needs neither, so this is a forward pass
of its own. Keeping Hugging Face's names and `[out, in]` layout makes the export a plain copy.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import jax
import jax.numpy as jnp

Params = Mapping[str, jax.Array]


@dataclass(frozen=True)
class ModelConfig:
    """The sizes of the demo model; every width is a multiple of 64."""

    vocab_size: int = 2048
    hidden_size: int = 256
    intermediate_size: int = 640
    num_layers: int = 6
    num_heads: int = 4
    num_kv_heads: int = 2
    head_dim: int = 64
    rope_theta: float = 1_000_000.0
    norm_eps: float = 1e-6
    max_positions: int = 1024
    trained_context: int = 256

    def to_hf(self, eos_token_id: int, pad_token_id: int) -> dict[str, object]:
        """The `config.json` of this model."""
        return {
            "architectures": ["Qwen3ForCausalLM"],
            "attention_bias": False,
            "attention_dropout": 0.0,
            "bos_token_id": None,
            "eos_token_id": eos_token_id,
            "head_dim": self.head_dim,
            "hidden_act": "silu",
            "hidden_size": self.hidden_size,
            "initializer_range": 0.02,
            "intermediate_size": self.intermediate_size,
            "max_position_embeddings": self.max_positions,
            "max_window_layers": self.num_layers,
            "model_type": "qwen3",
            "num_attention_heads": self.num_heads,
            "num_hidden_layers": self.num_layers,
            "num_key_value_heads": self.num_kv_heads,
            "pad_token_id": pad_token_id,
            "rms_norm_eps": self.norm_eps,
            "rope_scaling": None,
            "rope_theta": self.rope_theta,
            "sliding_window": None,
            "tie_word_embeddings": True,
            "torch_dtype": "bfloat16",
            "use_cache": True,
            "use_sliding_window": False,
            "vocab_size": self.vocab_size,
        }


def shapes(config: ModelConfig) -> dict[str, tuple[int, ...]]:
    """Every tensor of the checkpoint with its shape, in checkpoint order."""
    hidden, ffn, head = config.hidden_size, config.intermediate_size, config.head_dim
    result: dict[str, tuple[int, ...]] = {"model.embed_tokens.weight": (config.vocab_size, hidden)}
    for layer in range(config.num_layers):
        block = f"model.layers.{layer}."
        result |= {
            block + "input_layernorm.weight": (hidden,),
            block + "self_attn.q_proj.weight": (config.num_heads * head, hidden),
            block + "self_attn.k_proj.weight": (config.num_kv_heads * head, hidden),
            block + "self_attn.v_proj.weight": (config.num_kv_heads * head, hidden),
            block + "self_attn.o_proj.weight": (hidden, config.num_heads * head),
            block + "self_attn.q_norm.weight": (head,),
            block + "self_attn.k_norm.weight": (head,),
            block + "post_attention_layernorm.weight": (hidden,),
            block + "mlp.gate_proj.weight": (ffn, hidden),
            block + "mlp.up_proj.weight": (ffn, hidden),
            block + "mlp.down_proj.weight": (hidden, ffn),
        }
    result["model.norm.weight"] = (hidden,)
    return result


def init(config: ModelConfig, key: jax.Array) -> dict[str, jax.Array]:
    """Fresh weights: norms at one, matrices normal, smaller where they write the residual."""
    params: dict[str, jax.Array] = {}
    for name, shape in shapes(config).items():
        key, here = jax.random.split(key)
        if len(shape) == 1:
            params[name] = jnp.ones(shape, jnp.float32)
            continue
        scale = 0.02 if "embed" in name else shape[1] ** -0.5
        if name.endswith(("o_proj.weight", "down_proj.weight")):
            scale /= (2 * config.num_layers) ** 0.5
        params[name] = scale * jax.random.normal(here, shape, jnp.float32)
    return params


def _norm(x: jax.Array, weight: jax.Array, eps: float) -> jax.Array:
    return weight * x * jax.lax.rsqrt(jnp.mean(x * x, axis=-1, keepdims=True) + eps)


def _rotate(x: jax.Array, cos: jax.Array, sin: jax.Array) -> jax.Array:
    low, high = jnp.split(x, 2, axis=-1)
    return x * cos + jnp.concatenate([-high, low], axis=-1) * sin


def hidden_states(
    config: ModelConfig,
    params: Params,
    tokens: jax.Array,
    positions: jax.Array,
    segments: jax.Array,
) -> jax.Array:
    """The normalised last hidden states of `tokens`, all arguments `[batch, time]`.

    A token attends to earlier tokens of its own segment only, so that conversations packed into
    one row do not see each other.
    """
    batch, time = tokens.shape
    half = jnp.arange(0, config.head_dim, 2, dtype=jnp.float32) / config.head_dim
    angles = positions[..., None].astype(jnp.float32) * config.rope_theta**-half
    angles = jnp.concatenate([angles, angles], axis=-1)[:, :, None, :]
    cos, sin = jnp.cos(angles), jnp.sin(angles)
    causal = jnp.tril(jnp.ones((time, time), bool))
    mask = causal[None] & (segments[:, :, None] == segments[:, None, :])
    bias = jnp.where(mask, 0.0, -1e9)[:, None, None]
    groups = config.num_heads // config.num_kv_heads

    x = params["model.embed_tokens.weight"][tokens]
    for layer in range(config.num_layers):
        block = f"model.layers.{layer}."

        def project(value: jax.Array, name: str, heads: int, block: str = block) -> jax.Array:
            out = value @ params[f"{block}self_attn.{name}_proj.weight"].T
            return out.reshape(batch, time, heads, config.head_dim)

        y = _norm(x, params[block + "input_layernorm.weight"], config.norm_eps)
        q = project(y, "q", config.num_heads)
        k = project(y, "k", config.num_kv_heads)
        v = project(y, "v", config.num_kv_heads)
        q = _rotate(_norm(q, params[block + "self_attn.q_norm.weight"], config.norm_eps), cos, sin)
        k = _rotate(_norm(k, params[block + "self_attn.k_norm.weight"], config.norm_eps), cos, sin)
        q = q.reshape(batch, time, config.num_kv_heads, groups, config.head_dim)
        scores = jnp.einsum("btkgd,bskd->bkgts", q, k) * config.head_dim**-0.5
        weights = jax.nn.softmax(scores + bias, axis=-1)
        mixed = jnp.einsum("bkgts,bskd->btkgd", weights, v).reshape(batch, time, -1)
        x = x + mixed @ params[block + "self_attn.o_proj.weight"].T

        y = _norm(x, params[block + "post_attention_layernorm.weight"], config.norm_eps)
        gate = jax.nn.silu(y @ params[block + "mlp.gate_proj.weight"].T)
        up = y @ params[block + "mlp.up_proj.weight"].T
        x = x + (gate * up) @ params[block + "mlp.down_proj.weight"].T
    return _norm(x, params["model.norm.weight"], config.norm_eps)


def unembed(params: Params, hidden: jax.Array) -> jax.Array:
    """Logits over the vocabulary; the matrix is the embedding's."""
    return hidden @ params["model.embed_tokens.weight"].T
