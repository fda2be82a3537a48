"""`dllm` with Canon layers. They stay causal, in a model that otherwise looks both ways."""

from jaxlm.families.llama3_canon import PARTS, Block

__all__ = ["DIFFUSION", "PARTS", "Block"]

DIFFUSION = True
