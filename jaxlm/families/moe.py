"""A mixture of experts: LLaMA whose feed-forward is several, of which each token uses a few.

    x = x + attention(norm(x))
    s = softmax(norm(x) @ router)                  e in the experts_per_token best of s
    x = x + sum of w[e] * down[e](silu(gate[e]) * up[e])       w = s over its sum on the chosen

So it is Mixtral's (arXiv 2401.04088); with `qk_norm` Qwen3-MoE's; with `num_shared_experts`, which work for every
token, and `normalize_experts=False` DeepSeekMoE's (arXiv 2401.06066). `intermediate_size` is the width of one expert.
The load-balancing and the z loss are added while training. The study does not say which kind or size it had.
"""

from jaxlm.families.pre_norm import Block

__all__ = ["PARTS", "Block"]

PARTS = {"num_experts": 4, "experts_per_token": 2}
