"""The study's diffusion model from scratch: LLaMA 3 without the causal mask, trained to fill in masked tokens.

The blocks are LLaMA's; who sees whom and what is predicted is the objective's (`objective.kind=diffusion`).
"""

from jaxlm.families.llama3 import PARTS, Block

__all__ = ["DIFFUSION", "PARTS", "Block"]

DIFFUSION = True
