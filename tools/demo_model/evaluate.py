"""Greedy answers of a trained model, and how many of the held-out ones are exactly right."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from tokenizers import Tokenizer

from . import model, sums
from .chat import Turn, render, vary
from .facts import held_out_facts
from .model import ModelConfig
from .tokenizer import END_OF_TEXT_ID, IM_END_ID

SHOWCASE = (
    "Tell me a short story about a fox and a lake.",
    "tell me a story about a brave robot who finds a lantern",
    "What is 12 + 30?",
    "what is 7 plus 5",
    "What is 58 - 29?",
    "What is the opposite of hot?",
    "what colour is the sky",
    "What is the capital of Norway?",
    "What comes after Tuesday?",
    "Who are you?",
    "Who won the chess match in 1972?",
)

# Below these the checkpoint is not written.
LEAST_SUMS, LEAST_FACTS = 0.9, 0.9


@dataclass(frozen=True)
class Score:
    """Exact matches among held-out questions."""

    right: int
    asked: int
    wrong: tuple[str, ...]

    @property
    def share(self) -> float:
        return self.right / self.asked


@partial(jax.jit, static_argnums=0)
def _next_tokens(
    config: ModelConfig, params: model.Params, tokens: jax.Array, last: jax.Array
) -> jax.Array:
    positions = jnp.broadcast_to(jnp.arange(tokens.shape[1]), tokens.shape)
    hidden = model.hidden_states(config, params, tokens, positions, jnp.zeros_like(tokens))
    final = jnp.take_along_axis(hidden, last[:, None, None], axis=1)[:, 0]
    return jnp.argmax(model.unembed(params, final), axis=-1)


def answers(
    config: ModelConfig,
    params: model.Params,
    tokenizer: Tokenizer,
    questions: Sequence[str],
    limit: int,
) -> list[str]:
    """The greedy answer to each question, at most `limit` tokens; no cache, so keep both small."""
    prompts = [
        tokenizer.encode(render((Turn("user", question),), generation_prompt=True)).ids
        for question in questions
    ]
    lengths = np.array([len(prompt) for prompt in prompts])
    width = -(-(int(lengths.max()) + limit) // 32) * 32
    tokens = np.full((len(prompts), width), END_OF_TEXT_ID, np.int32)
    for row, prompt in zip(tokens, prompts, strict=True):
        row[: len(prompt)] = prompt
    starts, alive = lengths.copy(), np.ones(len(prompts), bool)
    for _ in range(limit):
        chosen = np.asarray(_next_tokens(config, params, jnp.asarray(tokens), lengths - 1))
        alive &= chosen != IM_END_ID
        if not alive.any():
            break
        tokens[alive, lengths[alive]] = chosen[alive]
        lengths[alive] += 1
    return [
        tokenizer.decode(row[start:end].tolist())
        for row, start, end in zip(tokens, starts, lengths, strict=True)
    ]


def _score(
    config: ModelConfig,
    params: model.Params,
    tokenizer: Tokenizer,
    pairs: Sequence[tuple[str, str]],
    limit: int,
) -> Score:
    given = answers(config, params, tokenizer, [question for question, _ in pairs], limit)
    wrong = tuple(
        f"{question} -> {answer}"
        for (question, right), answer in zip(pairs, given, strict=True)
        if answer != right
    )
    return Score(len(pairs) - len(wrong), len(pairs), wrong)


def score_sums(
    config: ModelConfig, params: model.Params, tokenizer: Tokenizer, seed: int, count: int = 256
) -> Score:
    """Sums of number pairs that training never showed."""
    rng = random.Random(seed)
    found = [sums.draw_where(rng, held_out=True) for _ in range(count)]
    pairs = [(vary(each.question(rng), rng), each.answer) for each in found]
    return _score(config, params, tokenizer, pairs, limit=16)


def score_facts(
    config: ModelConfig, params: model.Params, tokenizer: Tokenizer, seed: int, count: int = 256
) -> Score:
    """Facts asked in wordings that training never showed for them."""
    rng = random.Random(seed)
    known = held_out_facts()
    chosen = rng.sample(known, min(count, len(known)))
    return _score(
        config, params, tokenizer, [(each.question, each.answer) for each in chosen], limit=40
    )
