"""transformers itself, asked again: the goldens are what it gives. Run by `make test-peers`."""

import dataclasses
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from stages.checkpoint import Checkpoint
from stages.stage import Stage
from tests.reference import Reference
from tools.make_checkpoint import SIZES, write_checkpoint
from tools.make_goldens import CASES, Golden, ask_transformers
from tools.quantise import FORMATS, quantise


@pytest.mark.peers
@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("name", CASES)
def test_transformers_still_give_the_golden(
    golden_folder: Callable[[str], Path], name: str
) -> None:
    golden, now = Golden.read(name), ask_transformers(CASES[name], golden_folder(name))
    assert now.digest == golden.digest
    assert now.tokens == golden.tokens
    np.testing.assert_allclose(now.logits, golden.logits, rtol=0, atol=2e-4)


@pytest.mark.peers
@pytest.mark.filterwarnings("default")
def test_transformers_load_the_demo_model() -> None:
    """Tokenizer, chat template and weights, through transformers' own loaders."""
    from transformers import (  # type: ignore[import-not-found,unused-ignore]
        AutoModelForCausalLM,
        AutoTokenizer,
    )

    folder = Path(__file__).parents[2] / "kafila" / "demo_model"
    tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    model = AutoModelForCausalLM.from_pretrained(folder, local_files_only=True).eval()
    prompt = tokenizer.apply_chat_template(
        [{"role": "user", "content": "What is 12 + 30?"}],
        add_generation_prompt=True,
        return_tensors="pt",
        return_dict=True,
    )
    answer = model.generate(**prompt, max_new_tokens=24, do_sample=False)
    text = tokenizer.decode(answer[0, prompt["input_ids"].shape[1] :], skip_special_tokens=True)
    assert text == "12 + 30 = 42."


@pytest.mark.peers
@pytest.mark.filterwarnings("default")
def test_transformers_read_the_same_fp8(tmp_path: Path) -> None:
    """On the CPU they dequantise it, too; for AWQ they need one more package, made for GPUs."""
    pytest.importorskip("accelerate", reason="transformers need accelerate to read FP8")
    import torch  # type: ignore[import-not-found,unused-ignore]
    from transformers import (  # type: ignore[import-not-found,unused-ignore]
        AutoModelForCausalLM,
    )

    config = dataclasses.replace(SIZES["tiny"], hidden=256, ffn=384, head_dim=64, vocab=300)
    folder = quantise(
        write_checkpoint(tmp_path / "plain", config), tmp_path / "fp8", FORMATS["fp8"]
    )
    model = AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float32, attn_implementation="eager", local_files_only=True
    ).eval()
    tokens = list(range(3, 40))
    with torch.inference_mode():
        theirs = model(torch.tensor([tokens])).logits[0].numpy()
    wanted = Reference(folder).logits(tokens)
    np.testing.assert_allclose(theirs, wanted, rtol=0, atol=2e-4)
    checkpoint = Checkpoint.open(folder)
    blocks = range(config.blocks)
    stage = Stage.open(checkpoint, blocks, head=True, context=64, groups=1, rows=1)
    ours = stage.logits(stage.prefill(0, 0, 0, np.array(tokens, np.int32)))
    assert np.sqrt(np.mean((ours - theirs) ** 2)) < 0.12  # bfloat16's error, as in test_formats
