"""One optimizer update as one compiled function.

Legend: R rows of the global batch, M rows of one forward (micro-batch), A forwards of one update, T positions.
Row r of the batch is row m of forward a with r = m * A + a, so that a batch that is split over devices by rows stays
where it is when it is cut into micro-batches.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import optax
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from jaxlm import randomness
from jaxlm.config import RunConfig
from jaxlm.objectives import Objective
from jaxlm.training.sharding import AXES, BATCH, REPLICATED
from jaxlm.training.state import State, shardings_of

Batch = dict[str, jax.Array]
Metrics = dict[str, jax.Array]
TrainStep = Callable[[State, Batch], tuple[State, Metrics]]
Micro = tuple[Batch, jax.Array]  # the rows of one forward, and their numbers in the global batch


def gradients(
    objective: Objective,
    params: Any,
    batch: Batch,
    key: jax.Array,
    step: jax.Array,
    accumulation: int,
    mesh: Mesh,
    shardings: Any,
) -> tuple[Any, Metrics]:
    """Gradient of the loss over the global batch, and the mean of each pair that the objective returns.

    The loss is the sum over the pairs of (sum over all rows) / (weight of all rows). Weights are those of the whole
    batch, found first, so that every forward adds its share of the true gradient; they depend on the batch alone, and
    the compiler drops the forwards that nothing else of this first pass needs.

    Args:
      objective: gives sums and weights.
      params: nested dict, fp32, whole on every device.
      batch: R rows; see `Objective`.
      key: of this step's corruption.
      step: int32, the updates before this one.
      accumulation: A, a divisor of R.
      mesh: over whose devices the rows are split.
      shardings: where the gradients are summed: a tree like `params`.
    """
    num_rows = batch["tokens"].shape[0]

    def split(x_R: jax.Array) -> jax.Array:
        x_MA = x_R.reshape(num_rows // accumulation, accumulation, *x_R.shape[1:])
        x_AM = jnp.swapaxes(x_MA, 0, 1)
        return jax.lax.with_sharding_constraint(x_AM, NamedSharding(mesh, PartitionSpec(None, AXES)))

    def pairs(params: Any, micro: Micro) -> dict[str, tuple[jax.Array, jax.Array]]:
        return objective(params, micro[0], key, micro[1], num_rows, step)

    def loss(params: Any, micro: Micro, weights: Metrics | None) -> tuple[jax.Array, Metrics]:
        found = pairs(params, micro)
        over = weights or {name: jax.lax.stop_gradient(weight) for name, (_, weight) in found.items()}
        means = {name: total / jnp.where(over[name] > 0, over[name], 1.0) for name, (total, _) in found.items()}
        return sum(means.values(), jnp.zeros((), jnp.float32)), means

    def share(micro: Micro, weights: Metrics | None) -> tuple[Any, Metrics]:
        (_, means), grads = jax.value_and_grad(loss, has_aux=True)(params, micro, weights)
        # Summed over the devices first, then cut: a sum that is to come out cut would pull the activations apart.
        grads = jax.lax.with_sharding_constraint(grads, NamedSharding(mesh, REPLICATED))
        return jax.lax.with_sharding_constraint(grads, shardings), means

    everything = (batch, jnp.arange(num_rows, dtype=jnp.int32))
    if accumulation == 1:
        return share(everything, None)
    micros = jax.tree.map(split, everything)
    weights_A = jax.lax.map(lambda micro: {name: weight for name, (_, weight) in pairs(params, micro).items()}, micros)
    weights = jax.tree.map(lambda w_A: w_A.sum(0), weights_A)

    def add(carry: tuple[Any, Metrics], micro: Micro) -> tuple[tuple[Any, Metrics], None]:
        return jax.tree.map(jnp.add, carry, share(micro, weights)), None

    zeros = (jax.tree.map(jnp.zeros_like, params), jax.tree.map(jnp.zeros_like, weights))
    zeros = (jax.lax.with_sharding_constraint(zeros[0], shardings), zeros[1])
    return jax.lax.scan(add, zeros, micros)[0]


def train_step(
    config: RunConfig, objective: Objective, optimizer: optax.GradientTransformation, mesh: Mesh, abstract: State
) -> TrainStep:
    """The update as a pure function (state, batch) -> (state, metrics).

    Metrics are fp32 scalars: `loss` and each auxiliary pair, means over the global batch; `grad_norm` before clipping.
    """
    whole, shardings = NamedSharding(mesh, REPLICATED), shardings_of(abstract["params"])

    def step(state: State, batch: Batch) -> tuple[State, Metrics]:
        key = randomness.key(config.seed, "corruption", state["step"])
        # With fsdp, parameters are stored in pieces and gathered for use. Left to itself, the partitioner splits the
        # activations the way the parameters happen to be stored, and moves both back and forth.
        params = jax.lax.with_sharding_constraint(state["params"], whole)
        accumulation = config.train.accumulation
        grads, means = gradients(objective, params, batch, key, state["step"], accumulation, mesh, shardings)
        updates, opt_state = optimizer.update(grads, state["opt_state"], state["params"])
        new = {
            "step": state["step"] + 1,
            "params": optax.apply_updates(state["params"], updates),
            "opt_state": opt_state,
        }
        return new, {**means, "grad_norm": optax.tree.norm(grads)}

    return step


def abstract_batch(config: RunConfig, mesh: Mesh) -> dict[str, jax.ShapeDtypeStruct]:
    """The global batch of one update as ShapeDtypeStructs: R rows, split over all devices."""
    shape, rows = (config.train.batch_size, config.train.seq_len + 1), NamedSharding(mesh, BATCH)
    dtypes = {"tokens": jnp.int32, "segment_ids": jnp.int32, "loss_mask": jnp.bool_}
    return {name: jax.ShapeDtypeStruct(shape, dtype, sharding=rows) for name, dtype in dtypes.items()}


def jit_step(
    config: RunConfig, objective: Objective, optimizer: optax.GradientTransformation, mesh: Mesh, abstract: State
) -> Any:
    """`train_step` under jit; the state that goes in is consumed (donated) and comes out where it was."""
    state = shardings_of(abstract)
    return jax.jit(
        train_step(config, objective, optimizer, mesh, abstract),
        donate_argnums=0,
        in_shardings=(state, NamedSharding(mesh, BATCH)),
        out_shardings=(state, NamedSharding(mesh, REPLICATED)),
    )


def compile_step(
    config: RunConfig, objective: Objective, optimizer: optax.GradientTransformation, mesh: Mesh, abstract: State
) -> tuple[TrainStep, float]:
    """The compiled update, and the seconds that compiling took.

    Compiled ahead of time, for exactly these shapes and shardings: a second compilation at step 2 cannot happen.
    """
    started = time.monotonic()
    lowered = jit_step(config, objective, optimizer, mesh, abstract).lower(abstract, abstract_batch(config, mesh))
    return lowered.compile(), time.monotonic() - started
