"""Rings of real processes and sockets give what transformers gives, alone and in company."""

from collections.abc import Callable
from pathlib import Path

import pytest

from kafila.api.model import Model
from kafila.defaults import PREFILL_CHUNK
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


def test_members_with_several_devices_give_the_golden(
    tmp_path: Path, golden_folder: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XLA_FLAGS", "--xla_force_host_platform_device_count=2")
    with Ring(tmp_path, golden_folder("tied"), (2, 4), context=192) as ring:
        assert ring.greedy(CASES["tied"].prompt, NEW_TOKENS) == Golden.read("tied").tokens
        assert "blocks 0-1 loaded on 2 x cpu" in ring.log(ring.names[0])
        assert "blocks 2-5 loaded on 2 x cpu" in ring.log(ring.names[1])


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


@pytest.mark.parametrize("name", ["tied", "demo"])
def test_what_was_computed_before_changes_no_answer(
    tmp_path: Path, golden_folder: Callable[[str], Path], name: str
) -> None:
    """Prompts that begin alike, in float32 and bfloat16: who finds what differs from ring to ring,
    one after the other and together; what they are answered does not."""
    model = golden_folder(name) if name == "tied" else name
    begin = [(7 * i * i + i) % 250 for i in range(PREFILL_CHUNK * 2 + 90)]
    prompts = [[*begin[:size], *tail] for size in (300, 602) for tail in ([], [3, 1], [4] * 260)]
    with Ring(tmp_path / "one", model, (6,), context=1024, concurrency=1) as ring:
        alone = []
        for prompt in prompts:
            ring.greedy([249] * 300, 1)  # nothing is left of those before
            alone.append(ring.greedy(prompt, 8))
        again = ring.post("/v1/completions", {"prompt": prompts[-1], "max_tokens": 1})
        assert again["usage"]["prompt_tokens_details"] == {"cached_tokens": 768}
    with Ring(tmp_path / "three", model, (1, 3, 2), context=1024) as ring:
        assert ring.at_once(prompts, 8) == alone
        backwards = [ring.greedy(prompt, 8) for prompt in reversed(prompts)]
        assert backwards[::-1] == alone


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
