"""MixtralForCausalLM: Llama's attention, and experts that are apart on disk where ours are stacked."""

from __future__ import annotations

from typing import Any

from jaxlm.config import ObjectiveConfig
from jaxlm.families import resolve
from jaxlm.model_config import ModelConfig
from jaxlm.release.formats import Format, Values, only, positive, rope_theta
from jaxlm.release.mapping import Entry, experts, matrix
from jaxlm.release.tables import llama


def table(config: ModelConfig) -> tuple[Entry, ...]:
    """Entries of the whole model."""
    return routed(config, "block_sparse_moe", gate="w1", up="w3", down="w2")


def routed(config: ModelConfig, theirs: str, gate: str, up: str, down: str) -> tuple[Entry, ...]:
    """Llama's entries with a router and experts, under these names, for a feed-forward."""
    ours, theirs, width = f"{llama.OURS}/feed_forward", f"{llama.THEIRS}.{theirs}", config.intermediate_size
    return (
        *llama.ends(config),
        *llama.scales(llama.NORMS),
        *llama.attention(config),
        Entry(f"{ours}/router/kernel", matrix({f"{theirs}.gate.weight": config.num_experts})),
        Entry(f"{ours}/experts/gate_up", experts({f"{theirs}.experts.#.{name}.weight": width for name in (gate, up)})),
        Entry(f"{ours}/experts/down", experts({f"{theirs}.experts.#.{down}.weight": config.hidden_size})),
    )


def to_config(config: ModelConfig) -> dict[str, Any]:
    """The fields of a MixtralConfig."""
    return llama.skeleton(config) | {
        "num_local_experts": config.num_experts,
        "num_experts_per_tok": config.experts_per_token,
        "router_aux_loss_coef": config.router_balance_coef,
        "sliding_window": None,
    }


def from_config(values: Values) -> tuple[ModelConfig, ObjectiveConfig]:
    """The model of a MixtralConfig."""
    only(values, sliding_window=None)
    config = ModelConfig(
        family="moe",
        **llama.sizes(values, tied=False),
        norm_eps=llama.epsilon(values, default=1e-5),
        rope_theta=rope_theta(values, 1_000_000.0),
        num_experts=positive(values, "num_local_experts"),
        experts_per_token=positive({"num_experts_per_tok": 2} | dict(values), "num_experts_per_tok"),
        router_balance_coef=float(values.get("router_aux_loss_coef", 0.001)),
    )
    return resolve(config), ObjectiveConfig()


def reasons(config: ModelConfig, **parts: Any) -> list[str]:
    """Why a relative of Mixtral cannot be the model."""
    out = llama.reasons(config, num_experts=config.num_experts, num_shared_experts=0, **parts)
    return out if config.num_experts else [*out, "model.num_experts is 0 (it has some)"]


FORMAT = Format(
    class_names=("MixtralForCausalLM",),
    model_type="mixtral",
    family="moe",
    table=table,
    from_config=from_config,
    reasons=lambda config: reasons(config, normalize_experts=True),
    to_config=to_config,
)
