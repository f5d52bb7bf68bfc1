"""Packing conversations into rows, and the training loop."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from tokenizers import Tokenizer

from . import model
from .chat import Conversation, conversations
from .model import ModelConfig
from .tokenizer import IM_END_ID, IM_START_ID

# One wrong digit spoils an answer, and there are few of them.
_DIGIT_WEIGHT = 3

CORES = 2

Row = np.ndarray  # int32 [4, time + 1]: tokens, positions, segments, loss weights


@dataclass(frozen=True)
class Recipe:
    """How the model is trained, beside its sizes."""

    steps: int
    seed: int
    rows: int = 4
    peak_rate: float = 2e-3
    warmup: int = 100
    weight_decay: float = 0.1


def use_cpu() -> None:
    """Train on the CPU alone, a device a core; before JAX is first used."""
    jax.config.update("jax_platforms", "cpu")  # type: ignore[no-untyped-call]
    jax.config.update("jax_num_cpu_devices", CORES)  # type: ignore[no-untyped-call]


def encode(
    conversation: Conversation, tokenizer: Tokenizer, config: ModelConfig, rng: random.Random
) -> np.ndarray:
    """The conversation's tokens, their positions and what each counts in the loss, `[3, n]`.

    Now and then the positions jump at a turn, so that the model meets distances longer than a row.
    """
    tokens: list[int] = []
    positions: list[int] = []
    own: list[int] = []
    room = config.max_positions - config.trained_context
    digits = {tokenizer.token_to_id(digit) for digit in "0123456789"}
    at = 0
    for turn in conversation:
        head = [IM_START_ID, *tokenizer.encode(f"{turn.role}\n").ids]
        body = [*tokenizer.encode(turn.content).ids, IM_END_ID]
        tail = tokenizer.encode("\n").ids
        if tokens and rng.random() < 0.1:
            jump = rng.randint(0, room)
            room, at = room - jump, at + jump
        ids = head + body + tail
        learn = turn.role == "assistant"
        tokens += ids
        weights = [_DIGIT_WEIGHT if each in digits else 1 for each in body]
        own += [0] * len(head) + (weights if learn else [0] * len(body)) + [0] * len(tail)
        positions += range(at, at + len(ids))
        at += len(ids)
    return np.array([tokens, positions, own], np.int32)


def rows(config: ModelConfig, tokenizer: Tokenizer, seed: int) -> Iterator[Row]:
    """Endless rows of packed conversations: the oldest waiting one, then all that still fit."""
    length = config.trained_context + 1  # inputs and targets overlap
    rng = random.Random(seed)
    source = (encode(each, tokenizer, config, rng)[:, :length] for each in conversations(seed))
    waiting = list(islice(source, 32))
    while True:
        row, used, segment, left = np.zeros((4, length), np.int32), 0, 1, []
        for encoded in waiting:
            end = used + encoded.shape[1]
            if end > length:
                left.append(encoded)
                continue
            row[(0, 1, 3), used:end] = encoded
            row[2, used:end] = segment
            used, segment = end, segment + 1
        waiting = left + list(islice(source, 32 - len(left)))
        yield row


def _loss(config: ModelConfig, params: model.Params, batch: jax.Array) -> jax.Array:
    """Weighted mean cross-entropy of the model's own tokens."""
    tokens, positions, segments, own = (batch[:, i] for i in range(4))
    hidden = model.hidden_states(
        config, params, tokens[:, :-1], positions[:, :-1], segments[:, :-1]
    )
    logits = model.unembed(params, hidden)
    losses = optax.softmax_cross_entropy_with_integer_labels(logits, tokens[:, 1:])
    learned = own[:, 1:].astype(jnp.float32)
    return jnp.sum(losses * learned) / jnp.maximum(jnp.sum(learned), 1.0)


def _decayed(params: model.Params) -> dict[str, bool]:
    return {name: value.ndim > 1 and "embed" not in name for name, value in params.items()}


def _together(params: model.Params) -> dict[str, jax.Array]:
    """The weights on one device, for all that is not training."""
    return {name: jax.device_put(value, jax.devices()[0]) for name, value in params.items()}


def _spec(*axes: str) -> PartitionSpec:
    return PartitionSpec(*axes)  # type: ignore[no-untyped-call]


def train(
    config: ModelConfig,
    recipe: Recipe,
    tokenizer: Tokenizer,
    watch: Callable[[model.Params], str],
) -> dict[str, jax.Array]:
    """The trained weights; progress, and ten times what `watch` makes of them, is printed."""
    params = model.init(config, jax.random.key(recipe.seed))
    warmup = min(recipe.warmup, recipe.steps // 4)
    rate = optax.warmup_cosine_decay_schedule(
        0.0, recipe.peak_rate, warmup, recipe.steps, recipe.peak_rate * 0.02
    )
    optimizer = optax.chain(
        optax.clip_by_global_norm(1.0),
        optax.adamw(rate, b1=0.9, b2=0.99, weight_decay=recipe.weight_decay, mask=_decayed),
    )
    state = optimizer.init(params)

    def step(
        params: dict[str, jax.Array], state: optax.OptState, batch: jax.Array
    ) -> tuple[dict[str, jax.Array], optax.OptState, jax.Array]:
        loss, gradients = jax.value_and_grad(lambda p: _loss(config, p, batch))(params)
        updates, state = optimizer.update(gradients, state, params)
        return optax.apply_updates(params, updates), state, loss

    # A device a core, each with half of the rows: one device leaves a core idle on rows this few.
    mesh = Mesh(np.array(jax.devices()), ("rows",))
    params, state = jax.device_put((params, state), NamedSharding(mesh, _spec()))
    by_rows = NamedSharding(mesh, _spec("rows"))
    compiled = jax.jit(step, donate_argnums=(0, 1))
    source = rows(config, tokenizer, recipe.seed + 1)
    started, seen, recent = time.monotonic(), 0, []
    for number in range(1, recipe.steps + 1):
        batch = np.stack([next(source) for _ in range(recipe.rows)])
        seen += int(np.count_nonzero(batch[:, 2]))
        params, state, loss = compiled(params, state, jax.device_put(batch, by_rows))
        recent.append(float(loss))
        if number % 50 == 0 or number == recipe.steps:
            spent = time.monotonic() - started
            left = spent / number * (recipe.steps - number)
            print(
                f"step {number:5d}/{recipe.steps}  loss {sum(recent) / len(recent):.4f}  "
                f"{seen / spent:6.0f} tok/s  {spent / 60:4.1f} min gone, {left / 60:4.1f} to go",
                flush=True,
            )
            recent.clear()
        if number % max(recipe.steps // 10, 1) == 0 and number < recipe.steps:
            print(f"  {watch(_together(params))}", flush=True)
    return _together(params)
