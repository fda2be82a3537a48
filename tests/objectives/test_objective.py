"""The objective against closed forms and brute force."""

import dataclasses
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxlm import randomness
from jaxlm.config import ExecutionConfig, ModelConfig, ObjectiveConfig
from jaxlm.errors import UserError
from jaxlm.families import build_model
from jaxlm.layers.structure import Structure
from jaxlm.objectives import build_objective
from jaxlm.objectives import objective as objective_module
from jaxlm.objectives.corruption import corrupt, noise_levels
from tests.quick_jit import quick_jit

B, T, V, MASK = 4, 12, 31, 30
ROWS = jnp.arange(B)


@pytest.fixture(scope="module")
def model():
    shape = dict(
        num_layers=2, hidden_size=16, intermediate_size=24, num_heads=2, num_kv_heads=1, head_dim=8, init_std=0.3
    )
    config = ModelConfig(family="llama3_canon", canon_set="ABCD", vocab_size=V, max_positions=T, **shape)
    return build_model(config, ExecutionConfig(dtype="float32"))


@pytest.fixture(scope="module")
def params(model):
    return model.init(jax.random.key(0))


@pytest.fixture(scope="module")
def batch():
    tokens = jax.random.randint(jax.random.key(1), (B, T + 1), 0, MASK)
    return {"tokens": tokens, "segment_ids": jnp.ones_like(tokens), "loss_mask": jnp.ones(tokens.shape, bool)}


def key(step: int = 0) -> jax.Array:
    return randomness.key(0, "corruption", step)


EVERYTHING = 1 - 1e-9  # as eps: 1 in fp32, so that every token is masked and weighs 1


def diffusion(model, *, isolate_documents: bool = False, **changes):
    config = ObjectiveConfig(kind="diffusion", **changes)
    return build_objective(config, model, mask_token_id=MASK, isolate_documents=isolate_documents)


def mean(sums) -> float:
    return float(sums["loss"][0] / sums["loss"][1])


def brute_force(model, params, noisy: np.ndarray, structure: Structure, at: int, target: int) -> float:
    logits = model.logits(params, model.hidden(params, jnp.asarray(noisy)[None], structure))[0, at]
    return float(-jax.nn.log_softmax(logits)[target])


def test_causal_loss_is_the_mean_negative_log_likelihood(model, params, batch) -> None:
    loss = mean(build_objective(ObjectiveConfig(), model)(params, batch, key(), ROWS, B))
    tokens = np.asarray(batch["tokens"])
    expected = np.mean(
        [
            brute_force(model, params, tokens[r, :-1], Structure(1), i, tokens[r, i + 1])
            for r in range(B)
            for i in range(T)
        ]
    )
    assert loss == pytest.approx(expected, abs=1e-5)


def test_uniform_logits_at_full_noise_give_ln_v_of_all_rows(model, params, batch) -> None:
    """A zero head makes every row of the vocabulary equal."""
    flat = {**params, "embedding": {"table": jnp.zeros_like(params["embedding"]["table"])}}
    loss = mean(diffusion(model, eps=EVERYTHING)(flat, batch, key(), ROWS, B))
    assert loss == pytest.approx(math.log(V), rel=1e-5)


@pytest.mark.parametrize("block_size", [0, 1, 4, 5])
@pytest.mark.parametrize("shift", [False, True])
def test_a_known_mask_gives_its_count_times_ln_v_over_p(model, params, batch, block_size, shift) -> None:
    objective = diffusion(model, block_size=block_size, shift=shift)
    flat = {**params, "embedding": {"table": jnp.zeros_like(params["embedding"]["table"])}}
    nats, weight = objective.per_row(flat, batch, key(7), ROWS, B)
    masked, p = corrupt(objective.config, key(7), ROWS, B, objective.scored(batch))
    np.testing.assert_allclose(nats, jnp.sum(masked * math.log(V) / p, axis=1), rtol=1e-5)
    assert weight.tolist() == [T] * B


class Oracle:
    """In place of a model: at each position the logits of one token, `ahead` tokens after the one it is to predict."""

    def __init__(self, model, tokens: jax.Array, ahead: int) -> None:
        self.config, self.tokens, self.ahead = model.config, tokens, ahead

    def head_VD(self, params) -> jax.Array:
        return jnp.eye(V)

    def hidden_and_losses(self, params, inputs, structure, segments):
        said_BT = jnp.roll(self.tokens, -1 - self.ahead, axis=1)[:, :T]
        return jnp.tile(100.0 * jax.nn.one_hot(said_BT, V), (1, structure.streams, 1)), {}


class FreeHidden:
    """In place of a model: what it says at each position is its parameter, so that a gradient shows who is asked."""

    def __init__(self, model) -> None:
        self.config = model.config

    def head_VD(self, params) -> jax.Array:
        return jnp.eye(V)

    def hidden_and_losses(self, said_BTV, inputs, structure, segments):
        return jnp.tile(said_BTV, (1, structure.streams, 1)), {}


@pytest.mark.parametrize(
    "config",
    [ObjectiveConfig(), *(ObjectiveConfig(kind="diffusion", block_size=b, eps=EVERYTHING) for b in (0, 4))],
    ids=["causal", "whole window", "blocks"],
)
def test_what_the_mask_spares_is_never_masked_scored_or_learnt(model, batch, config) -> None:
    """Two prompts in a window, and a window of prompt alone."""
    spared = np.zeros((B, T + 1), bool)
    spared[:, :5], spared[:, 9:11], spared[1] = True, True, True
    prompts = {**batch, "loss_mask": jnp.asarray(~spared)}
    objective = build_objective(config, FreeHidden(model), mask_token_id=MASK)
    said = jax.random.normal(jax.random.key(2), (B, T, V))

    def loss(said_BTV, tokens):
        return objective(said_BTV, {**prompts, "tokens": tokens}, key(), ROWS, B)["loss"]

    (nats, weight), gradient = jax.value_and_grad(lambda s: loss(s, batch["tokens"]), has_aux=True)(said)
    assert weight == (~spared[:, 1:]).sum()
    np.testing.assert_array_equal(jnp.any(gradient != 0, axis=2), ~spared[:, 1:])
    masked = objective.corruption(prompts, key(), ROWS, B)
    np.testing.assert_array_equal(masked, ~spared[:, 1:] & objective.corrupts)
    other = jnp.where(spared, (batch["tokens"] + 1) % MASK, batch["tokens"])
    assert loss(said, other)[0] == nats


@pytest.mark.parametrize("shift", [False, True])
@pytest.mark.parametrize("block_size", [1, 5, 0])
def test_a_perfect_model_costs_nothing(model, batch, block_size, shift) -> None:
    config = ObjectiveConfig(kind="diffusion", block_size=block_size, shift=shift)
    right, wrong = (
        build_objective(config, Oracle(model, batch["tokens"], ahead), mask_token_id=MASK) for ahead in (0, 1)
    )
    assert right.per_row({}, batch, key(), ROWS, B)[0].tolist() == [0.0] * B
    assert (wrong.per_row({}, batch, key(), ROWS, B)[0] > 10).all()


@pytest.mark.parametrize("shift", [False, True])
@pytest.mark.parametrize("block_size", [1, 3, 5, 0])
def test_block_diffusion_equals_a_loop_over_blocks(model, params, batch, block_size, shift) -> None:
    """For each block: the clean text before it, the noisy block, one bidirectional-in-the-block forward."""
    objective = diffusion(model, block_size=block_size, shift=shift)
    masked, p = (np.asarray(x) for x in corrupt(objective.config, key(3), ROWS, B, objective.scored(batch)))
    tokens = np.asarray(batch["tokens"])
    block = block_size or T
    row, expected = 1, 0.0
    # Input position j carries token j+1 (or, shifted, token j) and predicts token j+1.
    carried = tokens[row, :-1] if shift else tokens[row, 1:]
    for start in range(0, T, block):
        stop = min(start + block, T)
        noisy = carried[:stop].copy()
        for j in range(start, stop):
            hidden = masked[row, j - 1] and j > start if shift else masked[row, j]
            noisy[j] = MASK if hidden else carried[j]
        structure = Structure(block) if block_size else Structure(0)
        for j in range(start, stop):
            if masked[row, j]:
                expected += brute_force(model, params, noisy, structure, j, tokens[row, j + 1]) / p[row, j]
    nats, _ = objective.per_row(params, batch, key(3), ROWS, B)
    assert float(nats[row]) == pytest.approx(expected, rel=2e-5)


def test_blocks_of_one_with_a_shift_read_like_autoregression(model, params, batch) -> None:
    """One clean causal stream: unmasked or not, the nats are those of the causal loss, token by token."""
    objective = diffusion(model, block_size=1, shift=True, eps=EVERYTHING)
    assert objective.structure(T) == Structure(1)
    causal = build_objective(ObjectiveConfig(), model)
    assert mean(objective(params, batch, key(), ROWS, B)) == pytest.approx(
        mean(causal(params, batch, key(), ROWS, B)), abs=1e-6
    )


def test_blocks_of_one_predict_each_token_from_the_clean_ones_before_it_and_a_mask(model, params, batch) -> None:
    tokens, row = batch["tokens"], 2
    # One row a token: what is before it, a mask in its place, and behind it what a causal reading does not see.
    index = jnp.arange(T)
    seen = jnp.where(index < index[:, None], tokens[row, 1:], jnp.where(index == index[:, None], MASK, 0))
    logits = model.logits(params, model.hidden(params, seen, Structure(1)))[index, index]
    expected = -jnp.take_along_axis(jax.nn.log_softmax(logits), tokens[row, 1:, None], axis=1).sum()
    nats, _ = diffusion(model, block_size=1, eps=EVERYTHING).per_row(params, batch, key(), ROWS, B)
    assert float(nats[row]) == pytest.approx(float(expected), rel=1e-5)


def test_a_block_as_long_as_the_row_is_full_diffusion(model, params, batch) -> None:
    a, b = (diffusion(model, block_size=size)(params, batch, key(), ROWS, B) for size in (0, T))
    assert float(a["loss"][0]) == float(b["loss"][0])


def test_the_estimate_is_unbiased_over_draws(model, params, batch) -> None:
    """Averaged over every mask of a short row, exactly: E over t of sum over masks equals the mean over draws."""
    objective = diffusion(model)
    draws = jax.jit(jax.vmap(lambda step: objective.per_row(params, batch, key(step), ROWS, B)[0].mean()))(
        jnp.arange(256)
    )
    half = np.asarray(draws).reshape(2, -1).mean(axis=1)
    spread = float(np.std(draws) / np.sqrt(128))
    assert abs(half[0] - half[1]) < 4 * math.sqrt(2) * spread


def test_masks_depend_on_seed_step_and_global_row_only(model, batch) -> None:
    objective = diffusion(model)
    whole = objective.corruption(batch, key(5), ROWS, B)
    for rows in ([0, 1], [2, 3], [3, 0]):
        part = {name: value[jnp.array(rows)] for name, value in batch.items()}
        np.testing.assert_array_equal(objective.corruption(part, key(5), jnp.array(rows), B), whole[jnp.array(rows)])
    assert (objective.corruption(batch, key(6), ROWS, B) != whole).any()
    same_text = {name: jnp.repeat(value[:1], B, axis=0) for name, value in batch.items()}
    masks = objective.corruption(same_text, key(5), ROWS, B)
    assert (masks[0] != masks[1]).any(), "equal texts in one batch get different masks"


def test_levels_are_spread_evenly_over_the_batch_and_over_a_row() -> None:
    config = ObjectiveConfig(kind="diffusion", block_size=2)
    t = np.asarray(noise_levels(config, key(), jnp.arange(16), 16, 8))
    for column in t.T:  # (u + position / B) mod 1 puts one level into each sixteenth
        assert sorted(np.floor(((column - t.min() % (1 / 16)) % 1) * 16 + 1e-4).astype(int) % 16) == list(range(16))
    assert np.ptp(t, axis=1).min() > 0.5
    iid = np.asarray(noise_levels(dataclasses.replace(config, stratified=False), key(), jnp.arange(4096), 4096, 1))
    assert abs(iid.mean() - 0.5) < 5 / np.sqrt(12 * 4096)


def test_no_weight_exceeds_one_over_eps(batch) -> None:
    config = ObjectiveConfig(kind="diffusion", eps=1e-2, stratified=False)
    _, p = corrupt(config, key(), jnp.arange(5000), 5000, jnp.ones((5000, 2), bool))
    assert float(p.min()) >= 1e-2 * (1 - 1e-6)


def test_unscored_tokens_are_neither_masked_nor_counted_nor_read_from(model, params, batch) -> None:
    mask = jnp.arange(T + 1)[None] < jnp.array([T + 1, 5, 1, 9])[:, None]
    padded = {**batch, "loss_mask": mask}
    for objective in (diffusion(model), diffusion(model, block_size=4), build_objective(ObjectiveConfig(), model)):
        assert not bool((objective.corruption(padded, key(), ROWS, B) & ~mask[:, 1:]).any())
        _, weight = objective.per_row(params, padded, key(), ROWS, B)
        assert weight.tolist() == [T, 4, 0, 8]


def test_padding_in_a_document_of_its_own_changes_nothing(model, params, batch) -> None:
    """Pads are unscored; isolated, their content reaches neither loss nor gradients."""
    real = jnp.arange(T + 1)[None] < 8
    segments = jnp.broadcast_to(jnp.where(real, 1, 2), (B, T + 1))
    mask = jnp.broadcast_to(real, (B, T + 1))

    def loss_and_gradient(fill: int):
        padded = {"tokens": jnp.where(real, batch["tokens"], fill), "segment_ids": segments, "loss_mask": mask}
        config = ObjectiveConfig(kind="diffusion")
        objective = build_objective(config, model, mask_token_id=MASK, isolate_documents=True)
        return jax.value_and_grad(lambda p: objective(p, padded, key(), ROWS, B)["loss"][0])(params)

    (a, grads_a), (b, grads_b) = loss_and_gradient(3), loss_and_gradient(17)
    assert float(a) == float(b)
    blocks_a, blocks_b = ({**g, "embedding": None} for g in (grads_a, grads_b))
    jax.tree.map(np.testing.assert_array_equal, blocks_a, blocks_b)


def test_isolated_documents_score_what_they_can_predict_and_do_not_leak(model, params, batch) -> None:
    segments = jnp.broadcast_to(jnp.where(jnp.arange(T + 1) < 5, 1, 2), (B, T + 1))
    packed = {**batch, "segment_ids": segments}
    objective = build_objective(ObjectiveConfig(), model, isolate_documents=True)
    nats, weight = objective.per_row(params, packed, key(), ROWS, B)
    assert weight.tolist() == [T - 1] * B  # the second document's first token has no predecessor of its own
    alone = {name: value[:, 5:] for name, value in packed.items()}
    before = {name: value[:, :5] for name, value in packed.items()}
    parts = [objective.per_row(params, part, key(), ROWS, B)[0] for part in (before, alone)]
    np.testing.assert_allclose(nats, parts[0] + parts[1], rtol=1e-5)


@pytest.mark.parametrize(
    ("block_size", "shift", "boundary"), [(0, False, 5), (0, True, 5), (4, False, 4), (5, True, 5)]
)
def test_isolated_documents_cost_under_diffusion_what_they_cost_alone(
    model, params, batch, block_size, shift, boundary, monkeypatch
) -> None:
    """Under the same masks, with Canon; blocks lie on the grid of the window, so the second document starts one."""
    carried = slice(0, T) if shift else slice(1, T + 1)
    documents = jnp.zeros((B, T + 1), int).at[:, carried].set(1 + (jnp.arange(T) >= boundary))
    packed = {**batch, "segment_ids": documents.at[:, 0].set(1).at[:, T].set(2)}
    isolated = diffusion(model, block_size=block_size, shift=shift, isolate_documents=True)
    together = diffusion(model, block_size=block_size, shift=shift)
    masked, p = corrupt(isolated.config, key(3), ROWS, B, isolated.scored(packed))

    def nats(objective, start: int, stop: int) -> jax.Array:
        part = {name: value[:, start : stop + 1] for name, value in packed.items()}
        given = masked[:, start:stop], p[:, start:stop]
        monkeypatch.setattr(objective_module, "corrupt", lambda *_: given)
        return quick_jit(lambda params: objective.per_row(params, part, key(3), ROWS, B)[0])(params)

    alone = nats(together, 0, boundary) + nats(together, boundary, T)
    np.testing.assert_allclose(nats(isolated, 0, T), alone, rtol=1e-5)
    assert (jnp.abs(nats(together, 0, T) - alone) > 1e-2).any(), "isolation does something"


def test_end_of_text_is_an_ordinary_token(model, batch) -> None:
    """It may be masked and is scored: masks go by position, not by id."""
    objective = diffusion(model, eps=EVERYTHING)
    eot = {**batch, "tokens": jnp.zeros_like(batch["tokens"])}
    assert objective.corruption(eot, key(), ROWS, B).all()


def test_a_mask_token_outside_the_vocabulary_is_refused(model) -> None:
    for mask in (None, V):
        with pytest.raises(UserError, match="allowed: an id below model.vocab_size = 31"):
            build_objective(ObjectiveConfig(kind="diffusion"), model, mask_token_id=mask)
