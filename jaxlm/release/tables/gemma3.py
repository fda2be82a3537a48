"""Gemma3ForCausalLM, the text model: four norms a layer, two rotary bases, windows in the local layers."""

from __future__ import annotations

from typing import Any

from jaxlm.config import ObjectiveConfig
from jaxlm.families import resolve
from jaxlm.model_config import ModelConfig
from jaxlm.release.formats import Format, Values, layer_types, only, pattern_of, required, rope_theta
from jaxlm.release.mapping import Entry
from jaxlm.release.tables import llama

LOCAL, GLOBAL = "sliding_attention", "full_attention"
NORMS = {
    "attention_norm": "input_layernorm",
    "attention_post_norm": "post_attention_layernorm",
    "feed_forward_norm": "pre_feedforward_layernorm",
    "feed_forward_post_norm": "post_feedforward_layernorm",
}


def table(config: ModelConfig) -> tuple[Entry, ...]:
    """Entries of the whole model; a scale is the w of 1 + w in both."""
    return (
        *llama.ends(config),
        *llama.scales(NORMS),
        *llama.attention(config),
        *llama.feed_forward(config),
    )


def to_config(config: ModelConfig) -> dict[str, Any]:
    """The fields of a Gemma3TextConfig."""
    fields = llama.skeleton(config)
    del fields["hidden_act"]
    return fields | {
        "hidden_activation": "gelu_pytorch_tanh",
        "rope_local_base_freq": config.rope_theta_local or config.rope_theta,
        "layer_types": [LOCAL if kind == "L" else GLOBAL for kind in config.layer_kinds],
        # transformers 4 makes the mask of the local layers even if there are none.
        "sliding_window": config.sliding_window or config.max_positions,
        "query_pre_attn_scalar": int(config.query_scalar or config.head_dim),
        "attention_bias": False,
        "final_logit_softcapping": None,
        "attn_logit_softcapping": None,
    }


def from_config(values: Values) -> tuple[ModelConfig, ObjectiveConfig]:
    """The model of a Gemma3TextConfig."""
    only(
        values,
        hidden_activation="gelu_pytorch_tanh",
        attention_bias=False,
        final_logit_softcapping=None,
        attn_logit_softcapping=None,
        use_bidirectional_attention=False,
    )
    sizes = llama.sizes(values, tied=True, head_dim=256)
    pattern = pattern_of(_letters(values, sizes["num_layers"]))
    query_scalar = float(values.get("query_pre_attn_scalar") or 256)
    config = ModelConfig(
        family="gemma3",
        **sizes,
        norm_eps=llama.epsilon(values),
        rope_theta=rope_theta(values, 1_000_000.0, GLOBAL),
        rope_theta_local=rope_theta(values, 10_000.0, LOCAL, "rope_local_base_freq") if "L" in pattern else 0.0,
        layer_pattern=pattern,
        sliding_window=required(values, "sliding_window") if "L" in pattern else 0,
        query_scalar=0.0 if query_scalar == sizes["head_dim"] else query_scalar,
    )
    return resolve(config), ObjectiveConfig()


def _letters(values: Values, num_layers: int) -> str:
    """One letter a layer; the older files say only that each so-manieth layer is global."""
    kinds = layer_types(values, num_layers, LOCAL, GLOBAL)
    if kinds is None:
        period = values.get("sliding_window_pattern") or 6
        return "".join("L" if (i + 1) % period else "G" for i in range(num_layers))
    return "".join("L" if kind == LOCAL else "G" for kind in kinds)


def reasons(config: ModelConfig) -> list[str]:
    """Why Gemma's class cannot be the model."""
    parts: dict[str, Any] = {
        "family": "gemma3",
        "norm": "rms_unit_offset",
        "feed_forward": "geglu",
        "qk_norm": True,
        "scale_embeddings": True,
        "layer_pattern": config.layer_pattern,
        "query_scalar": float(int(config.query_scalar)),
    }
    return llama.reasons(config, **parts) + llama.whole_heads(config)


FORMAT = Format(
    class_names=("Gemma3ForCausalLM",),
    model_type="gemma3_text",
    family="gemma3",
    table=table,
    from_config=from_config,
    reasons=reasons,
    to_config=to_config,
)
