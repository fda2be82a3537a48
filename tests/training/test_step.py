"""One update: accumulation is the batch's gradient, auxiliary pairs keep their weights, moments follow parameters."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxlm import randomness
from jaxlm.config import RunConfig
from jaxlm.families import build_model
from jaxlm.objectives import build_objective
from jaxlm.training.optimizer import build_optimizer, learning_rate
from jaxlm.training.sharding import make_mesh, param_shardings, to_devices
from jaxlm.training.state import abstract_state, initial_state, shardings_of
from jaxlm.training.step import compile_step, gradients

LENGTHS = (16, 16, 3, 3, 16, 1, 2, 0)  # scored tokens of each row: means of micro-batches would be far off


@pytest.fixture
def batch() -> dict[str, jax.Array]:
    tokens = np.random.default_rng(0).integers(0, 300, (8, 17), dtype=np.int32)
    mask = np.arange(17)[None] <= np.asarray(LENGTHS)[:, None]
    mask[7] = False
    return {"tokens": tokens, "segment_ids": np.ones_like(tokens), "loss_mask": mask}


def pieces(config: RunConfig) -> tuple[Any, Any, Any]:
    model = build_model(config.model, config.execution)
    objective = build_objective(config.objective, model, mask_token_id=config.model.mask_token_id)
    return model, objective, make_mesh(config.execution)


@pytest.mark.parametrize(
    "objective_fields", [{"kind": "causal"}, {"kind": "diffusion"}, {"kind": "diffusion", "block_size": 4}]
)
def test_accumulated_gradients_are_those_of_the_batch(
    objective_fields: dict[str, Any], batch: dict[str, jax.Array], tiny: Callable[..., RunConfig]
) -> None:
    config = tiny(objective=objective_fields, model={"mask_token_id": 300})
    model, objective, mesh = pieces(config)
    params = model.init(jax.random.key(0))
    shardings = param_shardings(mesh, model.abstract_params(), model.logical_axes())
    key = randomness.key(0, "corruption", 3)

    def of(accumulation: int) -> tuple[Any, Any]:
        return jax.jit(lambda p, b: gradients(objective, p, b, key, jnp.int32(3), accumulation, mesh, shardings))(
            params, batch
        )

    whole, means = of(1)
    assert means["loss"] > 1
    for accumulation in (2, 8):
        parts, part_means = of(accumulation)
        np.testing.assert_allclose(part_means["loss"], means["loss"], rtol=1e-6)
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-6), parts, whole)


def test_each_pair_is_divided_by_its_own_weight_over_the_whole_batch(
    batch: dict[str, jax.Array], tiny: Callable[..., RunConfig]
) -> None:
    """An auxiliary loss with weights of its own, as a mixture of experts will have."""
    config = tiny()
    _, _, mesh = pieces(config)

    def objective(
        params: Any, rows: dict[str, jax.Array], key: Any, rows_B: jax.Array, num_rows: int, step: Any
    ) -> Any:
        x = params["x"] * rows["tokens"][:, 0].astype(jnp.float32)
        scored = rows["loss_mask"][:, 1:].sum(1, dtype=jnp.float32)
        return {"loss": (jnp.sum(x * scored), jnp.sum(scored)), "balance": (jnp.sum(x**2), jnp.float32(x.shape[0]))}

    params = {"x": jnp.float32(0.5)}
    shardings = {"x": jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec())}
    token_R, scored_R = batch["tokens"][:, 0].astype(np.float64), np.asarray(LENGTHS, np.float64)
    expected = (token_R * scored_R).sum() / scored_R.sum() + (2 * 0.5 * token_R**2).mean()
    for accumulation in (1, 2, 4):
        grads, means = jax.jit(
            lambda p, b, a=accumulation: gradients(objective, p, b, jax.random.key(0), jnp.int32(0), a, mesh, shardings)  # type: ignore[arg-type]
        )(params, batch)
        np.testing.assert_allclose(grads["x"], expected, rtol=1e-6)
        np.testing.assert_allclose(means["balance"], ((0.5 * token_R) ** 2).mean(), rtol=1e-6)


def test_finding_the_weights_first_costs_no_forward(
    batch: dict[str, jax.Array], tiny: Callable[..., RunConfig]
) -> None:
    config = tiny(execution={"attention": "xla", "loss_chunk": 32})
    model, objective, mesh = pieces(config)
    shardings = param_shardings(mesh, model.abstract_params(), model.logical_axes())

    def products(accumulation: int) -> int:
        jitted = jax.jit(
            lambda p, b: gradients(objective, p, b, jax.random.key(0), jnp.int32(0), accumulation, mesh, shardings)
        )
        return jitted.lower(model.abstract_params(), batch).compile().as_text().count(" dot(")

    assert products(2) == products(1) > 0


def test_ten_steps_are_ten_updates_at_the_scheduled_rates(
    batch: dict[str, jax.Array], tiny: Callable[..., RunConfig]
) -> None:
    # Accumulation must not advance the schedule: 4 forwards of one update are one step.
    config = tiny(train={"micro_batch": 2, "learning_rate": 1e-2}, optimizer={"warmup_share": 0.5, "weight_decay": 0.0})
    model, objective, mesh = pieces(config)
    optimizer = build_optimizer(config)
    abstract = abstract_state(model, optimizer, mesh)
    state = initial_state(model, optimizer, abstract, config.seed)
    step, _ = compile_step(config, objective, optimizer, mesh, abstract)
    rows = to_devices(mesh, batch)
    for number in range(10):
        before = np.asarray(state["params"]["final_norm"]["scale"]).copy()
        state, metrics = step(state, rows)
        moved = np.abs(np.asarray(state["params"]["final_norm"]["scale"]) - before).max()
        # Adam's update is at most a little more than the rate, and near it for a gradient that keeps its sign.
        assert moved == pytest.approx(float(learning_rate(config, number)), rel=0.2)
    assert int(state["step"]) == 10
    counts = [leaf for leaf in jax.tree.leaves(state["opt_state"]) if leaf.dtype == jnp.int32]
    assert [int(count) for count in counts] == [10, 10]
    assert {leaf.dtype for leaf in jax.tree.leaves((state["params"], state["opt_state"]))} == {
        jnp.dtype("float32"),
        jnp.dtype("int32"),
    }
    assert metrics["grad_norm"].dtype == jnp.float32


def test_options_of_the_objective_go_on_where_a_run_was_left(
    batch: dict[str, jax.Array], tiny: Callable[..., RunConfig]
) -> None:
    """Crops, annealing and noise follow the step in the state; nothing else is carried. And each of them is used."""
    options = {"crop_share": 0.5, "anneal_steps": 6, "mask_noise_std": 0.5, "mask_noise_steps": 5}
    config = tiny(objective={"kind": "diffusion", **options}, model={"mask_token_id": 300})
    model, objective, mesh = pieces(config)
    optimizer = build_optimizer(config)
    abstract = abstract_state(model, optimizer, mesh)
    step, _ = compile_step(config, objective, optimizer, mesh, abstract)
    rows, state = to_devices(mesh, batch), initial_state(model, optimizer, abstract, config.seed)
    losses, saved = [], None
    for number in range(6):
        if number == 3:
            saved = jax.device_get(state)
        state, metrics = step(state, rows)
        losses.append(float(metrics["loss"]))
    resumed = jax.device_put(saved, shardings_of(abstract))
    for number in range(3, 6):
        key = randomness.key(config.seed, "corruption", number)
        total, weight = objective(resumed["params"], batch, key, jnp.arange(8), 8, number)["loss"]
        assert float(total / weight) == pytest.approx(losses[number], rel=1e-5)
        resumed, metrics = step(resumed, rows)
        assert float(metrics["loss"]) == losses[number]
    jax.tree.map(np.testing.assert_array_equal, resumed["params"], state["params"])


def test_the_state_that_goes_in_is_given_up(batch: dict[str, jax.Array], tiny: Callable[..., RunConfig]) -> None:
    config = tiny()
    model, objective, mesh = pieces(config)
    optimizer = build_optimizer(config)
    abstract = abstract_state(model, optimizer, mesh)
    state = initial_state(model, optimizer, abstract, config.seed)
    step, _ = compile_step(config, objective, optimizer, mesh, abstract)
    step(state, to_devices(mesh, batch))
    assert all(leaf.is_deleted() for leaf in jax.tree.leaves(state["params"]))


def test_a_start_from_parameters_keeps_them_and_nothing_else(tiny: Callable[..., RunConfig]) -> None:
    config = tiny()
    model, _, mesh = pieces(config)
    optimizer = build_optimizer(config)
    abstract = abstract_state(model, optimizer, mesh)
    params = model.init(jax.random.key(7))
    kept = jax.tree.map(np.asarray, params)
    state = initial_state(model, optimizer, abstract, config.seed, params)
    jax.tree.map(np.testing.assert_array_equal, state["params"], kept)
    assert int(state["step"]) == 0
    assert not any(bool(jnp.any(leaf)) for leaf in jax.tree.leaves(state["opt_state"]))


def test_the_seed_alone_decides_the_start(tiny: Callable[..., RunConfig]) -> None:
    config = tiny()
    model, _, mesh = pieces(config)
    optimizer = build_optimizer(config)
    abstract = abstract_state(model, optimizer, mesh)
    a, b, other = (initial_state(model, optimizer, abstract, seed)["params"] for seed in (0, 0, 1))
    jax.tree.map(np.testing.assert_array_equal, a, b)
    assert not np.array_equal(a["embedding"]["table"], other["embedding"]["table"])
