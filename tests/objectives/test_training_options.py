"""What training may add to diffusion: crops, annealed attention, noise on masks. Each is off by default and exact."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxlm import randomness
from jaxlm.config import ExecutionConfig, ModelConfig, ObjectiveConfig
from jaxlm.errors import UserError
from jaxlm.families import build_model
from jaxlm.layers.linear import Embedding
from jaxlm.layers.reading import Reading
from jaxlm.layers.structure import Structure
from jaxlm.objectives import Objective, build_objective
from jaxlm.objectives import objective as objective_module
from jaxlm.objectives.annealing import annealed_attention
from jaxlm.objectives.corruption import corrupt
from jaxlm.objectives.cropping import kept_positions
from jaxlm.objectives.mask_noise import mask_noise
from tests.quick_jit import quick_jit

B, T, V, MASK, D = 4, 12, 31, 30, 16
ROWS = jnp.arange(B)
SHAPE = dict(num_layers=2, hidden_size=D, intermediate_size=24, num_heads=2, num_kv_heads=1, head_dim=8, init_std=0.3)


def build(**changes):
    config = ModelConfig(
        **dict(family="llama3_canon", canon_set="ABCD", vocab_size=V, max_positions=T) | SHAPE | changes
    )
    return build_model(config, ExecutionConfig(dtype="float32"))


@pytest.fixture(scope="module")
def model():
    return build()


@pytest.fixture(scope="module")
def params(model):
    return model.init(jax.random.key(0))


@pytest.fixture(scope="module")
def batch():
    tokens = jax.random.randint(jax.random.key(1), (B, T + 1), 0, MASK)
    documents = jnp.broadcast_to(1 + (jnp.arange(T + 1) >= 5), (B, T + 1))
    return {"tokens": tokens, "segment_ids": documents, "loss_mask": jnp.ones(tokens.shape, bool)}


def key(step: int = 0) -> jax.Array:
    return randomness.key(0, "corruption", step)


def diffusion(model, *, isolate_documents: bool = False, **changes) -> Objective:
    config = ObjectiveConfig(kind="diffusion", **changes)
    return build_objective(config, model, mask_token_id=MASK, isolate_documents=isolate_documents)


OPTIONS = [{"crop_share": 0.5}, {"anneal_steps": 9}, {"mask_noise_std": 0.5, "mask_noise_steps": 9}]


@pytest.mark.parametrize("option", OPTIONS, ids=str)
def test_an_option_changes_a_loss_of_training_and_none_of_evaluation(option, model, params, batch) -> None:
    plain, changed = diffusion(model), diffusion(model, **option)

    def loss(objective: Objective, step: int | None) -> float:
        return float(quick_jit(lambda p: objective(p, batch, key(), ROWS, B, step)["loss"][0])(params))

    assert loss(changed, 2) != loss(plain, None)
    assert loss(changed, None) == loss(plain, None)


@pytest.mark.parametrize("settings", [{}, {"block_size": 5}, {"shift": True}])
def test_without_options_the_program_of_a_training_step_is_that_of_a_validation(settings, model, batch) -> None:
    objective = diffusion(model, **settings)
    of_step, without = (
        str(jax.make_jaxpr(lambda p, step=step: objective(p, batch, key(), ROWS, B, step))(model.abstract_params()))
        for step in (jnp.int32(3), None)
    )
    assert of_step == without


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"shift": True},
        {"isolate_documents": True},
        {"block_size": 5},
        {"block_size": 4, "shift": True},
    ],
    ids=str,
)
def test_a_row_that_is_cut_costs_what_the_shorter_row_costs(settings, model, params, batch, monkeypatch) -> None:
    """Loss and gradients, under the same masks; so nothing behind the cut is scored, masked or seen."""
    step, row = 8, jnp.array([3])
    cut, plain = diffusion(model, crop_share=1.0, **settings), diffusion(model, **settings)
    one = {name: value[3:] for name, value in batch.items()}
    (kept,) = np.asarray(kept_positions(1.0, key(step), row, T))
    length = int(kept.sum())
    assert 5 < length < T, "long enough for two blocks, and cut"
    masked, p = corrupt(cut.config, key(step), row, B, jnp.ones((1, T), bool))

    def same_masks(config, key, rows, num_rows, scored):
        positions = scored.shape[1]
        return masked[:, :positions] & scored, p[:, :positions]

    monkeypatch.setattr(objective_module, "corrupt", same_masks)
    short = {name: value[:, : length + 1] for name, value in one.items()}

    def loss_and_gradient(objective, rows, step):
        def loss(params):
            nats, weight = objective.per_row(params, rows, key(8), row, B, step)
            return nats[0], weight[0]

        return quick_jit(jax.value_and_grad(loss, has_aux=True))(params)

    (loss, weight), grads = loss_and_gradient(cut, one, step)
    (expected, expected_weight), expected_grads = loss_and_gradient(plain, short, None)
    assert weight == expected_weight and weight <= length
    assert loss > 1
    np.testing.assert_allclose(loss, expected, rtol=1e-5)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5), grads, expected_grads)


def test_the_share_and_the_lengths_of_crops_are_as_said() -> None:
    kept = np.asarray(kept_positions(0.25, key(), jnp.arange(6_000), T))
    lengths = kept.sum(axis=1)
    np.testing.assert_array_equal(kept, np.arange(T) < lengths[:, None])  # the first n
    counts = np.bincount(lengths, minlength=T + 1)
    assert counts[0] == 0
    each = 6_000 * 0.25 / T  # of lengths 1..T-1; a cut at T is no cut
    assert np.abs(counts[1:T] - each).max() < 4.5 * np.sqrt(each)
    some = jnp.array([17, 3, 400])
    np.testing.assert_array_equal(kept_positions(0.25, key(), some, T), kept[some], err_msg="by position in the batch")
    assert (kept_positions(0.25, key(1), jnp.arange(100), T) != kept[:100]).any()


def test_annealed_attention_starts_as_causal_and_ends_as_all_visible() -> None:
    causal = np.tri(T, dtype=bool)
    np.testing.assert_array_equal(annealed_attention(10**7, key(), 0, T), causal)
    assert annealed_attention(10, key(), 9, T).all() and annealed_attention(10, key(), 50, T).all()
    ahead = ~np.tri(256, dtype=bool)
    half = np.asarray(annealed_attention(10, key(4), 4, 256))
    assert half[~ahead].all()
    assert abs(half[ahead].mean() - 0.5) < 5 * 0.5 / np.sqrt(ahead.sum())
    assert (np.asarray(annealed_attention(10, key(5), 4, 256)) != half).any(), "each step draws anew"


@pytest.mark.parametrize("settings", [{}, {"layer_pattern": "LG", "sliding_window": 3}], ids=str)
@pytest.mark.parametrize("attention", ["xla", "blocked"])
def test_hidden_states_under_annealed_attention(settings, attention, batch) -> None:
    """At the start those of a causal reading, at the end those of a bidirectional one, to the last bit."""
    model = build_model(build(**settings).config, ExecutionConfig(dtype="float32", attention=attention))
    params, tokens = model.init(jax.random.key(0)), batch["tokens"][:, :T]

    def annealed(step):
        allowed = annealed_attention(10**7, key(), step, T)
        return quick_jit(lambda p: model.hidden_and_losses(p, tokens, Structure(0), allowed_TT=allowed)[0])(params)

    read = {size: quick_jit(lambda p, size=size: model.hidden(p, tokens, Structure(size)))(params) for size in (0, 1)}
    np.testing.assert_allclose(annealed(0), read[1], atol=1e-5)
    np.testing.assert_allclose(annealed(10**7), read[0], atol=1e-5)
    assert np.abs(annealed(0) - read[0]).max() > 0.1


def test_annealed_attention_in_between_equals_a_dense_softmax(model, params, batch) -> None:
    """Weights by hand, from the queries and keys of the layer; every row and head sees what the one draw shows."""
    attention = model.bind(params).layers["00"].attention
    x_BTD = jax.random.normal(jax.random.key(2), (B, T, D))
    allowed = annealed_attention(2, key(), 0, T)
    segments = batch["segment_ids"][:, :T]
    reading = Reading(Structure(0), jnp.arange(T)[None], segments, allowed_TT=allowed)
    q, k, v = attention._project(x_BTD, reading)
    scores = jnp.einsum("bqnh,bskh->bnqs", q, k) / np.sqrt(8)  # one key head for both query heads
    seen = np.asarray(allowed) & (np.asarray(segments)[:, :, None] == np.asarray(segments)[:, None])
    weights = jax.nn.softmax(jnp.where(seen[:, None], scores, -jnp.inf), axis=-1)
    np.testing.assert_allclose(attention.weights(x_BTD, reading), weights, atol=1e-6)
    expected = attention.out(jnp.einsum("bnqs,bskh->bqnh", weights, v).reshape(B, T, -1))
    np.testing.assert_allclose(attention.whole(x_BTD, reading), expected, atol=1e-5)
    assert not np.allclose(expected, attention.whole(x_BTD, Reading(Structure(0), jnp.arange(T)[None], segments)))


def test_noise_falls_on_masked_inputs_only_with_the_given_spread_and_for_the_given_steps() -> None:
    hidden = jax.random.bernoulli(jax.random.key(3), 0.5, (64, T))
    noise = np.asarray(mask_noise(0.25, 5, key(4), jnp.arange(64), 4, hidden, 32))
    assert not noise[~np.asarray(hidden)].any()
    found = noise[np.asarray(hidden)]
    assert abs(found.std() - 0.25) < 5 * 0.25 / np.sqrt(2 * found.size)
    assert abs(found.mean()) < 5 * 0.25 / np.sqrt(found.size)
    assert len(np.unique(found)) > 0.99 * found.size, "independent"
    assert not np.asarray(mask_noise(0.25, 5, key(5), jnp.arange(64), 5, hidden, 32)).any()
    some = jnp.array([7, 50])
    np.testing.assert_array_equal(mask_noise(0.25, 5, key(4), some, 4, hidden[some], 32), noise[some])


@pytest.mark.parametrize("settings", [{}, {"block_size": 5}, {"block_size": 5, "shift": True}], ids=str)
def test_noise_is_added_to_the_embeddings_where_the_mask_stands(settings, model, params, batch, monkeypatch) -> None:
    """Seen at the first block; the clean stream and the text that is left have none."""
    objective = diffusion(model, mask_noise_std=0.5, mask_noise_steps=2, **settings)
    entered = []

    def noisy_embedding(hidden_and_losses):
        def watched(params, tokens, structure, segments, **disturbances):
            entered.append((np.asarray(tokens), disturbances.get("noise_BTD")))
            return hidden_and_losses(params, tokens, structure, segments, **disturbances)

        return watched

    monkeypatch.setattr(model, "hidden_and_losses", noisy_embedding(model.hidden_and_losses))
    losses = [float(objective(params, batch, key(), ROWS, B, step)["loss"][0]) for step in (1, 2, None)]
    (tokens, noise), (_, late), (_, none) = entered
    np.testing.assert_array_equal(np.asarray(noise).any(axis=-1), tokens == MASK)
    assert (tokens == MASK).any() and not np.asarray(late).any() and none is None
    assert losses[0] != losses[1] == losses[2]


def test_the_trunk_adds_the_noise_to_what_the_embedding_gives(model, params, batch) -> None:
    tokens, noise = batch["tokens"][:, :T], jax.random.normal(jax.random.key(4), (B, T, D))
    table = params["embedding"]["table"]
    spread = {**params, "embedding": {"table": (table[tokens] + noise).reshape(B * T, D)}}
    trunk = model.bind(params)
    trunk.embedding = Embedding(B * T, D, std=1.0, dtype="float32")
    by_row = model.hidden(spread, jnp.arange(B * T).reshape(B, T), Structure(0))
    np.testing.assert_allclose(
        model.hidden_and_losses(params, tokens, Structure(0), noise_BTD=noise)[0], by_row, atol=1e-5
    )


def test_annealing_is_refused_where_a_layer_is_no_attention() -> None:
    model = build(family="lfm2", canon_set="", layer_pattern="CG")
    with pytest.raises(UserError, match="objective.anneal_steps is 9, allowed: 0 with C layers in model.layer_pattern"):
        diffusion(model, anneal_steps=9)
