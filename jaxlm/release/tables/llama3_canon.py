"""LLaMA 3 with Canon layers: Llama's names, and for the convolutions those of Dhara's PyTorch class.

Dhara has Canon B as three convolutions on q, k and v, and Canon D as one on silu(gate) * up. Where ours is
PhysicsLM4's D, on gate and up together, it is written the way B is: `canon_d_gate` and `canon_d_up`.
"""

from __future__ import annotations

from jaxlm.config import ModelConfig
from jaxlm.release.mapping import Entry, bias, taps
from jaxlm.release.tables import llama3


def table(config: ModelConfig) -> tuple[Entry, ...]:
    """Llama's entries, and those of the Canon layers that the model has."""
    queries, keys = config.num_heads * config.head_dim, config.num_kv_heads * config.head_dim
    width = config.intermediate_size
    attention, mlp = "model.layers.*.self_attn", "model.layers.*.mlp"
    on_gate_up = {f"{mlp}.canon_d_gate": width, f"{mlp}.canon_d_up": width}
    places = {
        "A": ("layers/*/canon_a", {"model.layers.*.canon_a": config.hidden_size}),
        "B": (
            "layers/*/attention/canon_b",
            {f"{attention}.canon_b_q": queries, f"{attention}.canon_b_k": keys, f"{attention}.canon_b_v": keys},
        ),
        "C": ("layers/*/canon_c", {"model.layers.*.canon_c": config.hidden_size}),
        "D": (
            "layers/*/feed_forward/canon_d",
            on_gate_up if config.canon_d_width == "gate_up" else {f"{mlp}.canon_d": width},
        ),
    }
    canon = []
    for place in config.canon_set:
        ours, theirs = places[place]
        canon.append(Entry(f"{ours}/kernel", taps({f"{name}.conv.weight": size for name, size in theirs.items()})))
        if config.canon_bias:
            canon.append(Entry(f"{ours}/bias", bias({f"{name}.conv.bias": size for name, size in theirs.items()})))
    return (*llama3.table(config), *canon)
