"""The block that most families share: a norm before each branch, Canon layers beside them if there are any.

Legend: B rows, T positions, D width.
"""

from __future__ import annotations

import jax
from flax import nnx

from jaxlm.config import ExecutionConfig
from jaxlm.layers.attention import Attention
from jaxlm.layers.canon import canon
from jaxlm.layers.experts import Experts
from jaxlm.layers.feed_forward import GatedFeedForward, PlainFeedForward
from jaxlm.layers.norms import norm
from jaxlm.layers.reading import Mixer, Reading
from jaxlm.model_config import ModelConfig


class Block(nnx.Module):
    """h = canon_a(norm(x)); x + attention(h); then h = canon_c(norm(x)); x + feed_forward(h)."""

    kinds = "GL"
    takes_canon = True

    def __init__(self, config: ModelConfig, execution: ExecutionConfig, kind: str) -> None:
        self.attention_norm = norm(config)
        self.canon_a = canon(config, execution, "A", config.hidden_size, "embed")
        self.attention = Attention(config, execution, kind)
        self.feed_forward_norm = norm(config)
        self.canon_c = canon(config, execution, "C", config.hidden_size, "embed")
        self.feed_forward = feed_forward(config, execution)

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
            "canon_d": getattr(self.feed_forward, "canon_d", None),
        }


def feed_forward(config: ModelConfig, execution: ExecutionConfig) -> Experts | GatedFeedForward | PlainFeedForward:
    """The feed-forward that a configuration asks for."""
    if config.num_experts:
        return Experts(config, execution)
    if config.feed_forward == "gelu":
        return PlainFeedForward(config, execution)
    return GatedFeedForward(config, execution)
