"""LFM2's gated convolution against a plain loop, whole and in pieces."""

import jax
import jax.numpy as jnp
import numpy as np

from jaxlm.config import ExecutionConfig
from jaxlm.families import resolve
from jaxlm.layers.gated_convolution import GatedConvolution
from jaxlm.layers.parameters import bind, variables
from jaxlm.layers.reading import Reading
from jaxlm.layers.structure import Structure
from jaxlm.model_config import ModelConfig
from tests.random_tree import random_tree

B, T, D, TAPS = 2, 9, 6, 3
CAUSAL, NOWHERE = Structure(1), jnp.zeros((1, 1), jnp.int32)


def case():
    config = resolve(ModelConfig(family="lfm2", hidden_size=D, conv_kernel=TAPS))
    module = GatedConvolution(config, ExecutionConfig(dtype="float32"))
    params, x_BTD = random_tree(variables(module), spread=0.5), np.random.default_rng(1).standard_normal((B, T, D))
    return bind(module, params), params, jnp.asarray(x_BTD, jnp.float32)


def plain(params, x_BTD, documents: list[int]) -> np.ndarray:
    params, x_BTD = jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), (params, x_BTD))
    out = np.zeros((B, T, D))
    for row in range(B):
        gate_in, gate_out, x = np.split(x_BTD[row] @ params["bcx"]["kernel"], 3, axis=-1)
        for t in range(T):
            y = np.zeros(D)
            for back in range(TAPS):
                if t >= back and documents[t] == documents[t - back]:
                    y += params["taps"]["kernel"][TAPS - 1 - back] * gate_in[t - back] * x[t - back]
            out[row, t] = (gate_out[t] * y) @ params["out"]["kernel"]
    return out


def test_equals_a_plain_loop_for_one_document_and_for_two() -> None:
    module, params, x_BTD = case()
    np.testing.assert_allclose(module(x_BTD, Reading(CAUSAL, NOWHERE)), plain(params, x_BTD, [1] * T), atol=1e-5)
    documents = [1] * 4 + [2] * 5
    packed = module(x_BTD, Reading(CAUSAL, NOWHERE, jnp.array([documents] * B)))
    np.testing.assert_allclose(packed, plain(params, x_BTD, documents), atol=1e-5)


def test_extending_in_pieces_equals_the_whole() -> None:
    module, params, x_BTD = case()
    cache, out, start = module.taps.init_cache(B, T), [], 0
    for size in (1, 4, 2, 2):
        for x_BbD in (7 + x_BTD[:, :size], x_BTD[:, start : start + size]):  # a draft, which is not kept
            reading = Reading(CAUSAL, NOWHERE, None, jnp.full(B, start), jnp.full(B, size), {"taps": cache})
            y_BbD = module(x_BbD, reading)
        cache, start = module.taps.commit(reading.cache["taps"], jnp.full(B, size)), start + size
        out.append(y_BbD)
    np.testing.assert_allclose(jnp.concatenate(out, axis=1), plain(params, x_BTD, [1] * T), atol=1e-5)
