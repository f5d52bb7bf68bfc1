"""Draws follow the distribution that the parameters describe, and depend on seed and position."""

from collections.abc import Iterator
from operator import itemgetter
from typing import Any

import jax
import numpy as np
import pytest

from stages import kernels
from stages.sampling import FRONT, Sampling, sample

Array = np.ndarray[Any, Any]

draw = jax.jit(sample)


@pytest.fixture(autouse=True, params=["kernels", "pure"])
def way(request: pytest.FixtureRequest) -> Iterator[None]:
    """Both ways a CPU may find the likeliest."""
    with kernels.using(kernels.best() if request.param == "kernels" else None):
        yield


def parameters(b: int, **changes: Any) -> Sampling:
    """Temperature 1, no filters, each row its own seed, unless changed."""
    base = Sampling.greedy(b)._replace(
        temperature=np.ones(b, np.float32), seed=np.arange(b, dtype=np.uint32)
    )
    return base._replace(
        **{k: np.broadcast_to(v, b).astype(getattr(base, k).dtype) for k, v in changes.items()}
    )


def kept(logits: Array, temperature: float, top_k: int, top_p: float, min_p: float) -> Array:
    """Probabilities after the filters, in float64, by the plainest way; [vocab]."""
    p = np.exp((logits.astype(np.float64) - logits.max()) / temperature)
    order = np.argsort(-p, kind="stable")
    allowed = np.zeros(len(p), bool)
    allowed[order[: top_k or len(p)]] = True
    p = np.where(allowed, p, 0)
    p /= p.sum()
    before = np.cumsum(p[order]) - p[order]
    if top_p < 1:
        p[order[1:][before[1:] >= top_p]] = 0
    p[p < min_p * p.max()] = 0
    whole: Array = p / p.sum()
    return whole


def uniform(seed: int, position: int) -> float:
    return float(jax.random.uniform(jax.random.fold_in(jax.random.key(np.uint32(seed)), position)))


@pytest.mark.parametrize("spread", [0.0, 0.3, 3.0])
@pytest.mark.parametrize("vocab", [60, FRONT + 1, 3000])
@pytest.mark.parametrize(
    ("temperature", "top_k", "top_p", "min_p"),
    [
        (1.0, 0, 1.0, 0.0),
        (0.6, 20, 0.95, 0.0),
        (1.3, 0, 0.9, 0.0),
        (1.0, 2000, 0.7, 0.0),
        (1.0, 2000, 1.0, 0.0),
        (0.8, 0, 1.0, 0.05),
        (1.5, 1500, 0.99, 0.01),
        (0.7, 1, 0.5, 0.5),
        (1.0, 0, 0.0, 1.0),
    ],
)
def test_draws_are_the_inverse_of_the_distribution(
    spread: float, vocab: int, temperature: float, top_k: int, top_p: float, min_p: float
) -> None:
    """Sorted from the likeliest, the draw takes the token at the uniform number of its position."""
    b = 8
    # Flat logits still differ, so that the order is clear; rounding may blur the edges.
    logits = (np.random.default_rng(vocab).permutation(vocab) * 1e-5)[None] + spread * (
        np.random.default_rng(1).standard_normal((b, vocab))
    )
    logits = logits.astype(np.float32)
    positions = np.arange(100, 100 + b, dtype=np.int32)
    sampling = parameters(b, temperature=temperature, top_k=top_k, top_p=top_p, min_p=min_p)
    tokens = np.asarray(draw(logits, positions, sampling))
    for row in range(b):
        p = kept(logits[row], temperature, top_k, top_p, min_p)
        order = np.argsort(-p, kind="stable")
        heap = np.cumsum(p[order])
        rank = int(np.flatnonzero(order == tokens[row])[0])
        point = uniform(row, 100 + row)
        slack = 2e-4  # float32 sums of thousands of terms, and cuts that fall elsewhere by one
        assert (heap[rank - 1] if rank else 0.0) - slack <= point <= heap[rank] + slack


def test_draws_have_the_distribution_of_the_logits() -> None:
    p = np.array([0.5, 0.25, 0.15, 0.07, 0.03])
    b = 4000
    logits = np.broadcast_to(np.log(p).astype(np.float32), (b, 5))
    tokens = np.asarray(draw(logits, np.arange(b, dtype=np.int32), parameters(b, seed=7)))
    counts = np.bincount(tokens, minlength=5)
    chi_square = float(((counts - b * p) ** 2 / (b * p)).sum())
    assert chi_square < 18.5  # 99.9 % of samples of the right distribution, 4 degrees of freedom


def test_a_draw_depends_on_seed_and_position_alone() -> None:
    logits = np.random.default_rng(0).standard_normal((8, 2500)).astype(np.float32)
    logits[:] = logits[0]
    seeds = np.array([1, 2, 1, 2, 1, 3, 3, 1], np.uint32)
    positions = np.array([5, 5, 6, 6, 5, 5, 5, 6], np.int32)
    sampling = parameters(8, seed=seeds)
    tokens = np.asarray(draw(logits, positions, sampling)).tolist()
    by_key = dict(zip(zip(seeds.tolist(), positions.tolist(), strict=True), tokens, strict=True))
    assert [by_key[int(s), int(p)] for s, p in zip(seeds, positions, strict=True)] == tokens
    assert len(set(by_key.values())) == len(by_key)  # 5 draws among 2,500 of one seed set
    for row in range(8):
        one = slice(row, row + 1)
        assert draw(
            logits[:1], positions[one], jax.tree.map(itemgetter(one), sampling)
        ).tolist() == [tokens[row]]


def test_greedy_rows_take_the_first_of_the_likeliest() -> None:
    logits = np.zeros((3, 2000), np.float32)
    logits[0, [7, 900]] = 1
    logits[1, [3, 5]] = 2
    sampling = parameters(3, temperature=np.array([0, 0, 1]))
    assert draw(logits, np.zeros(3, np.int32), sampling).tolist()[:2] == [7, 3]
    assert draw(logits, np.zeros(3, np.int32), Sampling.greedy(3)).tolist() == [7, 3, 0]


def test_a_low_temperature_is_greedy() -> None:
    logits = np.random.default_rng(3).standard_normal((4, 2000)).astype(np.float32)
    tokens = draw(logits, np.zeros(4, np.int32), parameters(4, temperature=1e-30))
    assert tokens.tolist() == logits.argmax(-1).tolist()


@pytest.mark.parametrize("vocab", [60, FRONT + 1, 3000])
def test_an_infinite_logit_is_the_likeliest(vocab: int) -> None:
    logits = np.random.default_rng(3).standard_normal((4, vocab)).astype(np.float32)
    logits[:, 7] = np.inf
    logits[1, 9:], logits[2, 7], logits[2, 11] = -np.inf, -np.inf, np.inf
    positions = np.arange(4, dtype=np.int32)
    for sampling in (
        Sampling.greedy(4),
        parameters(4),
        parameters(4, temperature=0.6, top_k=20, top_p=0.95),
        parameters(4, min_p=0.1),
    ):
        assert draw(logits, positions, sampling).tolist() == [7, 7, 11, 7]
    logits[3] = np.nan
    for sampling in (Sampling.greedy(4), parameters(4), parameters(4, top_p=0.9)):
        tokens = draw(logits, positions, sampling).tolist()
        assert tokens[:3] == [7, 7, 11]
        assert 0 <= tokens[3] < vocab
