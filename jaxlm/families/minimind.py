"""MiniMind2 (github.com/jingyaogong/minimind): LLaMA with a vocabulary of 6,400, 8 query and 2 key heads.

The feed-forward is 8/3 of the width, rounded up to a multiple of 64. The variant with experts has one shared and four
routed ones, two of them for each token: `num_experts`, `num_shared_experts` (see `configs/minimind.py`).
"""

from jaxlm.families.pre_norm import Block

__all__ = ["PARTS", "Block"]

PARTS = {"norm_eps": 1e-5, "rope_theta": 1_000_000.0, "experts_per_token": 2}
