"""What training carries: `{"step": int32 [], "params": nested dict, "opt_state": optax's}`, all fp32 but the counts."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import optax
from jax.sharding import Mesh, NamedSharding

from jaxlm import randomness
from jaxlm.families import Model
from jaxlm.training.sharding import REPLICATED, param_shardings

State = dict[str, Any]


def around(params: Any, optimizer: optax.GradientTransformation) -> State:
    """The state at step 0 of a run that starts from `params`."""
    return {"step": jnp.zeros((), jnp.int32), "params": params, "opt_state": optimizer.init(params)}


def abstract_state(model: Model, optimizer: optax.GradientTransformation, mesh: Mesh) -> State:
    """The state as ShapeDtypeStructs with their shardings; moments lie where their parameters lie."""
    shapes = jax.eval_shape(lambda params: around(params, optimizer), model.abstract_params())
    replicated = NamedSharding(mesh, REPLICATED)
    params = param_shardings(mesh, shapes["params"], model.logical_axes())
    shardings = {
        "step": replicated,
        "params": params,
        "opt_state": optax.tree_map_params(
            optimizer,
            lambda _, sharding: sharding,
            shapes["opt_state"],
            params,
            transform_non_params=lambda _: replicated,
        ),
    }
    return jax.tree.map(lambda x, s: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=s), shapes, shardings)


def shardings_of(abstract: Any) -> Any:
    """The shardings of a tree of ShapeDtypeStructs."""
    return jax.tree.map(lambda leaf: leaf.sharding, abstract)


def initial_state(
    model: Model, optimizer: optax.GradientTransformation, abstract: State, seed: int, params: Any = None
) -> State:
    """A state at step 0, made where it will live: around `params`, or around fresh ones that depend on `seed` alone."""
    out = shardings_of(abstract)
    if params is not None:
        return jax.jit(lambda given: around(given, optimizer), out_shardings=out, donate_argnums=0)(params)
    # The key is an argument, not a constant, or the compiler would fold the whole initialisation into the program.
    fresh = jax.jit(lambda key: around(model.init(key), optimizer), out_shardings=out)
    return fresh(randomness.key(seed, "init"))
