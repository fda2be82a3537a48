"""The families by name. A new one is a file with `Block` and `PARTS`, and one line here."""

from __future__ import annotations

import dataclasses
import importlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from jaxlm.errors import UserError
from jaxlm.families import llama3
from jaxlm.families.trunk import BlockClass
from jaxlm.fields import nearest
from jaxlm.model_config import FAMILY, ModelConfig

FAMILIES = {
    "gpt2": "learned positions, LayerNorm, GELU, biases everywhere",
    "llama3": "RMSNorm, rotary positions, grouped queries, SwiGLU",
    "llama3_canon": "LLaMA 3 with Canon layers A, B, C, D",
    "qwen3": "LLaMA with normed query and key heads",
    "gemma3": "five local layers to a global one, norms on both sides of a branch, GeGLU",
    "lfm2": "gated short convolutions, with attention in every third layer",
    "moe": "routed experts, Mixtral's, Qwen3-MoE's or DeepSeek's with shared ones",
    "dllm": "masked diffusion from scratch: LLaMA 3 that looks both ways",
    "dllm_canon": "masked diffusion from scratch: LLaMA 3 with Canon layers that looks both ways",
    "dhara": "masked diffusion made from llama3_canon",
    "mobilellm": "LLaMA deep and thin; LS runs each block twice",
    "minimind": "LLaMA with a vocabulary of 6,400; also with shared and routed experts",
}


@dataclass(frozen=True)
class Family:
    """What a family's file says.

    Attributes:
      block: `block(config, execution, kind)` makes one block of the kind that a letter of the layer pattern names.
      parts: fields of ModelConfig as the family has them, where they differ from LLaMA 3's.
      diffusion: whether its models look both ways and fill in masks, so that a causal objective makes no sense.
    """

    block: BlockClass
    parts: Mapping[str, Any]
    diffusion: bool


def family(name: str) -> Family:
    """The family of that name, or UserError with the nearest names."""
    if name not in FAMILIES:
        raise UserError(f"model.family is {name!r}, allowed: one of {', '.join(FAMILIES)}; {nearest(name, FAMILIES)}")
    module = importlib.import_module(f"jaxlm.families.{name}")
    return Family(module.Block, llama3.PARTS | module.PARTS, getattr(module, "DIFFUSION", False))


def resolve(config: ModelConfig) -> ModelConfig:
    """The configuration with every part that it leaves open as its family has it.

    Raises UserError for a family that does not exist, and for parts that make no sense together.
    """
    found = family(config.family)
    parts = dict(found.parts)
    pattern = parts["layer_pattern"] if config.layer_pattern == FAMILY else config.layer_pattern
    if "L" not in pattern:
        for name in ("sliding_window", "rope_theta_local"):
            parts.pop(name, None)
    if not (config.num_experts or "num_experts" in parts):
        parts.pop("experts_per_token", None)
    left_open = {name: value for name, value in parts.items() if _is_open(getattr(config, name))}
    resolved = dataclasses.replace(config, **left_open)
    _check(resolved, found.block)
    return resolved


def _is_open(value: Any) -> bool:
    return value is None or value == FAMILY or (not isinstance(value, bool | str) and value == 0)


def _check(config: ModelConfig, block: BlockClass) -> None:
    """Refuses what the family's block has no place for, and parts that make no sense together."""
    if strange := set(config.layer_pattern) - set(block.kinds):
        raise UserError(
            f"model.layer_pattern is {config.layer_pattern!r}, allowed: no {min(strange)} for model.family "
            f"{config.family!r}, whose blocks are {' and '.join(block.kinds)}"
        )
    if config.use_bias and "C" in config.layer_kinds:
        raise UserError("model.use_bias is True, allowed: False with C layers in model.layer_pattern")
    for name in ("rope_theta", "rope_theta_local"):
        if 0 < getattr(config, name) < 1:
            raise UserError(f"model.{name} is {getattr(config, name)}, allowed: at least 1, or 0 for the family's")
    if config.canon_set and not block.takes_canon:
        raise UserError(
            f"model.canon_set is {config.canon_set!r}, allowed: '' for model.family {config.family!r}, "
            "whose block has no place for Canon layers"
        )
    if "D" in config.canon_set and config.feed_forward == "gelu" and config.canon_d_width == "product":
        raise UserError(
            "model.canon_d_width is 'product' with model.feed_forward 'gelu', allowed: 'gate_up' (nothing is gated)"
        )
    if config.num_experts and not config.experts_per_token:
        raise UserError(f"model.experts_per_token is 0, allowed: 1 to model.num_experts = {config.num_experts}")
    if config.num_experts == 1 or (config.experts_per_token == 1 and config.normalize_experts):
        # Its weight would be 1 whatever the scores are.
        raise UserError(
            f"model.num_experts is {config.num_experts} with model.experts_per_token {config.experts_per_token} and "
            f"model.normalize_experts {config.normalize_experts}, allowed: at least two experts, and False for one a "
            "token, so that the router can learn"
        )
    if config.rope_theta_local and "L" not in config.layer_pattern:
        raise UserError(
            f"model.rope_theta_local is {config.rope_theta_local}, allowed: 0 without L layers in model.layer_pattern "
            f"(it is {config.layer_pattern!r})"
        )
    for name in ("num_shared_experts", "experts_per_token"):
        if getattr(config, name) and not config.num_experts:
            raise UserError(f"model.{name} is {getattr(config, name)}, allowed: 0 without model.num_experts")
