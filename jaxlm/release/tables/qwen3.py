"""Qwen3ForCausalLM: Llama's names, and the norms of the query and key heads."""

from __future__ import annotations

from typing import Any

from jaxlm.config import ObjectiveConfig
from jaxlm.families import resolve
from jaxlm.model_config import ModelConfig
from jaxlm.release.formats import Format, Values, layer_types, only, required, rope_theta
from jaxlm.release.tables import llama


def to_config(config: ModelConfig) -> dict[str, Any]:
    """The fields of a Qwen3Config."""
    return llama.skeleton(config) | {"attention_bias": False, "use_sliding_window": False}


def from_config(values: Values) -> tuple[ModelConfig, ObjectiveConfig]:
    """The model of a Qwen3Config."""
    refuse_windows_and_biases(values)
    config = ModelConfig(
        family="qwen3",
        **llama.sizes(values, tied=False, head_dim=128),
        norm_eps=llama.epsilon(values),
        rope_theta=rope_theta(values, 10_000.0),
    )
    return resolve(config), ObjectiveConfig()


def refuse_windows_and_biases(values: Values) -> None:
    """What Qwen3 may have and ours has not: biases in the attention alone, windows in the deeper layers."""
    only(values, attention_bias=False, use_sliding_window=False)
    layer_types(values, required(values, "num_hidden_layers"), "full_attention")


FORMAT = Format(
    class_names=("Qwen3ForCausalLM",),
    model_type="qwen3",
    family="qwen3",
    table=llama.table,
    from_config=from_config,
    reasons=lambda config: llama.reasons(config, qk_norm=True),
    to_config=to_config,
)
