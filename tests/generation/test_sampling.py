"""Warpers against transformers', draws against probabilities."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from transformers.generation.logits_process import (
    RepetitionPenaltyLogitsProcessor,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

from jaxlm.errors import UserError
from jaxlm.generation.sampling import Sampling, draw, mark, penalise, restrict

V = 50


def test_penalty_equals_transformers_and_spares_pads() -> None:
    logits = jax.random.normal(jax.random.key(0), (2, V)) * 3
    tokens = np.array([[3, 3, 9, 0], [4, 1, 0, 0]])
    real = np.array([[True, True, True, False], [True, True, False, False]])
    counted = mark(jnp.zeros((2, V), bool), jnp.asarray(tokens), jnp.asarray(real))
    ours = penalise(logits, counted, 1.8)
    for row in range(2):
        theirs = RepetitionPenaltyLogitsProcessor(1.8)(
            torch.tensor(tokens[row : row + 1][real[row : row + 1]][None]),
            torch.tensor(np.asarray(logits[row : row + 1])),
        )
        np.testing.assert_allclose(ours[row], theirs[0], rtol=1e-6)
    assert penalise(jnp.array([-2.0, 3.0]), jnp.array([True, True]), 2.0).tolist() == [-4.0, 1.5]
    np.testing.assert_array_equal(penalise(logits, counted, 1.0), logits)


@pytest.mark.parametrize(
    "sampling", [Sampling(1.0, top_k=7), Sampling(1.0, top_p=0.6), Sampling(0.5, 12, 0.8)], ids=str
)
def test_only_what_transformers_keeps_is_drawn(sampling) -> None:
    logits = jax.random.normal(jax.random.key(1), (1, V)) * 2
    kept = torch.tensor(np.asarray(logits)) / sampling.temperature
    if sampling.top_k:
        kept = TopKLogitsWarper(sampling.top_k)(None, kept)
    if sampling.top_p < 1:
        kept = TopPLogitsWarper(sampling.top_p)(None, kept)
    probabilities = torch.softmax(kept, -1)[0].numpy()
    n = 40_000
    tokens = draw(jnp.broadcast_to(logits, (n, V)), jax.random.split(jax.random.key(2), n), sampling)
    counts = np.bincount(np.asarray(tokens), minlength=V)
    assert (counts[probabilities == 0] == 0).all()
    spread = np.sqrt(n * probabilities * (1 - probabilities)) + 1e-9
    assert (np.abs(counts - n * probabilities) < 5 * spread + 1).all()


def test_rare_tokens_are_drawn_as_often_as_they_should_be() -> None:
    """In bf16, noise has 128 values and tails vanish; a 1e-3 tail over a million draws tells."""
    logits = jnp.log(jnp.array([0.999, 0.001]))
    n = 1_000_000
    tokens = draw(jnp.broadcast_to(logits, (n, 2)), jax.random.split(jax.random.key(0), n), Sampling(1.0))
    assert abs(int(tokens.sum()) - 1000) < 5 * np.sqrt(1000)


def test_greedy_takes_the_first_of_equals() -> None:
    assert draw(jnp.array([[1.0, 2.0, 2.0]]), jax.random.key(0)[None], Sampling()).tolist() == [1]


def test_forbidden_ids() -> None:
    out = restrict(jnp.zeros(6), 4, 2, None)
    assert np.isneginf(out).tolist() == [False, False, True, False, True, True]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"temperature": -1.0}, "--temperature is -1.0, allowed: 0 \\(greedy\\), or 0.001 to 1000"),
        ({"temperature": float("inf")}, "--temperature is inf, allowed: 0"),
        ({"temperature": float("nan")}, "--temperature is nan, allowed: 0"),
        ({"temperature": 1e-40}, "--temperature is 1e-40, allowed: 0"),
        ({"top_k": -1}, "--top_k is -1"),
        ({"top_p": 0.0}, "--top_p is 0.0, allowed: above 0, at most 1"),
        ({"repetition_penalty": 0.0}, "--repetition_penalty is 0.0, allowed: 0.001 to 1000"),
        ({"repetition_penalty": float("inf")}, "--repetition_penalty is inf, allowed: 0.001"),
    ],
)
def test_refusals(options, message) -> None:
    with pytest.raises(UserError, match=message):
        Sampling(**options)
