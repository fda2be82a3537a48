"""The PyTorch code that travels with a release: Llama's names, and for Canon layers those of Dhara's PyTorch class.

Dhara has Canon B as three convolutions on q, k and v, and Canon D as one on silu(gate) * up. Where ours is
PhysicsLM4's D, on gate and up together, it is written the way B is: `canon_d_gate` and `canon_d_up`.
"""

from __future__ import annotations

from typing import Any

from jaxlm.config import ObjectiveConfig
from jaxlm.families import resolve
from jaxlm.model_config import ModelConfig
from jaxlm.release.formats import Format, Values, required, rope_theta
from jaxlm.release.mapping import Entry, bias, taps
from jaxlm.release.tables import llama

CAUSAL, DIFFUSION = "JaxlmForCausalLM", "JaxlmForMaskedDiffusion"
SAME_NAME = ("canon_set", "canon_kernel", "canon_residual", "canon_bias", "canon_activation", "canon_d_width")


def table(config: ModelConfig) -> tuple[Entry, ...]:
    """Llama's entries, and those of the Canon layers that the model has."""
    queries, keys = config.num_heads * config.head_dim, config.num_kv_heads * config.head_dim
    width = config.intermediate_size
    layer, attention, mlp = llama.THEIRS, f"{llama.THEIRS}.self_attn", f"{llama.THEIRS}.mlp"
    on_gate_up = {f"{mlp}.canon_d_gate": width, f"{mlp}.canon_d_up": width}
    places = {
        "A": ("canon_a", {f"{layer}.canon_a": config.hidden_size}),
        "B": (
            "attention/canon_b",
            {f"{attention}.canon_b_q": queries, f"{attention}.canon_b_k": keys, f"{attention}.canon_b_v": keys},
        ),
        "C": ("canon_c", {f"{layer}.canon_c": config.hidden_size}),
        "D": (
            "feed_forward/canon_d",
            on_gate_up if config.canon_d_width == "gate_up" else {f"{mlp}.canon_d": width},
        ),
    }
    canon = []
    for place in config.canon_set:
        ours, theirs = places[place]
        kernel, biases = ({f"{name}.conv.{part}": n for name, n in theirs.items()} for part in ("weight", "bias"))
        canon.append(Entry(f"{llama.OURS}/{ours}/kernel", taps(kernel)))
        if config.canon_bias:
            canon.append(Entry(f"{llama.OURS}/{ours}/bias", bias(biases)))
    return (*llama.table(config), *canon)


def to_config(config: ModelConfig) -> dict[str, Any]:
    """The fields of `configuration_jaxlm.JaxlmConfig` that are the architecture's, named as Dhara-70M names them."""
    return llama.skeleton(config) | {
        "family": config.family,
        "qk_norm": config.qk_norm,
        "layer_pattern": config.layer_pattern,
        "layer_repeats": config.layer_repeats,
        "sliding_window": config.sliding_window or None,
        "rope_theta_local": config.rope_theta_local or None,
        **{name: getattr(config, name) for name in SAME_NAME},
        "mask_token_id": config.mask_token_id,
    }


def reading(objective: ObjectiveConfig) -> dict[str, Any]:
    """The fields of JaxlmConfig that say who sees whom and what the logits mean."""
    diffusion = objective.kind == "diffusion"
    return {
        "architectures": [DIFFUSION if diffusion else CAUSAL],
        "attention_block_size": objective.block_size,
        "shift": objective.shift,
        "mask_epsilon": objective.eps if diffusion else None,
    }


def from_config(values: Values) -> tuple[ModelConfig, ObjectiveConfig]:
    """The inverse of `to_config` and `reading`."""
    canon_set = values.get("canon_set", "")
    config = ModelConfig(
        family=values.get("family") or ("llama3_canon" if canon_set else "llama3"),
        **llama.sizes(values, tied=True),
        norm_eps=llama.epsilon(values),
        rope_theta=rope_theta(values, 10_000.0),
        rope_theta_local=float(values.get("rope_theta_local") or 0),
        qk_norm=bool(values.get("qk_norm", False)),
        layer_pattern=values.get("layer_pattern", "G"),
        layer_repeats=values.get("layer_repeats", 1),
        sliding_window=values.get("sliding_window") or 0,
        **{name: values[name] for name in SAME_NAME if name in values},
        mask_token_id=values.get("mask_token_id"),
    )
    if values.get("mask_epsilon") is None:
        return resolve(config), ObjectiveConfig()
    objective = ObjectiveConfig(
        kind="diffusion",
        block_size=required(values, "attention_block_size"),
        shift=required(values, "shift"),
        eps=float(values["mask_epsilon"]),
    )
    return resolve(config), objective


def reasons(config: ModelConfig) -> list[str]:
    """Why the code cannot be the model."""
    return llama.reasons(
        config,
        qk_norm=config.qk_norm,
        layer_pattern="".join(kind if kind in "GL" else "G" for kind in config.layer_pattern),
        layer_repeats=config.layer_repeats,
        canon_set=config.canon_set,
    )


FORMAT = Format(
    class_names=(CAUSAL, DIFFUSION),
    model_type="jaxlm",
    family="llama3_canon",
    table=table,
    from_config=from_config,
    reasons=reasons,
    to_config=to_config,
    remote_code=True,
)
