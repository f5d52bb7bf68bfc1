"""Rings of real processes and sockets give what transformers gives, alone and in company."""

from collections.abc import Callable
from pathlib import Path

import pytest

from kafila.api.model import Model
from tools.loopback import Ring
from tools.make_goldens import CASES, NEW_TOKENS, Golden

TOKENS = 24


@pytest.mark.parametrize(
    ("name", "counts"),
    [
        ("tied", (6,)),
        ("untied-sharded", (5, 2)),
        ("yarn", (1, 3, 1)),
        ("tied-spare", (1, 1, 1, 1, 1)),
    ],
)
def test_a_ring_gives_the_golden(
    tmp_path: Path, golden_folder: Callable[[str], Path], name: str, counts: tuple[int, ...]
) -> None:
    with Ring(tmp_path, golden_folder(name), counts, context=192) as ring:
        assert ring.greedy(CASES[name].prompt, NEW_TOKENS) == Golden.read(name).tokens


def test_float32_requests_do_not_feel_each_other(
    tmp_path: Path, golden_folder: Callable[[str], Path]
) -> None:
    case = CASES["tied"]
    prompts = [
        [(token + 5 * i) % case.config.vocab for token in case.prompt[: 5 + 4 * i]]
        for i in range(8)
    ]
    with Ring(tmp_path, golden_folder("tied"), (2, 4), concurrency=8, groups=2) as ring:
        together = ring.at_once(prompts, TOKENS)
        assert together == [ring.greedy(prompt, TOKENS) for prompt in prompts]


def test_the_demo_model_is_the_same_for_every_division(tmp_path: Path) -> None:
    """bfloat16: eight requests together, alone, and over other divisions."""
    folder = Path("kafila/demo_model").resolve()
    tokens = Model.open("demo", folder).tokens
    assert tokens is not None
    prompts = [
        tokens.encode(
            f"<|im_start|>user\n{question}<|im_end|>\n<|im_start|>assistant\n", special=True
        )
        for question in (
            "What is 12 + 30?",
            "Who are you?",
            "Tell me a short story about a fox and a lake.",
            "What is the opposite of hot?",
            "What is 7 plus 5?",
            "Tell me a story about a bear.",
            "hello",
            "What does a cow say?",
        )
    ]
    with Ring(tmp_path / "one", "demo", (6,), concurrency=8) as ring:
        alone = [ring.greedy(prompt, TOKENS) for prompt in prompts]
        assert ring.at_once(prompts, TOKENS) == alone
        long = ring.greedy(prompts[2], NEW_TOKENS)
    for counts in ((1, 5), (1, 3, 2), (2, 1, 1, 1, 1)):
        with Ring(tmp_path / f"{len(counts)}", "demo", counts, concurrency=8) as ring:
            assert ring.greedy(prompts[2], NEW_TOKENS) == long
            assert ring.at_once(prompts, TOKENS) == alone
