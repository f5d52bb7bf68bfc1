"""The demo model: its grammar, its tokenizer and the committed checkpoint."""

from __future__ import annotations

import json
from itertools import islice
from pathlib import Path

import pytest
from jinja2.sandbox import ImmutableSandboxedEnvironment
from tokenizers import Tokenizer

from tools.demo_model import chat, facts, sums
from tools.demo_model.chat import Turn

CHECKPOINT = Path(__file__).parent.parent / "kafila" / "demo_model"


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer.from_file(str(CHECKPOINT / "tokenizer.json"))


def test_grammar_is_the_same_for_the_same_seed() -> None:
    first, again, other = (list(islice(chat.conversations(s), 200)) for s in (3, 3, 4))
    assert first == again
    assert first != other


def test_conversations_alternate_and_leave_no_gap() -> None:
    for conversation in islice(chat.conversations(5), 2000):
        turns = [turn for turn in conversation if turn.role != "system"]
        assert [turn.role for turn in turns] == ["user", "assistant"] * (len(turns) // 2)
        assert all(turn.content.strip() and "{" not in turn.content for turn in conversation)


def test_held_out_questions_stay_out_of_training() -> None:
    held_out = {fact.question for fact in facts.held_out_facts()}
    assert len(held_out) > 100
    for conversation in islice(chat.conversations(6), 3000):
        assert not held_out & {turn.content for turn in conversation}


@pytest.mark.parametrize(
    ("a", "op", "b", "answer"),
    [
        (12, "+", 30, "12 + 30 = 42."),
        (58, "-", 29, "58 - 29 = 29."),
        (7, "x", 8, "7 x 8 = 56."),
    ],
)
def test_sums_are_right(a: int, op: str, b: int, answer: str) -> None:
    assert sums.Sum(a, op, b).answer == answer


def test_tokenizer_gives_back_what_it_was_given(tokenizer: Tokenizer) -> None:
    for text in ("What is 12 + 30?", "A zorbling's café, 東京 \n\n  two  spaces\t", "don't"):
        assert tokenizer.decode(tokenizer.encode(text).ids) == text
    assert len(tokenizer.encode("4096").ids) == 4


def test_chat_template_is_chatml() -> None:
    config = json.loads((CHECKPOINT / "tokenizer_config.json").read_text())
    talk = (Turn("system", "Be brief."), Turn("user", "Hi"), Turn("assistant", "Hello!"))
    environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
    template = environment.from_string(config["chat_template"])
    messages = [{"role": turn.role, "content": turn.content} for turn in talk]
    for prompt in (False, True):
        rendered = template.render(messages=messages, add_generation_prompt=prompt)
        assert rendered == chat.render(talk, generation_prompt=prompt)


def test_committed_checkpoint_is_a_small_qwen3(tokenizer: Tokenizer) -> None:
    config = json.loads((CHECKPOINT / "config.json").read_text())
    generation = json.loads((CHECKPOINT / "generation_config.json").read_text())
    assert config["architectures"] == ["Qwen3ForCausalLM"]
    assert config["model_type"] == "qwen3"
    assert config["tie_word_embeddings"] is True
    assert config["num_hidden_layers"] >= 6
    assert config["vocab_size"] == tokenizer.get_vocab_size()
    assert tokenizer.token_to_id(chat.IM_END) in generation["eos_token_id"]
    assert sum(path.stat().st_size for path in CHECKPOINT.iterdir()) <= 10_000_000
