"""Qwen3MoeForCausalLM: Qwen3's attention and Mixtral's experts, under other names."""

from __future__ import annotations

from typing import Any

from jaxlm.config import ObjectiveConfig
from jaxlm.families import resolve
from jaxlm.model_config import ModelConfig
from jaxlm.release.formats import Format, Values, only, positive, required, rope_theta
from jaxlm.release.mapping import Entry
from jaxlm.release.tables import llama, mixtral, qwen3


def table(config: ModelConfig) -> tuple[Entry, ...]:
    """Entries of the whole model."""
    return mixtral.routed(config, "mlp", gate="gate_proj", up="up_proj", down="down_proj")


def to_config(config: ModelConfig) -> dict[str, Any]:
    """The fields of a Qwen3MoeConfig; `intermediate_size` is that of the dense layers, of which there are none."""
    return qwen3.to_config(config) | {
        "moe_intermediate_size": config.intermediate_size,
        "num_experts": config.num_experts,
        "num_experts_per_tok": config.experts_per_token,
        "norm_topk_prob": config.normalize_experts,
        "router_aux_loss_coef": config.router_balance_coef,
        "decoder_sparse_step": 1,
        "mlp_only_layers": [],
    }


def from_config(values: Values) -> tuple[ModelConfig, ObjectiveConfig]:
    """The model of a Qwen3MoeConfig."""
    qwen3.refuse_windows_and_biases(values)
    only(values, decoder_sparse_step=1)
    only({"mlp_only_layers": list(values.get("mlp_only_layers") or ())}, mlp_only_layers=[])
    # transformers 5 saves `num_experts` under the name that it has in other classes.
    count = "num_experts" if "num_experts" in values else "num_local_experts"
    config = ModelConfig(
        family="moe",
        **llama.sizes({**values, "intermediate_size": required(values, "moe_intermediate_size")}, tied=False),
        norm_eps=llama.epsilon(values),
        rope_theta=rope_theta(values, 10_000.0),
        qk_norm=True,
        num_experts=positive(values, count),
        experts_per_token=positive(values, "num_experts_per_tok"),
        normalize_experts=bool(values.get("norm_topk_prob", False)),
        router_balance_coef=float(values.get("router_aux_loss_coef", 0.001)),
    )
    return resolve(config), ObjectiveConfig()


FORMAT = Format(
    class_names=("Qwen3MoeForCausalLM",),
    model_type="qwen3_moe",
    family="moe",
    table=table,
    from_config=from_config,
    reasons=lambda config: mixtral.reasons(config, qk_norm=True),
    to_config=to_config,
)
