"""Gated feed-forward. Legend: B rows, T positions, D width, F feed-forward width."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx

from jaxlm.config import ExecutionConfig, ModelConfig
from jaxlm.layers.canon import Canon
from jaxlm.layers.linear import Linear
from jaxlm.layers.reading import Reading
from jaxlm.layers.recompute import recomputed


class SwiGLU(nnx.Module):
    """down(silu(gate) * up), gate and up from one matrix (Shazeer 2020, arXiv 2002.05202).

    `canon` sits on [gate, up] before the activation (`gate_up`), or on silu(gate) * up (`product`).
    """

    def __init__(self, config: ModelConfig, execution: ExecutionConfig, *, canon: Canon | None) -> None:
        D, F = config.hidden_size, config.intermediate_size
        make: dict[str, Any] = dict(std=config.init_std, dtype=execution.dtype)
        self.gate_up = Linear(D, 2 * F, logical=("embed", "mlp"), **make)
        self.down = Linear(F, D, logical=("mlp", "embed"), **make)
        self.canon_d = canon
        self.canon_on_product = config.canon_d_width == "product"

    def __call__(self, x_BTD: jax.Array, reading: Reading) -> jax.Array:
        """[B, T, D] to [B, T, D]; the reading is only for Canon."""
        gate_up_BTF = self.gate_up(x_BTD)
        if not self.canon_on_product:
            gate_up_BTF = reading.mix("canon_d", self.canon_d, gate_up_BTF)
        gate_BTF, up_BTF = jnp.split(gate_up_BTF, 2, axis=-1)
        product_BTF = recomputed(lambda gate, up: jax.nn.silu(gate) * up)(gate_BTF, up_BTF)
        if self.canon_on_product:
            product_BTF = reading.mix("canon_d", self.canon_d, product_BTF)
        return self.down(product_BTF)
