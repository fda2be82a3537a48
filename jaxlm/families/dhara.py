"""Dhara: `dllm_canon` that was not trained from scratch, but made from `llama3_canon` by `jaxlm.convert`."""

from jaxlm.families.llama3_canon import PARTS, Block

__all__ = ["DIFFUSION", "PARTS", "Block"]

DIFFUSION = True
