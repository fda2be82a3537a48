"""LLaMA 3 (arXiv 2407.21783): RMSNorm, rotary positions, grouped-query attention, SwiGLU, no biases.

    x = x + attention(norm(x))                     queries and keys rotated, num_kv_heads key heads
    x = x + down(silu(gate) * up)                  gate, up = norm(x) @ gate_up
    logits = norm(x) @ embedding.T

The skeleton: every part that a family does not name is this one's. The rotary base is the study's 10,000.
"""

from jaxlm.families.pre_norm import Block

__all__ = ["PARTS", "Block"]

PARTS = {
    "norm": "rms",
    "norm_eps": 1e-6,
    "positions": "rope",
    "rope_theta": 10_000.0,
    "feed_forward": "swiglu",
    "use_bias": False,
    "qk_norm": False,
    "scale_embeddings": False,
    "scale_residual_init": False,
    "layer_pattern": "G",
    "canon_set": "",
}
