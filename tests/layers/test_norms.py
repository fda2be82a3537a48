"""Norms against torch and transformers."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from transformers.models.gemma3.modeling_gemma3 import Gemma3RMSNorm

from jaxlm.layers.norms import LayerNorm, RMSNorm
from jaxlm.layers.parameters import bind, initialise, variables
from tests.random_tree import random_tree

D, EPS = 12, 1e-3  # an epsilon that is not too small to matter


def case(module):
    """The module with parameters that are not at their start, those, and inputs away from zero."""
    params, x = random_tree(variables(module)), 0.1 * np.random.default_rng(1).standard_normal((2, 5, D)) + 0.3
    return bind(module, params), params, jnp.asarray(x, jnp.float32)


def same(ours: jax.Array, theirs: torch.nn.Module, params, x: jax.Array) -> None:
    named = {"weight": params["scale"]} | ({"bias": params["bias"]} if "bias" in params else {})
    theirs.load_state_dict({name: torch.tensor(np.asarray(leaf)) for name, leaf in named.items()})
    with torch.no_grad():
        np.testing.assert_allclose(ours, theirs(torch.tensor(np.asarray(x))).numpy(), atol=2e-6)


@pytest.mark.parametrize("bias", [True, False])
def test_layer_norm_is_torch_s(bias) -> None:
    module, params, x = case(LayerNorm(D, eps=EPS, bias=bias))
    assert set(params) == ({"scale", "bias"} if bias else {"scale"})
    same(module(x), torch.nn.LayerNorm(D, eps=EPS, bias=bias), params, x)


def test_rms_norm_is_torch_s() -> None:
    module, params, x = case(RMSNorm(D, eps=EPS))
    same(module(x), torch.nn.RMSNorm(D, eps=EPS), params, x)


def test_rms_norm_with_a_unit_offset_is_gemma_s() -> None:
    module, params, x = case(RMSNorm(D, eps=EPS, unit_offset=True))
    same(module(x), Gemma3RMSNorm(D, eps=EPS), params, x)


@pytest.mark.parametrize(
    "module", [LayerNorm(D, eps=EPS, bias=True), RMSNorm(D, eps=EPS), RMSNorm(D, eps=EPS, unit_offset=True)]
)
def test_a_norm_starts_by_only_normalising_and_rounds_once(module) -> None:
    started = bind(module, initialise(module, jax.random.key(0)))
    x = 50 + jax.random.normal(jax.random.key(1), (3, D))
    y = started(x)
    np.testing.assert_allclose(jnp.sqrt(jnp.mean(jnp.square(y), axis=-1)), 1.0, atol=2e-3)
    # In bf16 the inputs are rounded and so is the result; what lies between is fp32.
    rounded = x.astype(jnp.bfloat16)
    assert started(rounded).dtype == jnp.bfloat16
    np.testing.assert_array_equal(started(rounded), started(rounded.astype(jnp.float32)).astype(jnp.bfloat16))
