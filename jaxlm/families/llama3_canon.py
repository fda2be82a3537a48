"""LLaMA 3 with Canon layers at any of four places (PhysicsLM4; Dhara-70M has A and C).

A after the norm before attention, B on [q, k, v] before the heads part, C after the norm before the feed-forward, D
inside the feed-forward. Legend: B rows, T positions, D width.
"""

from __future__ import annotations

import jax
from flax import nnx

from jaxlm.config import ExecutionConfig, ModelConfig
from jaxlm.layers.attention import Attention
from jaxlm.layers.canon import Canon
from jaxlm.layers.feed_forward import SwiGLU
from jaxlm.layers.linear import RMSNorm
from jaxlm.layers.reading import Mixer, Reading


class Block(nnx.Module):
    """h = canon_a(norm(x)); x + attention(h); then h = canon_c(norm(x)); x + feed_forward(h)."""

    def __init__(self, config: ModelConfig, execution: ExecutionConfig, kind: str) -> None:
        D, F, H = config.hidden_size, config.intermediate_size, config.head_dim
        gate_up = config.canon_d_width == "gate_up"

        def canon(position: str, channels: int, logical: str) -> Canon | None:
            if position not in config.canon_set:
                return None
            return Canon(
                channels,
                kernel=config.canon_kernel,
                residual=config.canon_residual,
                bias=config.canon_bias,
                activation=config.canon_activation,
                logical=logical,
                dtype=execution.dtype,
            )

        self.attention_norm = RMSNorm(D, eps=config.norm_eps)
        self.canon_a = canon("A", D, "embed")
        self.attention = Attention(
            config,
            execution,
            window=config.sliding_window if kind == "L" else 0,
            canon=canon("B", (config.num_heads + 2 * config.num_kv_heads) * H, "heads"),
        )
        self.feed_forward_norm = RMSNorm(D, eps=config.norm_eps)
        self.canon_c = canon("C", D, "embed")
        self.feed_forward = SwiGLU(config, execution, canon=canon("D", 2 * F if gate_up else F, "mlp"))

    def __call__(self, x_BTD: jax.Array, reading: Reading) -> jax.Array:
        """[B, T, D] to [B, T, D]."""
        h_BTD = reading.mix("canon_a", self.canon_a, self.attention_norm(x_BTD))
        x_BTD = x_BTD + reading.mix("attention", self.attention, h_BTD)
        h_BTD = reading.mix("canon_c", self.canon_c, self.feed_forward_norm(x_BTD))
        return x_BTD + self.feed_forward(h_BTD, reading)

    def mixers(self) -> dict[str, Mixer | None]:
        """The parts that keep a cache, by the names under which `__call__` mixes them."""
        return {
            "canon_a": self.canon_a,
            "canon_b": self.attention.canon_b,
            "attention": self.attention,
            "canon_c": self.canon_c,
            "canon_d": self.feed_forward.canon_d,
        }


def check(config: ModelConfig) -> None:
    """Every set of Canon positions is a member of this family, the empty one included."""
