"""LFM2 (arXiv 2511.23404): gated short convolutions (C), with attention (G) in about every third layer.

    C:  b, c, h = norm(x) @ bcx;  x = x + out(c * taps(b * h))     three causal taps a channel
    G:  x = x + attention(norm(x))                                 query and key heads normed, then rotated
    x = x + down(silu(gate) * up)                                  gate, up = norm(x) @ gate_up

The pattern is that of the 16-layer models, tiled. Legend: B rows, T positions, D width.
"""

from __future__ import annotations

import jax
from flax import nnx

from jaxlm.config import ExecutionConfig
from jaxlm.families.pre_norm import feed_forward
from jaxlm.layers.attention import Attention
from jaxlm.layers.gated_convolution import GatedConvolution
from jaxlm.layers.norms import norm
from jaxlm.layers.reading import Mixer, Reading
from jaxlm.model_config import ModelConfig

PARTS = {"norm_eps": 1e-5, "rope_theta": 1_000_000.0, "qk_norm": True, "layer_pattern": "CCGCCGCCGCGCGCGC"}


class Block(nnx.Module):
    """x + convolution(norm(x)) or x + attention(norm(x)), then x + feed_forward(norm(x))."""

    kinds = "GLC"
    takes_canon = False

    def __init__(self, config: ModelConfig, execution: ExecutionConfig, kind: str) -> None:
        self.attention_norm = norm(config)
        self.convolution = GatedConvolution(config, execution) if kind == "C" else None
        self.attention = Attention(config, execution, kind) if kind != "C" else None
        self.feed_forward_norm = norm(config)
        self.feed_forward = feed_forward(config, execution)

    def __call__(self, x_BTD: jax.Array, reading: Reading) -> jax.Array:
        """[B, T, D] to [B, T, D]."""
        h_BTD = self.attention_norm(x_BTD)
        if self.convolution is not None:
            x_BTD = x_BTD + self.convolution(h_BTD, reading)
        else:
            x_BTD = x_BTD + reading.mix("attention", self.attention, h_BTD)
        return x_BTD + self.feed_forward(self.feed_forward_norm(x_BTD), reading)

    def mixers(self) -> dict[str, Mixer | None]:
        """The parts that keep a cache, by the names under which they are mixed."""
        return {"attention": self.attention} if self.convolution is None else {"taps": self.convolution.taps}
