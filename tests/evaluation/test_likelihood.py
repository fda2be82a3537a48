"""Losses that are known beforehand come out, whatever the batch size, and a bound says that it is one."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import jax
import numpy as np
import pytest

from jaxlm.config import ExecutionConfig, ModelConfig, ObjectiveConfig
from jaxlm.evaluation.likelihood import Likelihood, Result, scored_tokens
from jaxlm.families import build_model
from jaxlm.objectives import Objective, build_objective

VOCAB, MASK, WINDOWS, T = 128, 127, 7, 16
TOKEN_BYTES = np.arange(VOCAB) % 5
SHAPE = ModelConfig(
    family="llama3_canon",
    vocab_size=VOCAB,
    num_layers=2,
    hidden_size=32,
    intermediate_size=48,
    num_heads=2,
    num_kv_heads=1,
    head_dim=16,
    max_positions=T,
    canon_set="AC",
)
MODEL = build_model(SHAPE, ExecutionConfig(dtype="float32"))
PARAMS = jax.tree.map(lambda x: 4 * x, MODEL.init(jax.random.key(1)))
# An embedding of zeros is a head of zeros: all logits are 0.
UNIFORM = {**PARAMS, "embedding": {"table": np.zeros((VOCAB, 32), np.float32)}}
WINDOWS_NT = np.random.default_rng(0).integers(0, MASK, (WINDOWS, T + 1)).astype(np.int32)
SCORED_NT = np.random.default_rng(1).random((WINDOWS, T + 1)) < 0.9


def objective(kind: str, block_size: int | None = None, **options: Any) -> Objective:
    config = ObjectiveConfig(kind=kind, block_size=block_size)
    return build_objective(config, MODEL, mask_token_id=MASK if kind == "diffusion" else None, **options)


def batches(size: int, filling: int = 0) -> Iterator[dict[str, np.ndarray]]:
    """Batches of `size`; the last is filled up with rows of the token `filling` that are not scored."""
    for start in range(0, WINDOWS, size):
        tokens, scored = WINDOWS_NT[start : start + size], SCORED_NT[start : start + size]
        short = ((0, size - len(tokens)), (0, 0))
        tokens = np.pad(tokens, short, constant_values=filling)
        yield {"tokens": tokens, "segment_ids": 1 + (tokens % 2 == 0), "loss_mask": np.pad(scored, short)}


def loss(of: Objective, params: Any = PARAMS, size: int = 3, draws: int = 1, seed: int = 0, filling: int = 0) -> Result:
    return Likelihood(of, TOKEN_BYTES).validate(params, batches(size, filling), WINDOWS, seed, draws)


def test_a_uniform_autoregressive_model_costs_ln_v_a_token_without_spread() -> None:
    result = loss(objective("causal"), UNIFORM)
    scored = SCORED_NT[:, 1:]
    num_bytes = int(TOKEN_BYTES[WINDOWS_NT[:, 1:]][scored].sum())
    assert result.loss == pytest.approx(math.log(VOCAB), rel=1e-6)
    assert result.stderr == pytest.approx(0, abs=1e-6)
    assert (result.num_tokens, result.num_bytes, result.num_windows) == (scored.sum(), num_bytes, WINDOWS)
    assert result.bits_per_byte == pytest.approx(scored.sum() * math.log2(VOCAB) / num_bytes, rel=1e-6)
    assert (result.is_bound, result.draws, result.monte_carlo_stderr) == (False, 1, 0.0)


@pytest.mark.parametrize("block_size", [0, 4])
def test_a_uniform_diffusion_model_costs_ln_v_within_the_noise_it_reports(block_size: int) -> None:
    result = loss(objective("diffusion", block_size), UNIFORM, draws=200)
    assert result.is_bound
    assert result.monte_carlo_stderr is not None and 0 < result.monte_carlo_stderr < 0.2
    assert result.loss == pytest.approx(math.log(VOCAB), abs=4 * result.monte_carlo_stderr)


@pytest.mark.parametrize(
    ("kind", "block_size", "draws"), [("causal", None, 1), ("diffusion", 0, 3), ("diffusion", 4, 2)]
)
def test_the_result_does_not_depend_on_the_batch_size(kind: str, block_size: int | None, draws: int) -> None:
    results = [loss(objective(kind, block_size), size=size, draws=draws) for size in (1, 3, 7)]
    for other in results[1:]:
        assert other.score.nats_N == pytest.approx(results[0].score.nats_N, rel=2e-5)
        assert other.loss == pytest.approx(results[0].loss, rel=1e-5)
        assert (other.num_tokens, other.num_bytes) == (results[0].num_tokens, results[0].num_bytes)


def test_what_fills_the_last_batch_changes_nothing() -> None:
    of = objective("diffusion", 0)
    strange = loss(of, size=4, filling=len(TOKEN_BYTES))  # an id that is no token
    assert strange.score.nats_N.tolist() == loss(of, size=4).score.nats_N.tolist()
    assert strange == loss(of, size=4)


def test_draws_differ_seeds_differ_and_both_repeat() -> None:
    of = objective("diffusion", 0)
    one, two = loss(of), loss(of, draws=2)
    second = 2 * two.score.nats_N - one.score.nats_N
    assert not np.allclose(second, one.score.nats_N)
    assert loss(of, seed=1).loss != one.loss
    assert loss(of).loss == one.loss
    assert one.monte_carlo_stderr is None
    per_draw = np.asarray([one.score.nats_N.sum(), second.sum()]) / one.num_tokens
    assert two.monte_carlo_stderr == pytest.approx(np.std(per_draw, ddof=1) / math.sqrt(2))


def test_the_standard_error_is_that_of_the_mean_over_windows() -> None:
    result = loss(objective("causal"))
    nats_N, tokens_N = result.score.nats_N, SCORED_NT[:, 1:].sum(axis=1)
    residual = nats_N - nats_N.sum() / tokens_N.sum() * tokens_N
    expected = math.sqrt(WINDOWS * residual.var(ddof=1)) / tokens_N.sum()
    assert result.stderr == pytest.approx(expected)


def test_isolated_documents_leave_out_their_first_tokens_here_too() -> None:
    of = objective("causal", isolate_documents=True)
    batch = next(batches(WINDOWS))
    inside = batch["segment_ids"][:, 1:] == batch["segment_ids"][:, :-1]
    result = loss(of)
    assert result.num_tokens == (SCORED_NT[:, 1:] & inside).sum()
    windows = scored_tokens(of, batch)
    assert [len(tokens) for tokens in windows] == result.score.tokens_N.tolist()
    assert sum(TOKEN_BYTES[tokens].sum() for tokens in windows) == result.num_bytes


def test_an_evaluation_compiles_once_and_the_next_one_not_at_all() -> None:
    traced: list[int] = []

    class Counting(Objective):
        def per_row(self, *args: Any) -> tuple[jax.Array, jax.Array]:
            traced.append(1)
            return super().per_row(*args)

    of = Counting(ObjectiveConfig(kind="diffusion"), MODEL, MASK)
    likelihood = Likelihood(of, TOKEN_BYTES)
    for draws in (3, 2):
        likelihood.validate(PARAMS, batches(3), WINDOWS, seed=draws, draws=draws)
    assert len(traced) == 1


def test_progress_counts_windows_and_a_short_split_is_an_error() -> None:
    likelihood, seen = Likelihood(objective("causal"), TOKEN_BYTES), list[int]()
    likelihood.validate(PARAMS, batches(3), WINDOWS, seed=0, progress=seen.append)
    assert seen == [3, 6, 7]
    with pytest.raises(ValueError, match="8 windows were announced, the batches hold 7"):
        likelihood.validate(PARAMS, batches(7), 8, seed=0)
    with pytest.raises(ValueError, match="draws is 2"):
        loss(objective("causal"), draws=2)
