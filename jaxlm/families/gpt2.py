"""GPT-2 (Radford et al. 2019): learned positions, LayerNorm, one key head a query head, GELU, biases everywhere.

    x = embedding[token] + positions[index]
    x = x + attention(layer_norm(x))
    x = x + down(gelu(up(layer_norm(x))))          gelu by its tanh approximation
    logits = layer_norm(x) @ embedding.T

Key heads and the feed-forward's width (4 D) are sizes: `configs/gpt2.py` sets them.
"""

from jaxlm.families.pre_norm import Block

__all__ = ["PARTS", "Block"]

PARTS = {
    "norm": "layer",
    "norm_eps": 1e-5,
    "positions": "learned",
    "feed_forward": "gelu",
    "use_bias": True,
    "scale_residual_init": True,
}
