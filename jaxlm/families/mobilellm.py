"""MobileLLM (arXiv 2402.14905): LLaMA, deep and thin, with the head tied to the embedding.

What makes it itself are sizes (30 layers of width 576, see `configs/mobilellm.py`) and, in the variants called LS,
`layer_repeats=2`: each stored block runs twice in a row with the same weights, so depth doubles and parameters do not.
"""

from jaxlm.families.pre_norm import Block

__all__ = ["PARTS", "Block"]

PARTS = {"norm_eps": 1e-5}
