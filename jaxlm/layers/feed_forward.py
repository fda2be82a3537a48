"""Feed-forward, gated or not. Legend: B rows, T positions, D width, F feed-forward width."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx

from jaxlm.config import ExecutionConfig
from jaxlm.layers.canon import canon
from jaxlm.layers.linear import Linear, residual_std
from jaxlm.layers.reading import Reading
from jaxlm.layers.recompute import recomputed
from jaxlm.model_config import ModelConfig

# By `model.feed_forward`; GELU is the tanh approximation, that of GPT-2 and Gemma.
ACTIVATIONS: dict[str, Callable[[jax.Array], jax.Array]] = {
    "swiglu": jax.nn.silu,
    "geglu": jax.nn.gelu,
    "gelu": jax.nn.gelu,
}


class GatedFeedForward(nnx.Module):
    """down(activation(gate) * up), gate and up from one matrix (Shazeer 2020, arXiv 2002.05202).

    Canon D sits on [gate, up] before the activation (`gate_up`), or on activation(gate) * up (`product`). `width` is
    F, if it is not the configuration's.
    """

    def __init__(self, config: ModelConfig, execution: ExecutionConfig, width: int = 0) -> None:
        D, F = config.hidden_size, width or config.intermediate_size
        make: dict[str, Any] = dict(dtype=execution.dtype, bias=bool(config.use_bias))
        self.gate_up = Linear(D, 2 * F, std=config.init_std, logical=("embed", "mlp"), **make)
        self.down = Linear(F, D, std=residual_std(config), logical=("mlp", "embed"), **make)
        self.canon_on_product = config.canon_d_width == "product"
        self.canon_d = canon(config, execution, "D", F if self.canon_on_product else 2 * F, "mlp")
        self.activation = config.feed_forward

    def __call__(self, x_BTD: jax.Array, reading: Reading) -> jax.Array:
        """[B, T, D] to [B, T, D]; the reading is only for Canon."""
        gate_up_BTF = self.gate_up(x_BTD)
        if not self.canon_on_product:
            gate_up_BTF = reading.mix("canon_d", self.canon_d, gate_up_BTF)
        product_BTF = gated(self.activation, gate_up_BTF)
        if self.canon_on_product:
            product_BTF = reading.mix("canon_d", self.canon_d, product_BTF)
        return self.down(product_BTF)


class PlainFeedForward(nnx.Module):
    """down(activation(up)); Canon D sits before the activation."""

    def __init__(self, config: ModelConfig, execution: ExecutionConfig) -> None:
        D, F = config.hidden_size, config.intermediate_size
        make: dict[str, Any] = dict(dtype=execution.dtype, bias=bool(config.use_bias))
        self.up = Linear(D, F, std=config.init_std, logical=("embed", "mlp"), **make)
        self.down = Linear(F, D, std=residual_std(config), logical=("mlp", "embed"), **make)
        self.canon_d = canon(config, execution, "D", F, "mlp")
        self.activation = config.feed_forward

    def __call__(self, x_BTD: jax.Array, reading: Reading) -> jax.Array:
        """[B, T, D] to [B, T, D]; the reading is only for Canon."""
        up_BTF = reading.mix("canon_d", self.canon_d, self.up(x_BTD))
        return self.down(recomputed(ACTIVATIONS[self.activation])(up_BTF))


def gated(activation: str, gate_up: jax.Array) -> jax.Array:
    """[..., 2F] to activation(gate) * up, [..., F]."""
    gate, up = jnp.split(gate_up, 2, axis=-1)
    return recomputed(lambda gate, up: ACTIVATIONS[activation](gate) * up)(gate, up)
