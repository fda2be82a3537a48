"""Gemma 3, text (arXiv 2503.19786): five local layers for each global one, and norms on both sides of each branch.

    x = sqrt(D) * embedding[token]
    x = x + post_norm(attention(norm(x)))          query and key heads normed, then rotated
    x = x + post_norm(down(gelu(gate) * up))       gate, up = norm(x) @ gate_up
    norm(x) = x / rms(x) * (1 + scale)

A local layer (L) sees `sliding_window` positions and rotates with base 10,000, a global one with 1,000,000.
Legend: B rows, T positions, D width.
"""

from __future__ import annotations

import jax
from flax import nnx

from jaxlm.config import ExecutionConfig
from jaxlm.families.pre_norm import feed_forward
from jaxlm.layers.attention import Attention
from jaxlm.layers.norms import norm
from jaxlm.layers.reading import Mixer, Reading
from jaxlm.model_config import ModelConfig

PARTS = {
    "norm": "rms_unit_offset",
    "rope_theta": 1_000_000.0,
    "rope_theta_local": 10_000.0,
    "feed_forward": "geglu",
    "qk_norm": True,
    "scale_embeddings": True,
    "layer_pattern": "LLLLLG",
    "sliding_window": 256,
}


class Block(nnx.Module):
    """x + post_norm(attention(norm(x))), then x + post_norm(feed_forward(norm(x)))."""

    kinds = "GL"
    takes_canon = False

    def __init__(self, config: ModelConfig, execution: ExecutionConfig, kind: str) -> None:
        self.attention_norm, self.attention_post_norm = norm(config), norm(config)
        self.attention = Attention(config, execution, kind)
        self.feed_forward_norm, self.feed_forward_post_norm = norm(config), norm(config)
        self.feed_forward = feed_forward(config, execution)

    def __call__(self, x_BTD: jax.Array, reading: Reading) -> jax.Array:
        """[B, T, D] to [B, T, D]."""
        h_BTD = reading.mix("attention", self.attention, self.attention_norm(x_BTD))
        x_BTD = x_BTD + self.attention_post_norm(h_BTD)
        h_BTD = self.feed_forward(self.feed_forward_norm(x_BTD), reading)
        return x_BTD + self.feed_forward_post_norm(h_BTD)

    def mixers(self) -> dict[str, Mixer | None]:
        """The parts that keep a cache, by the names under which `__call__` mixes them."""
        return {"attention": self.attention}
