"""Feed-forwards against torch's functions, and where their Canon layers sit."""

import jax.numpy as jnp
import numpy as np
import pytest
import torch

from jaxlm.config import ExecutionConfig
from jaxlm.families import resolve
from jaxlm.layers.feed_forward import GatedFeedForward, PlainFeedForward
from jaxlm.layers.parameters import bind, paths, variables
from jaxlm.layers.reading import Reading
from jaxlm.layers.structure import Structure
from jaxlm.model_config import ModelConfig
from tests.quick_jit import quick_jit
from tests.random_tree import random_tree

B, T, D, F = 2, 6, 8, 12
TORCH = {
    "swiglu": torch.nn.functional.silu,
    "geglu": lambda x: torch.nn.functional.gelu(x, approximate="tanh"),
    "gelu": lambda x: torch.nn.functional.gelu(x, approximate="tanh"),
}


def config(**changes) -> ModelConfig:
    return resolve(ModelConfig(hidden_size=D, intermediate_size=F, **changes))


def run(module):
    """Output and parameters, biases away from zero, as torch's tensors."""
    params, x_BTD = random_tree(variables(module), spread=0.5), np.random.default_rng(1).standard_normal((B, T, D))
    reading = Reading(Structure(1), jnp.zeros((1, 1), jnp.int32))
    y_BTD = quick_jit(lambda params, x_BTD: bind(module, params)(x_BTD, reading))(params, x_BTD)
    exact = {path: torch.tensor(np.asarray(leaf, np.float64)) for path, leaf in paths(params)}
    return y_BTD, exact, torch.tensor(x_BTD)


def linear(x: torch.Tensor, params, name: str) -> torch.Tensor:
    return x @ params[f"{name}/kernel"] + params.get(f"{name}/bias", 0.0)


def taps(x: torch.Tensor, params) -> torch.Tensor:
    """Canon D, its residual included: a loop over positions."""
    if "canon_d/kernel" not in params:
        return x
    kernel, out = params["canon_d/kernel"], x.clone()
    for t in range(T):
        for back in range(min(len(kernel), t + 1)):
            out[:, t] += kernel[-1 - back] * x[:, t - back]
    return out


@pytest.mark.parametrize("use_bias", [False, True])
@pytest.mark.parametrize("activation", ["swiglu", "geglu"])
@pytest.mark.parametrize(
    "canon", [{"canon_set": ""}, {"canon_set": "D"}, {"canon_set": "D", "canon_d_width": "product"}]
)
def test_gated(activation, use_bias, canon) -> None:
    options = config(feed_forward=activation, use_bias=use_bias, **canon)
    ours, params, x = run(GatedFeedForward(options, ExecutionConfig(dtype="float32")))
    on_product = canon.get("canon_d_width") == "product"
    gate, up = (linear(x, params, "gate_up") if on_product else taps(linear(x, params, "gate_up"), params)).chunk(2, -1)
    product = TORCH[activation](gate) * up
    expected = linear(taps(product, params) if on_product else product, params, "down")
    np.testing.assert_allclose(ours, expected.numpy(), atol=2e-5)


@pytest.mark.parametrize("use_bias", [False, True])
@pytest.mark.parametrize("canon_set", ["", "D"])
def test_plain(use_bias, canon_set) -> None:
    options = config(feed_forward="gelu", use_bias=use_bias, canon_set=canon_set)
    ours, params, x = run(PlainFeedForward(options, ExecutionConfig(dtype="float32")))
    expected = linear(TORCH["gelu"](taps(linear(x, params, "up"), params)), params, "down")
    np.testing.assert_allclose(ours, expected.numpy(), atol=2e-5)
    assert "up/bias" in params if use_bias else set(params) <= {"up/kernel", "down/kernel", "canon_d/kernel"}
