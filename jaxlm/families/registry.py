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

# Fields that only layers of these kinds read.
ONLY_FOR = {
    "L": ("sliding_window", "rope_theta_local"),
    "SM": ("segment_len", "num_longterm_tokens", "num_persistent_tokens"),
    "M": (
        "memory_reading",
        "memory_depth",
        "memory_expansion",
        "memory_chunk",
        "memory_batch",
        "memory_max_rate",
        "memory_forgetting",
    ),
}

FAMILIES = {
    "gpt2": "learned positions, LayerNorm, GELU, biases everywhere",
    "llama3": "RMSNorm, rotary positions, grouped queries, SwiGLU",
    "llama3_canon": "LLaMA 3 with Canon layers A, B, C, D",
    "qwen3": "LLaMA with normed query and key heads",
    "gemma3": "five local layers to a global one, norms on both sides of a branch, GeGLU",
    "lfm2": "gated short convolutions, with attention in every third layer",
    "moe": "routed experts, Mixtral's, Qwen3-MoE's or DeepSeek's with shared ones",
    "titans_mac": "attention within segments, and a neural memory that learns while it reads",
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
      causal_only: why its models cannot be read in another way than from left to right; "" if they can.
    """

    block: BlockClass
    parts: Mapping[str, Any]
    diffusion: bool
    causal_only: str


def family(name: str) -> Family:
    """The family of that name, or UserError with the nearest names."""
    if name not in FAMILIES:
        raise UserError(f"model.family is {name!r}, allowed: one of {', '.join(FAMILIES)}; {nearest(name, FAMILIES)}")
    module = importlib.import_module(f"jaxlm.families.{name}")
    diffusion, causal_only = getattr(module, "DIFFUSION", False), getattr(module, "CAUSAL_ONLY", "")
    return Family(module.Block, llama3.PARTS | module.PARTS, diffusion, causal_only)


def resolve(config: ModelConfig) -> ModelConfig:
    """The configuration with every part that it leaves open as its family has it.

    Raises UserError for a family that does not exist, and for parts that make no sense together.
    """
    found = family(config.family)
    parts = dict(found.parts)
    pattern = parts["layer_pattern"] if config.layer_pattern == FAMILY else config.layer_pattern
    for kinds, names in ONLY_FOR.items():
        if not set(kinds) & set(pattern):
            for name in names:
                parts.pop(name, None)
    if not (config.num_experts or "num_experts" in parts):
        parts.pop("experts_per_token", None)
    left_open = {name: value for name, value in parts.items() if _is_open(config, name)}
    resolved = dataclasses.replace(config, **left_open)
    if resolved.memory_reading == "context" and "memory_batch" in left_open:
        # There a segment is what the memory learns from at once.
        resolved = dataclasses.replace(resolved, memory_batch=resolved.segment_positions)
    _check(resolved, found.block)
    return resolved


def _is_open(config: ModelConfig, name: str) -> bool:
    """Whether a field has the value that leaves it to the family: None, "family" or 0, as its description says."""
    default = ModelConfig.__dataclass_fields__[name].default
    return getattr(config, name) == default and (default is None or default == FAMILY or default == 0)


def _check(config: ModelConfig, block: BlockClass) -> None:
    """Refuses what the family's block has no place for, and parts that make no sense together."""
    if strange := set(config.layer_pattern) - set(block.kinds):
        raise UserError(
            f"model.layer_pattern is {config.layer_pattern!r}, allowed: no {min(strange)} for model.family "
            f"{config.family!r}, whose blocks are {' and '.join(block.kinds)}"
        )
    for kind in "CSM":
        if config.use_bias and kind in config.layer_kinds:
            raise UserError(f"model.use_bias is True, allowed: False with {kind} layers in model.layer_pattern")
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
    for kinds, names in ONLY_FOR.items():
        for name in names:
            if not set(kinds) & set(config.layer_pattern) and not _is_open(config, name):
                default = ModelConfig.__dataclass_fields__[name].default
                allowed = "0" if default == 0 else repr(default)
                raise UserError(
                    f"model.{name} is {getattr(config, name)!r}, allowed: {allowed} without {' or '.join(kinds)} "
                    f"layers in model.layer_pattern (it is {config.layer_pattern!r})"
                )
    if set("SM") & set(config.layer_pattern) and config.query_scalar:
        raise UserError(
            f"model.query_scalar is {config.query_scalar}, allowed: 0 with S or M layers in model.layer_pattern"
        )
    if "M" in config.layer_pattern:
        _check_memory(config)
    for name in ("num_shared_experts", "experts_per_token"):
        if getattr(config, name) and not config.num_experts:
            raise UserError(f"model.{name} is {getattr(config, name)}, allowed: 0 without model.num_experts")


def _check_memory(config: ModelConfig) -> None:
    if config.memory_forgetting >= 1:
        raise UserError(f"model.memory_forgetting is {config.memory_forgetting}, allowed: below 1")
    if min(config.memory_widths) < 1:
        raise UserError(
            f"model.memory_expansion is {config.memory_expansion}, allowed: at least {1 / config.head_dim:g}, one unit "
            f"of model.head_dim = {config.head_dim}"
        )
    segment = config.segment_positions
    if config.memory_reading == "context" and config.memory_batch != segment:
        raise UserError(
            f"model.memory_batch is {config.memory_batch}, allowed: {segment} for model.memory_reading 'context', "
            "which learns a segment at once (model.segment_len and model.num_longterm_tokens)"
        )
    if config.memory_batch % config.memory_chunk:
        whole = "model.memory_batch" if config.memory_reading != "context" else "a segment with its vectors"
        raise UserError(
            f"model.memory_chunk is {config.memory_chunk}, allowed: a divisor of {whole} = {config.memory_batch}"
        )
