"""Configs: every released size in both spellings goes through, anything else is refused by name."""

import dataclasses
import json
import math
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stages.config import Qwen3Config
from stages.formats import Awq, CheckpointError
from stages.rope import frequencies

# hidden, blocks, heads, kv_heads, ffn, tied: the released family.
FAMILY = {
    "0.6B": (1024, 28, 16, 8, 3072, True),
    "1.7B": (2048, 28, 16, 8, 6144, True),
    "4B": (2560, 36, 32, 8, 9728, True),
    "8B": (4096, 36, 32, 8, 12288, False),
    "14B": (5120, 40, 40, 8, 17408, False),
    "32B": (5120, 64, 64, 8, 25600, False),
}
SIZES = [(size, False) for size in FAMILY] + [("4B", True)]


def released(size: str, *, is_2507: bool = False) -> dict[str, Any]:
    """The config.json of a released size, as transformers 4.51 wrote it."""
    hidden, blocks, heads, kv_heads, ffn, tied = FAMILY[size]
    return {
        "architectures": ["Qwen3ForCausalLM"],
        "attention_bias": False,
        "attention_dropout": 0.0,
        "bos_token_id": 151643,
        "eos_token_id": 151645,
        "head_dim": 128,
        "hidden_act": "silu",
        "hidden_size": hidden,
        "initializer_range": 0.02,
        "intermediate_size": ffn,
        "max_position_embeddings": 262144 if is_2507 else 40960,
        "max_window_layers": blocks,
        "model_type": "qwen3",
        "num_attention_heads": heads,
        "num_hidden_layers": blocks,
        "num_key_value_heads": kv_heads,
        "rms_norm_eps": 1e-06,
        "rope_scaling": None,
        "rope_theta": 5000000 if is_2507 else 1000000,
        "sliding_window": None,
        "tie_word_embeddings": tied,
        "torch_dtype": "bfloat16",
        "transformers_version": "4.51.0",
        "use_cache": True,
        "use_sliding_window": False,
        "vocab_size": 151936,
    }


def respelled(old: dict[str, Any]) -> dict[str, Any]:
    """The same config as transformers 5 writes it."""
    new = {k: v for k, v in old.items() if k not in ("torch_dtype", "rope_theta", "rope_scaling")}
    rope = {"rope_type": "default", **(old["rope_scaling"] or {}), "rope_theta": old["rope_theta"]}
    layers = ["full_attention"] * old["num_hidden_layers"]
    return new | {"dtype": old["torch_dtype"], "rope_parameters": rope, "layer_types": layers}


@pytest.mark.parametrize(("size", "is_2507"), SIZES)
def test_every_released_size_in_both_spellings(size: str, is_2507: bool) -> None:
    hidden, blocks, heads, kv_heads, ffn, tied = FAMILY[size]
    config = Qwen3Config.from_dict(released(size, is_2507=is_2507))
    assert config == Qwen3Config(
        hidden=hidden,
        blocks=blocks,
        heads=heads,
        kv_heads=kv_heads,
        head_dim=128,
        ffn=ffn,
        vocab=151936,
        eps=1e-6,
        rope_theta=5e6 if is_2507 else 1e6,
        yarn=None,
        tied=tied,
        max_positions=262144 if is_2507 else 40960,
        dtype="bfloat16",
    )
    newer = Qwen3Config.from_dict(respelled(released(size, is_2507=is_2507)))
    assert newer == config
    assert newer.digest == config.digest
    assert config.kv_bytes == 4096


def test_digest_tells_every_field_apart() -> None:
    config = Qwen3Config.from_dict(released("8B") | {"rope_scaling": YARN})
    assert config.digest.startswith("sha256:")
    assert config.yarn is not None
    others = [
        dataclasses.replace(config, **{field.name: getattr(config, field.name) * 2})
        for field in dataclasses.fields(config)
        if field.name not in ("yarn", "dtype", "stored", "kept")
    ]
    others.append(dataclasses.replace(config, dtype="float32"))
    others.append(dataclasses.replace(config, stored=Awq(128, ())))
    others.append(dataclasses.replace(config, kept="int8"))
    others.append(dataclasses.replace(config, yarn=None))
    others.append(
        dataclasses.replace(config, yarn=dataclasses.replace(config.yarn, truncate=False))
    )
    digests = {other.digest for other in others} | {config.digest}
    assert len(digests) == len(others) + 1


YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768}


def test_yarn_in_both_spellings() -> None:
    old = released("8B") | {"rope_scaling": YARN}
    config = Qwen3Config.from_dict(old)
    assert config.yarn is not None
    assert config.yarn.factor == 4.0
    assert config.yarn.original_positions == 32768
    assert config.yarn.attention_factor == pytest.approx(0.1 * math.log(4) + 1)
    assert (config.yarn.beta_fast, config.yarn.beta_slow, config.yarn.truncate) == (32, 1, True)
    assert config.max_positions == 131072
    assert Qwen3Config.from_dict(respelled(old)) == config
    oldest = {"type" if k == "rope_type" else k: v for k, v in YARN.items()}
    assert Qwen3Config.from_dict(released("8B") | {"rope_scaling": oldest}) == config


def test_yarn_values_of_the_config_win_over_defaults() -> None:
    scaling = YARN | {"attention_factor": 1.5, "beta_fast": 16, "beta_slow": 2, "truncate": False}
    yarn = Qwen3Config.from_dict(released("8B") | {"rope_scaling": scaling}).yarn
    assert yarn is not None
    assert (yarn.attention_factor, yarn.beta_fast, yarn.beta_slow) == (1.5, 16.0, 2.0)
    assert yarn.truncate is False
    scaling = YARN | {"mscale": 1.0, "mscale_all_dim": 0.5}
    yarn = Qwen3Config.from_dict(released("8B") | {"rope_scaling": scaling}).yarn
    assert yarn is not None
    stretch = math.log(4)
    assert yarn.attention_factor == pytest.approx((0.1 * stretch + 1) / (0.05 * stretch + 1))


def test_original_positions_default_to_the_declared_ones() -> None:
    scaling = {"rope_type": "yarn", "factor": 2}
    config = Qwen3Config.from_dict(released("8B") | {"rope_scaling": scaling})
    assert config.yarn is not None
    assert config.yarn.original_positions == 40960
    assert config.max_positions == 81920


REFUSED = [
    ({"architectures": ["LlamaForCausalLM"], "model_type": "llama"}, "LlamaForCausalLM"),
    ({"architectures": ["Qwen3ForSequenceClassification"]}, "Qwen3ForSequenceClassification"),
    ({"model_type": "qwen3_moe", "architectures": ["Qwen3MoeForCausalLM"]}, "Qwen3MoeForCausalLM"),
    ({"model_type": "qwen2", "architectures": None}, "qwen2"),
    ({"attention_bias": True}, "attention_bias"),
    ({"hidden_act": "gelu"}, "hidden_act is 'gelu'"),
    ({"use_sliding_window": True, "sliding_window": 4096, "max_window_layers": 10}, "sliding"),
    ({"layer_types": ["full_attention", "sliding_attention"]}, "sliding"),
    (
        {"quantization_config": {"quant_method": "fp8"}},
        "weight_block_size is None.*one factor a block",
    ),
    ({"torch_dtype": "float16"}, "dtype is 'float16'.*bfloat16 and float32"),
    ({"torch_dtype": None}, "neither dtype nor torch_dtype"),
    ({"rope_scaling": {"rope_type": "linear", "factor": 2.0}}, "rope_type is 'linear'"),
    ({"rope_scaling": YARN | {"factor": 0.5}}, "factor is 0.5"),
    ({"rope_scaling": YARN | {"factor": float("nan")}}, "factor is nan"),
    ({"rope_scaling": YARN | {"truncate": "yes"}}, "truncate is 'yes'"),
    ({"rope_scaling": [4]}, "not an object"),
    ({"rope_parameters": {"rope_theta": 1e6, "partial_rotary_factor": 0.5}}, "partial_rotary"),
    ({"rope_theta": None}, "rope_theta is missing"),
    ({"rope_theta": "a lot"}, "rope_theta is 'a lot', not a number"),
    ({"hidden_size": None}, "hidden_size is missing"),
    ({"hidden_size": 0}, "hidden_size is 0, not a positive"),
    ({"hidden_size": 10.5}, "hidden_size is 10.5, not a positive whole"),
    ({"num_hidden_layers": True}, "num_hidden_layers is True"),
    ({"num_hidden_layers": 10**9}, "more than 1024"),
    ({"num_key_value_heads": 7}, "does not divide"),
    ({"head_dim": 63}, "head_dim is 63"),
    ({"tie_word_embeddings": "true"}, "tie_word_embeddings is 'true'"),
    ({"rms_norm_eps": -1e-6}, "rms_norm_eps is -1e-06"),
    ({"rms_norm_eps": 1e300}, "of sensible size"),
    ({"rope_theta": 1}, "rope_theta is 1.0"),
    ({"architectures": 5}, "architectures is 5, not a list"),
    ({"layer_types": 5}, "layer_types is 5, not a list"),
    ({"torch_dtype": ["bfloat16"]}, r"dtype is \['bfloat16'\]"),
    ({"model_type": "\x1b[2J", "architectures": None}, r"architecture is '\\x1b\[2J'"),
    ({"use_sliding_window": True, "sliding_window": 1, "max_window_layers": None}, "sliding"),
    ({"hidden_size": 1 << 40}, "hidden_size is more than 65536"),
    ({"vocab_size": 10**400}, "vocab_size is more than"),
    ({"hidden_size": 65536, "intermediate_size": 1 << 19}, "weights is none of Qwen3's"),
    ({"rope_scaling": YARN | {"factor": 1e12}}, "YaRN stretches to more than"),
]


@pytest.mark.parametrize(("change", "words"), REFUSED)
def test_refuses_what_it_cannot_compute(change: dict[str, Any], words: str) -> None:
    with pytest.raises(CheckpointError, match=words) as caught:
        Qwen3Config.from_dict(released("8B") | change)
    assert "\n" not in str(caught.value)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=4,
) | st.sampled_from([10**400, -(10**400), 1e308, 5e-324, "yarn", "bfloat16"])
YARN_KEYS = [*YARN, "rope_theta", "attention_factor", "beta_fast", "truncate", "mscale_all_dim"]
KEYS = [*released("8B"), "layer_types", "rope_parameters", "quantization_config", "dtype"]


@given(
    st.dictionaries(st.sampled_from(KEYS), JSON), st.dictionaries(st.sampled_from(YARN_KEYS), JSON)
)
def test_any_value_is_read_or_refused_in_one_line(
    changes: dict[str, Any], scaling: dict[str, Any]
) -> None:
    config = released("8B") | {"rope_scaling": YARN | {"mscale": 1.0} | scaling} | changes
    message = ""
    try:
        found = Qwen3Config.from_dict(config)
    except CheckpointError as error:
        message = str(error)
    else:
        turns, _ = frequencies(found)
        assert found.digest
        assert np.isfinite(turns).all()
    assert message.isprintable()
    assert len(message) < 300


def test_sliding_window_that_no_block_uses_is_no_reason_to_refuse() -> None:
    unused = {"use_sliding_window": True, "sliding_window": 4096, "max_window_layers": 36}
    assert Qwen3Config.from_dict(released("8B") | unused).blocks == 36


def test_reading_configs_and_checkpoints_imports_no_jax() -> None:
    code = "import sys, stages.checkpoint, kafila.manifest; print([*sys.modules])"
    modules = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True).stdout
    loaded = set(json.loads(modules.decode().replace("'", '"')))
    assert "stages.checkpoint" in loaded
    assert not loaded & {"jax", "jaxlib", "flax", "numpy", "huggingface_hub"}
