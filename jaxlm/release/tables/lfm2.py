"""Lfm2ForCausalLM: gated short convolutions in some layers, attention in the others; Llama's parts, other names."""

from __future__ import annotations

from typing import Any

from jaxlm.config import ObjectiveConfig
from jaxlm.families import resolve
from jaxlm.model_config import ModelConfig
from jaxlm.release.formats import Format, Values, layer_types, only, pattern_of, required, rope_theta
from jaxlm.release.mapping import Entry, matrix, taps
from jaxlm.release.tables import llama

CONVOLUTION, ATTENTION = "conv", "full_attention"


def table(config: ModelConfig) -> tuple[Entry, ...]:
    """Entries of the whole model; a layer has those of the convolution or those of the attention."""
    D, ours, theirs = config.hidden_size, f"{llama.OURS}/convolution", f"{llama.THEIRS}.conv"
    return (
        *llama.ends(config, final_norm="model.embedding_norm"),
        *llama.scales({"attention_norm": "operator_norm", "feed_forward_norm": "ffn_norm"}),
        Entry(f"{ours}/bcx/kernel", matrix({f"{theirs}.in_proj.weight": 3 * D})),
        Entry(f"{ours}/taps/kernel", taps({f"{theirs}.conv.weight": D})),
        Entry(f"{ours}/out/kernel", matrix({f"{theirs}.out_proj.weight": D})),
        *llama.attention(config, query_norm="q_layernorm", key_norm="k_layernorm", out="out_proj"),
        *llama.feed_forward(config, gate="feed_forward.w1", up="feed_forward.w3", down="feed_forward.w2"),
    )


def to_config(config: ModelConfig) -> dict[str, Any]:
    """The fields of an Lfm2Config; the width of the feed-forward is written as it is, not to be adjusted."""
    fields = llama.skeleton(config)
    del fields["hidden_act"], fields["rms_norm_eps"]
    return fields | {
        "norm_eps": config.norm_eps,
        "layer_types": [CONVOLUTION if kind == "C" else ATTENTION for kind in config.layer_kinds],
        "conv_L_cache": config.conv_kernel,
        "conv_bias": False,
        "block_auto_adjust_ff_dim": False,
    }


def from_config(values: Values) -> tuple[ModelConfig, ObjectiveConfig]:
    """The model of an Lfm2Config, with the names that its first files had."""
    only(values, conv_bias=False)
    width = values.get("block_ff_dim") or required(values, "intermediate_size")
    theta = rope_theta(values, 1_000_000.0)
    only(values, theta=theta)
    sizes = llama.sizes({**values, "intermediate_size": _adjusted(width, values)}, tied=True)
    if values.get("tie_embedding") is not None:
        sizes["tie_embeddings"] = values["tie_embedding"]
    kinds = layer_types(values, sizes["num_layers"], CONVOLUTION, ATTENTION)
    if kinds is None:
        attends = values.get("full_attn_idxs")
        kinds = [ATTENTION if attends is None or i in attends else CONVOLUTION for i in range(sizes["num_layers"])]
    config = ModelConfig(
        family="lfm2",
        **sizes,
        norm_eps=llama.epsilon(values, "norm_eps", 1e-5),
        rope_theta=theta,
        layer_pattern=pattern_of("".join("C" if kind == CONVOLUTION else "G" for kind in kinds)),
        conv_kernel=values.get("conv_L_cache") or 3,
    )
    return resolve(config), ObjectiveConfig()


def _adjusted(width: int, values: Values) -> int:
    """The width of the feed-forward, which transformers' Lfm2MLP may make of the one in the file."""
    if not values.get("block_auto_adjust_ff_dim", True):
        return width
    width, multiple = int(2 * width / 3), values.get("block_multiple_of", 256)
    if (factor := values.get("block_ffn_dim_multiplier", 1.0)) is None:
        return width
    return multiple * ((int(factor * width) + multiple - 1) // multiple)


def reasons(config: ModelConfig) -> list[str]:
    """Why LFM2's class cannot be the model."""
    kinds = set(config.layer_kinds)
    parts: dict[str, Any] = {"qk_norm": True, "layer_pattern": config.layer_pattern}
    out = llama.reasons(config, **parts)
    if not {"G"} <= kinds <= {"G", "C"}:
        out.append(f"model.layer_pattern is {config.layer_pattern!r} (it has G, and C beside it)")
    return out


FORMAT = Format(
    class_names=("Lfm2ForCausalLM",),
    model_type="lfm2",
    family="lfm2",
    table=table,
    from_config=from_config,
    reasons=reasons,
    to_config=to_config,
    # Version 4 lets pads into the convolutions, and misplaces what they keep of a prompt shorter than their taps.
    pads_since=(5, 0),
)
