"""LFM2's short convolution, gated before and after (arXiv 2511.23404; transformers' Lfm2ShortConv).

Legend: B rows, T positions, b new positions, D width.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx

from jaxlm.config import ExecutionConfig
from jaxlm.layers.linear import Linear, residual_std
from jaxlm.layers.reading import Reading
from jaxlm.layers.short_convolution import ShortConvolution
from jaxlm.model_config import ModelConfig


class GatedConvolution(nnx.Module):
    """out(C * taps(B * x)) with B, C, x from one matrix, in this order; no activation, no bias.

    The part that moves information along the sequence is `taps`, which a block mixes under the name it keeps here.
    """

    def __init__(self, config: ModelConfig, execution: ExecutionConfig) -> None:
        D = config.hidden_size
        make: dict[str, Any] = dict(dtype=execution.dtype)
        self.bcx = Linear(D, 3 * D, std=config.init_std, logical=("embed", "mlp"), **make)
        self.taps = ShortConvolution(D, kernel=config.conv_kernel, logical="embed", dtype=execution.dtype)
        self.out = Linear(D, D, std=residual_std(config), logical=("mlp", "embed"), **make)

    def __call__(self, h_BTD: jax.Array, reading: Reading) -> jax.Array:
        """[B, T, D] to [B, T, D], whole or as new positions."""
        gate_in_BTD, gate_out_BTD, x_BTD = jnp.split(self.bcx(h_BTD), 3, axis=-1)
        return self.out(gate_out_BTD * reading.mix("taps", self.taps, gate_in_BTD * x_BTD))
