"""transformers itself, asked again: the goldens are what it gives. Run by `make test-peers`."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tools.make_goldens import CASES, Golden, ask_transformers


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
