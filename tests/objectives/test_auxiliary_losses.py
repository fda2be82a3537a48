"""What routed experts add to the loss: pairs of their own, which add up over rows however these are dealt out."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import NamedSharding

from jaxlm import randomness
from jaxlm.config import ExecutionConfig, ModelConfig, ObjectiveConfig
from jaxlm.families import Model, build_model
from jaxlm.layers.parameters import paths
from jaxlm.objectives import Objective, build_objective
from jaxlm.training.sharding import REPLICATED, make_mesh
from jaxlm.training.step import gradients
from tests.quick_jit import quick_jit
from tests.random_tree import random_tree

R, T, V, MASK = 8, 12, 31, 30
ROWS = np.arange(R)
KEY = randomness.key(0, "corruption", 0)
CONFIG = ModelConfig(
    family="moe",
    vocab_size=V,
    num_layers=2,
    hidden_size=16,
    intermediate_size=12,
    num_heads=2,
    num_kv_heads=1,
    head_dim=8,
    max_positions=T,
    num_shared_experts=1,
    router_balance_coef=0.3,
    router_z_coef=0.07,
)
OBJECTIVES = {
    "causal": ObjectiveConfig(),
    "diffusion": ObjectiveConfig(kind="diffusion"),
    "blocks": ObjectiveConfig(kind="diffusion", block_size=4),
}


def model(**changes) -> Model:
    return build_model(dataclasses.replace(CONFIG, **changes), ExecutionConfig(dtype="float32"))


def objective(name: str, **changes) -> Objective:
    return build_objective(OBJECTIVES[name], model(**changes), mask_token_id=MASK)


PARAMS = random_tree(model().abstract_params(), spread=0.3)


def batch() -> dict[str, np.ndarray]:
    """Rows of which different numbers of tokens count."""
    tokens = np.random.default_rng(0).integers(0, MASK, (R, T + 1))
    mask = np.arange(T + 1) < np.array([13, 4, 9, 1, 13, 7, 2, 11])[:, None]
    return {"tokens": tokens, "segment_ids": np.ones_like(tokens), "loss_mask": mask}


def part(rows) -> dict[str, np.ndarray]:
    return {name: values[rows] for name, values in batch().items()}


@pytest.mark.parametrize("name", OBJECTIVES)
def test_the_losses_of_the_router_are_pairs_weighted_by_rows(name) -> None:
    def sums(**changes):
        return quick_jit(objective(name, **changes), static_argnums=4)(PARAMS, batch(), KEY, ROWS, R)

    found, twice, none = sums(), sums(router_balance_coef=0.6), sums(router_z_coef=0.0)
    assert set(found) == {"loss", "router_balance", "router_z"}
    assert {key: float(weight) for key, (_, weight) in found.items()} == {
        "loss": batch()["loss_mask"][:, 1:].sum(),
        "router_balance": R,
        "router_z": R,
    }
    # A choice of two that is about even costs about two a row.
    assert 0.3 * R * 1.9 < found["router_balance"][0] < 0.3 * R * 4
    assert found["router_z"][0] > 0
    np.testing.assert_allclose(twice["router_balance"][0], 2 * found["router_balance"][0], rtol=1e-6)
    assert none["router_z"][0] == 0
    for other in (twice, none):
        np.testing.assert_allclose(other["loss"][0], found["loss"][0], rtol=1e-6)


@pytest.mark.parametrize("name", OBJECTIVES)
def test_sums_over_rows_add_up(name) -> None:
    """The loss of the text does not see the router's, and no row sees another."""
    evaluate = quick_jit(objective(name), static_argnums=4)
    whole = evaluate(PARAMS, batch(), KEY, ROWS, R)
    parts = [evaluate(PARAMS, part(rows), KEY, rows, R) for rows in (ROWS[:4][::-1], ROWS[4:])]
    for key, (total, weight) in whole.items():
        np.testing.assert_allclose(total, parts[0][key][0] + parts[1][key][0], rtol=1e-5, err_msg=key)
        assert weight == parts[0][key][1] + parts[1][key][1]
    nats_B, _ = quick_jit(objective(name).per_row, static_argnums=4)(PARAMS, batch(), KEY, ROWS, R)
    np.testing.assert_allclose(jnp.sum(nats_B), whole["loss"][0], rtol=1e-5)


@pytest.mark.parametrize(("name", "forwards"), [("causal", 2), ("causal", 8), ("blocks", 2)])
def test_the_gradient_of_the_total_does_not_depend_on_how_many_forwards_there_are(name, forwards) -> None:
    """1 x 8 rows against 2 x 4 and 8 x 1, the tokens that count unevenly spread."""
    mesh = make_mesh(ExecutionConfig(data_parallel=1))
    shardings = jax.tree.map(lambda _: NamedSharding(mesh, REPLICATED), PARAMS)

    def found(accumulation):
        one = quick_jit(
            lambda params, batch: gradients(
                objective(name), params, batch, KEY, jnp.int32(0), accumulation, mesh, shardings
            )
        )
        grads, means = one(PARAMS, batch())
        return dict(paths(grads)), means

    expected, means = found(1)
    assert np.abs(expected["layers/00/feed_forward/router/kernel"]).max() > 1e-4
    grads, other_means = found(forwards)
    for key in means:
        np.testing.assert_allclose(other_means[key], means[key], rtol=1e-5, err_msg=key)
    for path, leaf in expected.items():
        np.testing.assert_allclose(grads[path], leaf, atol=1e-5 * np.abs(leaf).max() + 1e-7, err_msg=path)


def test_the_router_is_moved_by_each_of_its_losses_where_the_text_says_nothing() -> None:
    """A zero head makes the loss of the text flat."""
    params = {**PARAMS, "head": {"table": jnp.zeros((V, 16))}}
    untied = objective("causal", tie_embeddings=False)

    @quick_jit
    def slopes(params):
        def sums(params):
            return {name: total for name, (total, _) in untied(params, batch(), KEY, ROWS, R).items()}

        found, pull = jax.vjp(sums, params)
        return {name: pull({other: jnp.float32(other == name) for other in found})[0] for name in found}

    largest = {
        name: float(np.abs(slope["layers"]["00"]["feed_forward"]["router"]["kernel"]).max())
        for name, slope in slopes(params).items()
    }
    assert largest["loss"] == 0
    assert largest["router_balance"] > 1e-3 and largest["router_z"] > 1e-3
