"""Likelihoods of continuations against brute force: every order, every mask, one token at a time."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxlm.config import ExecutionConfig, ModelConfig, ObjectiveConfig
from jaxlm.errors import UserError
from jaxlm.evaluation import continuation
from jaxlm.evaluation.continuation import Continuations, LogLikelihood, Request
from jaxlm.evaluation.continuation_masks import ExactCounts, Masks, chain_rule, every_mask
from jaxlm.families import build_model
from jaxlm.layers.structure import Structure
from jaxlm.objectives import Objective, build_objective
from tests.quick_jit import quick_jit

VOCAB, MASK, POSITIONS = 61, 60, 64
MODEL = build_model(
    ModelConfig(
        family="llama3_canon",
        canon_set="ABCD",
        vocab_size=VOCAB,
        num_layers=2,
        hidden_size=24,
        intermediate_size=32,
        num_heads=2,
        num_kv_heads=1,
        head_dim=8,
        max_positions=POSITIONS,
        init_std=0.4,
    ),
    ExecutionConfig(dtype="float32"),
)
PARAMS = MODEL.init(jax.random.key(3))
# An embedding of zeros is a head of zeros: all logits are 0.
UNIFORM = {**PARAMS, "embedding": {"table": jnp.zeros((VOCAB, 24))}}
TOKENS = np.random.default_rng(0).integers(0, MASK, 200).tolist()
SHORT = Request(TOKENS[:5], TOKENS[5:9], 0)
LONGER = Request(TOKENS[:5], TOKENS[5:14], 0)
ANSWERS = [
    SHORT,
    Request(TOKENS[:5], TOKENS[20:24], 0),
    Request(TOKENS[30:49], TOKENS[50:51], 1),
    Request(TOKENS[30:41], TOKENS[60:69], 1),
]


def objective(kind: str = "diffusion", block_size: int | None = None, shift: bool | None = None) -> Objective:
    config = ObjectiveConfig(kind=kind, block_size=block_size, shift=shift)
    return build_objective(config, MODEL, mask_token_id=MASK if kind == "diffusion" else None)


def scored(
    of: Objective,
    requests: Sequence[Request],
    masks: Masks | None = None,
    params: Any = PARAMS,
    positions_per_forward: int = 4096,
) -> list[LogLikelihood]:
    return compiled(of, positions_per_forward).log_likelihoods(params, requests, masks)


compiled = functools.lru_cache(Continuations)


def total(results: Sequence[LogLikelihood]) -> list[float]:
    return [result.log_likelihood for result in results]


@functools.partial(quick_jit, static_argnames="structure")
def naive_log_probs(tokens_T: jax.Array, structure: Structure) -> jax.Array:
    """fp32 [T, V] of one row."""
    return jax.nn.log_softmax(MODEL.logits(PARAMS, MODEL.hidden(PARAMS, tokens_T[None], structure))[0])


class Naive:
    """The definitions, a token at a time, on rows without padding, one stream."""

    def __init__(self, block_size: int, shift: bool) -> None:
        self.structure, self.shift = Structure(block_size), int(shift)

    def log_prob(self, row: Sequence[int], hidden: Sequence[int], token: int) -> float:
        """Of the token at place `token`, where the places `hidden` are masked."""
        noisy = np.array([MASK if place in hidden else row[place] for place in range(len(row))])
        return float(naive_log_probs(noisy, self.structure)[token - self.shift, row[token]])

    def blocks(self, request: Request) -> Iterator[list[int]]:
        """The places of the continuation by the block that their logits are read in."""
        start = len(request.context)
        places = range(start, start + len(request.continuation))
        for _, block in itertools.groupby(places, lambda place: self.structure.block(place - self.shift)):
            yield list(block)

    def seen_masked(self, block: Sequence[int], still: Sequence[int]) -> list[int]:
        """Of the tokens still to write, those whose position lies in the block that is being written."""
        number = self.structure.block(block[0] - self.shift)
        return [place for place in still if self.structure.block(place) == number]

    def in_order(self, row: Sequence[int], block: list[int], order: Sequence[int]) -> float:
        return sum(self.log_prob(row, self.seen_masked(block, order[done:]), order[done]) for done in range(len(order)))

    def left_to_right(self, request: Request) -> float:
        row = [*request.context, *request.continuation]
        return sum(self.in_order(row, block, block) for block in self.blocks(request))

    def mean_over_orders(self, request: Request) -> float:
        row = [*request.context, *request.continuation]
        return sum(
            float(np.mean([self.in_order(row, block, order) for order in itertools.permutations(block)]))
            for block in self.blocks(request)
        )


READINGS = [(0, False), (0, True), (3, False), (3, True), (1, False)]


def test_autoregression_is_the_sum_of_the_log_probabilities_in_one_pass() -> None:
    naive = Naive(1, shift=True)
    for result, request in zip(scored(objective("causal"), ANSWERS), ANSWERS, strict=True):
        row, start = [*request.context, *request.continuation], len(request.context)
        expected = sum(naive.log_prob(row, [], place) for place in range(start, len(row)))
        assert result.log_likelihood == pytest.approx(expected, abs=2e-5)
        assert (result.stderr, result.forwards, result.is_bound) == (0.0, 1, False)
        assert result.num_tokens == len(request.continuation)


@pytest.mark.parametrize("loss_chunk", [0, 3])
def test_an_answer_is_greedy_if_each_of_its_tokens_is_the_likeliest(loss_chunk: int) -> None:
    of = build_objective(ObjectiveConfig(), MODEL, loss_chunk=loss_chunk)
    greedy, start = list(SHORT.context), len(SHORT.context)
    for place in range(start, 14):
        filled = np.array(greedy + [0] * (14 - place))
        greedy.append(int(naive_log_probs(filled, Structure(1))[place - 1].argmax()))
    spoilt = [*greedy[:-1], (greedy[-1] + 1) % MASK]
    results = scored(of, [Request(row[:start], row[start:], 0) for row in (greedy, spoilt, greedy[:-2])])
    assert [result.is_greedy for result in results] == [True, False, True]
    assert scored(objective(), [SHORT])[0].is_greedy is None


def test_from_left_to_right_the_last_token_takes_no_position() -> None:
    row = TOKENS[: POSITIONS + 1]
    (result,) = scored(objective("causal"), [Request(row[:-3], row[-3:], 0)])
    log_probs_TV = np.asarray(naive_log_probs(np.array(row[:-1]), Structure(1)))
    expected = sum(log_probs_TV[place - 1, row[place]] for place in (62, 63, 64))
    assert result.log_likelihood == pytest.approx(float(expected), abs=2e-5)
    with pytest.raises(UserError, match="have 66 tokens, allowed: at most 65"):
        scored(objective("causal"), [Request(row, [1], 0)])


def test_blocks_of_one_with_a_shift_are_autoregression() -> None:
    assert total(scored(objective(block_size=1, shift=True), ANSWERS)) == total(scored(objective("causal"), ANSWERS))


@pytest.mark.parametrize(("block_size", "shift"), READINGS)
def test_all_masks_give_the_mean_over_all_orders(block_size: int, shift: bool) -> None:
    of = objective(block_size=block_size, shift=shift)
    (result,) = scored(of, [SHORT], every_mask)
    expected = Naive(block_size, shift).mean_over_orders(SHORT)
    assert result.log_likelihood == pytest.approx(expected, abs=1e-5)
    assert result.stderr == 0
    assert result.is_bound == (block_size != 1)


@pytest.mark.parametrize(("block_size", "shift"), READINGS)
def test_the_chain_rule_writes_from_left_to_right(block_size: int, shift: bool) -> None:
    of = objective(block_size=block_size, shift=shift)
    naive = Naive(block_size, shift)
    for result, request in zip(scored(of, ANSWERS[:2], chain_rule), ANSWERS[:2], strict=True):
        assert result.log_likelihood == pytest.approx(naive.left_to_right(request), abs=3e-5)
        assert (result.stderr, result.is_bound) == (0.0, False)
        assert result.forwards == max(len(block) for block in naive.blocks(request))


@pytest.mark.parametrize(("text", "block_size", "draws"), [(SHORT, 0, 14), (LONGER, 6, 32)], ids=["whole", "blocks"])
@pytest.mark.parametrize("shift", [False, True])
def test_a_sample_of_masks_is_within_four_standard_errors_of_all(
    text: Request, block_size: int, draws: int, shift: bool
) -> None:
    """As the answer to 30 questions, each with masks of its own: a few draws alone say little of their own spread."""
    of, repeats = objective(block_size=block_size, shift=shift), 30
    (expected,) = scored(of, [text], every_mask)
    results = scored(of, [text._replace(question=n) for n in range(repeats)], ExactCounts(draws, seed=7))
    assert all(expected.forwards > draws == result.forwards and result.is_bound for result in results)
    stderr = math.sqrt(sum(result.stderr**2 for result in results)) / repeats
    assert 0 < stderr < 0.02 * abs(expected.log_likelihood)
    assert abs(np.mean(total(results)) - expected.log_likelihood) < 4 * stderr


def test_blocks_of_one_without_a_shift_read_clean_text_and_one_mask() -> None:
    naive = Naive(1, shift=False)
    for result, request in zip(scored(objective(block_size=1), ANSWERS), ANSWERS, strict=True):
        row, start = [*request.context, *request.continuation], len(request.context)
        expected = sum(naive.log_prob(row, [place], place) for place in range(start, len(row)))
        assert result.log_likelihood == pytest.approx(expected, abs=3e-5)
        assert (result.stderr, result.forwards, result.is_bound) == (0.0, 1, False)


@pytest.mark.parametrize(("block_size", "shift"), READINGS)
def test_one_token_is_exact_in_one_pass(block_size: int, shift: bool) -> None:
    of = objective(block_size=block_size, shift=shift)
    request = ANSWERS[2]
    (result,) = scored(of, [request])
    naive = Naive(block_size, shift)
    assert result.log_likelihood == pytest.approx(naive.left_to_right(request), abs=1e-5)
    assert (result.stderr, result.forwards, result.is_bound) == (0.0, 1, False)


@pytest.mark.parametrize(("kind", "block_size"), [("causal", None), ("diffusion", 0), ("diffusion", 4)])
def test_neither_the_other_requests_nor_the_size_of_a_forward_change_a_result(kind: str, block_size: int) -> None:
    of = objective(kind, block_size)
    masks = None if kind == "causal" else ExactCounts(draws=4)
    together = scored(of, ANSWERS, masks)
    for others in (scored(of, ANSWERS, masks, positions_per_forward=100), scored(of, ANSWERS[::-1], masks)[::-1]):
        assert total(others) == pytest.approx(total(together), abs=2e-5)
        assert [r.stderr for r in others] == pytest.approx([r.stderr for r in together], abs=2e-5)
    for request, result in zip(ANSWERS, together, strict=True):
        (alone,) = scored(of, [request], masks)
        assert alone.log_likelihood == pytest.approx(result.log_likelihood, abs=2e-5)


@pytest.mark.parametrize("block_size", [0, 8])
def test_what_pads_a_row_is_not_seen(block_size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    of = objective(block_size=block_size)
    before = total(scored(of, ANSWERS, chain_rule))
    monkeypatch.setattr(continuation, "bucket", lambda size, least=16: 48 if least == 16 else 32)
    assert total(scored(of, ANSWERS, chain_rule)) == pytest.approx(before, abs=2e-5)


@pytest.mark.parametrize(
    ("of", "masks"),
    [
        (objective("causal"), None),
        (objective(), ExactCounts(draws=8)),
        (objective(block_size=5), ExactCounts(draws=8)),
        (objective(shift=True), chain_rule),
    ],
    ids=["causal", "whole", "blocks", "chain rule"],
)
def test_equal_logits_cost_ln_v_a_token_whatever_is_drawn(of: Objective, masks: Masks | None) -> None:
    for result in scored(of, ANSWERS, masks, UNIFORM):
        assert result.log_likelihood == pytest.approx(-result.num_tokens * math.log(VOCAB), rel=1e-6)
        assert result.stderr == pytest.approx(0, abs=1e-4)


@pytest.mark.parametrize("block_size", [0, 3])
def test_the_standard_error_is_the_spread_over_draws_and_the_mean_is_unbiased(block_size: int) -> None:
    """600 questions with one answer, so that only the masks differ."""
    of, repeats = objective(block_size=block_size), 600
    request = Request(SHORT.context, TOKENS[5:11], 0)
    draws = 8 if block_size == 0 else 4
    results = scored(of, [request._replace(question=number) for number in range(repeats)], ExactCounts(draws))
    values = np.array(total(results))
    claimed = np.square([result.stderr for result in results])
    # The noise of the two variances that are compared, from the spread of what they are means of.
    squares = np.square(values - values.mean())
    noise = math.sqrt((squares.var() + claimed.var()) / repeats)
    assert abs(squares.sum() / (repeats - 1) - claimed.mean()) < 4 * noise < 0.5 * claimed.mean()
    (exact,) = scored(of, [request], every_mask)
    assert abs(values.mean() - exact.log_likelihood) < 4 * values.std() / math.sqrt(repeats)


def test_answers_to_one_question_share_their_masks() -> None:
    masks, block = ExactCounts(draws=16), np.zeros(20, int)
    long, again = masks(block, 5), masks(block, 5)
    np.testing.assert_array_equal(long.masked_PC, again.masked_PC)
    assert (masks(block, 6).masked_PC != long.masked_PC).any()
    assert (ExactCounts(draws=16, seed=1)(block, 5).masked_PC != long.masked_PC).any()
    for size in (10, 15, 19):
        short = masks(block[:size], 5)
        shares = short.masked_PC.mean(axis=1), long.masked_PC.mean(axis=1)
        assert np.abs(shares[0] - shares[1]).max() <= 1 / size
        # Of the places that both have, one set is part of the other: the same places are hidden first.
        common, inside = long.masked_PC[:, :size], short.masked_PC
        assert ((common <= inside).all(axis=1) | (common >= inside).all(axis=1)).all()


def test_answers_of_many_more_tokens_begin_with_the_same_masks() -> None:
    """Random numbers are drawn for a rounded number of tokens, which must not change them."""
    masks = ExactCounts(draws=4)
    block = np.arange(200) // 8
    np.testing.assert_array_equal(masks(block, 1).masked_PC[:, :24], masks(block[:24], 1).masked_PC)


@pytest.mark.parametrize("size", [8, 16])
def test_each_number_of_hidden_tokens_is_drawn_equally_often(size: int) -> None:
    passes = ExactCounts(draws=2 * size)(np.zeros(size, int), 0)
    count_P = passes.masked_PC.sum(axis=1)
    assert np.bincount(count_P).tolist() == [0] + [2] * size
    assert count_P[::2].tolist() == count_P[1::2].tolist(), "two draws of one kind follow one another"
    blocks = ExactCounts(draws=2 * size)(np.arange(3 * size) // size, 0)
    counts_PG = blocks.masked_PC.reshape(2 * size, 3, size).sum(axis=2)
    assert all(np.bincount(counts).tolist() == [0] + [2] * size for counts in counts_PG.T)
    assert (counts_PG[:, 0] != counts_PG[:, 1]).any(), "blocks of one pass have levels of their own"


@pytest.mark.parametrize(
    "masks",
    [chain_rule, every_mask, ExactCounts(draws=2), ExactCounts(draws=64)],
    ids=["chain rule", "every", "2", "64"],
)
def test_every_token_counts_once_over_all_passes_on_average(masks: Masks) -> None:
    """A token weighs 1 in all; where masks are drawn, the tokens of a block weigh as much as there are of them."""
    block = np.array([0, 0, 0, 0, 0, 1, 2, 2, 2])
    passes = masks(block, 3)
    assert not passes.weight_PC[~passes.masked_PC].any()
    np.testing.assert_allclose(np.bincount(block, passes.weight_PC.sum(axis=0)), np.bincount(block))
    if not passes.drawn:
        np.testing.assert_allclose(passes.weight_PC.sum(axis=0), 1)


def test_masks_are_enumerated_where_that_takes_no_more_passes_than_drawing() -> None:
    masks = ExactCounts(draws=30)
    assert not masks(np.zeros(4, int), 0).drawn
    assert masks(np.zeros(5, int), 0).drawn
    assert len(masks(np.arange(40) // 4, 0).masked_PC) == 15


def test_few_shapes_are_compiled() -> None:
    traced: list[tuple[int, ...]] = []

    class Counting(Continuations):
        def _score_rows(self, params: Any, inputs_BS: jax.Array, *args: Any, **options: Any) -> jax.Array:
            traced.append(inputs_BS.shape)
            return super()._score_rows(params, inputs_BS, *args, **options)

    counting, masks = Counting(objective(), positions_per_forward=128), ExactCounts(draws=20)
    for size in (6, 7):
        counting.log_likelihoods(PARAMS, [Request(TOKENS[:n], TOKENS[n : n + size], n) for n in range(1, 8)], masks)
    assert traced == [(8, 16)]


def test_what_cannot_be_scored_is_refused() -> None:
    with pytest.raises(UserError, match="a continuation has no tokens"):
        scored(objective(), [Request([1], [], 0)])
    with pytest.raises(UserError, match="have 65 tokens, allowed: at most 64"):
        scored(objective(), [Request([1] * 60, [1] * 5, 0)])
    with pytest.raises(UserError, match="a context has no tokens"):
        scored(objective("causal"), [Request([], [1], 0)])
    assert len(scored(objective(), [Request([], [1, 2], 0)])) == 1
    for draws in (0, 1, 5):
        with pytest.raises(UserError, match=f"draws is {draws}, allowed: an even number"):
            ExactCounts(draws)
    with pytest.raises(ValueError, match="masks were given"):
        scored(objective("causal"), [SHORT], chain_rule)
