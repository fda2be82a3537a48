"""Qwen3 (arXiv 2505.09388): LLaMA with an RMSNorm on each query and key head, before they are rotated.

q, k, v = norm(x) @ qkv
q, k = rotate(head_norm(q)), rotate(head_norm(k))      one scale of head_dim for all query heads, one for all keys
x = x + attention(q, k, v)
x = x + down(silu(gate) * up)                          gate, up = norm(x) @ gate_up
"""

from jaxlm.families.pre_norm import Block

__all__ = ["PARTS", "Block"]

PARTS = {"qk_norm": True}
