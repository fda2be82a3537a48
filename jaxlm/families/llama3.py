"""LLaMA 3: RMSNorm before each branch, rotary grouped-query attention, SwiGLU, no biases (arXiv 2407.21783).

Legend: B rows, T positions, D width.
"""

from __future__ import annotations

import jax
from flax import nnx

from jaxlm.config import ExecutionConfig, ModelConfig
from jaxlm.errors import UserError
from jaxlm.layers.attention import Attention
from jaxlm.layers.feed_forward import SwiGLU
from jaxlm.layers.linear import RMSNorm
from jaxlm.layers.reading import Mixer, Reading


class Block(nnx.Module):
    """x + attention(norm(x)), then x + feed_forward(norm(x))."""

    def __init__(self, config: ModelConfig, execution: ExecutionConfig, kind: str) -> None:
        window = config.sliding_window if kind == "L" else 0
        self.attention_norm = RMSNorm(config.hidden_size, eps=config.norm_eps)
        self.attention = Attention(config, execution, window=window, canon=None)
        self.feed_forward_norm = RMSNorm(config.hidden_size, eps=config.norm_eps)
        self.feed_forward = SwiGLU(config, execution, canon=None)

    def __call__(self, x_BTD: jax.Array, reading: Reading) -> jax.Array:
        """[B, T, D] to [B, T, D]."""
        x_BTD = x_BTD + reading.mix("attention", self.attention, self.attention_norm(x_BTD))
        return x_BTD + self.feed_forward(self.feed_forward_norm(x_BTD), reading)

    def mixers(self) -> dict[str, Mixer | None]:
        """The parts that keep a cache, by the names under which `__call__` mixes them."""
        return {"attention": self.attention}


def check(config: ModelConfig) -> None:
    """Refuses what this family does not have."""
    if config.canon_set:
        raise UserError(
            f"model.canon_set is {config.canon_set!r}, allowed: '' for model.family 'llama3' "
            "(llama3_canon has Canon layers)"
        )
