"""GPT2LMHeadModel, whose Conv1D has its matrices [in, out] and queries, keys and values in one, as ours are.

Old checkpoints have names without `transformer.` and causal masks beside the parameters; both are read.
"""

from __future__ import annotations

from typing import Any

from jaxlm.config import ObjectiveConfig
from jaxlm.errors import UserError
from jaxlm.families import resolve
from jaxlm.model_config import ModelConfig
from jaxlm.release.formats import Format, Values, different, only, required
from jaxlm.release.mapping import Entry, same
from jaxlm.release.tables import llama

TRUNK = "transformer."
LAYER = {
    "attention_norm": "ln_1",
    "attention/qkv": "attn.c_attn",
    "attention/out": "attn.c_proj",
    "feed_forward_norm": "ln_2",
    "feed_forward/up": "mlp.c_fc",
    "feed_forward/down": "mlp.c_proj",
}
SAME_ACTIVATION = ("gelu_new", "gelu_pytorch_tanh")  # "gelu" is another function


def table(config: ModelConfig) -> tuple[Entry, ...]:
    """Entries of the whole model; weights and biases are named alike everywhere."""

    def pair(ours: str, theirs: str) -> list[Entry]:
        kind = "scale" if "norm" in ours else "kernel"
        return [
            Entry(f"{ours}/{kind}", same(f"{TRUNK}{theirs}.weight")),
            Entry(f"{ours}/bias", same(f"{TRUNK}{theirs}.bias")),
        ]

    entries = [
        Entry("embedding/table", same(f"{TRUNK}wte.weight")),
        Entry("positions/table", same(f"{TRUNK}wpe.weight")),
        *pair("final_norm", "ln_f"),
        *(entry for ours, theirs in LAYER.items() for entry in pair(f"layers/*/{ours}", f"h.*.{theirs}")),
    ]
    return (*entries, *(() if config.tie_embeddings else (Entry("head/table", same("lm_head.weight")),)))


def to_config(config: ModelConfig) -> dict[str, Any]:
    """The fields of a GPT2Config; dropout is for training, and jaxlm has none."""
    return {
        "vocab_size": config.vocab_size,
        "n_positions": config.max_positions,
        "n_embd": config.hidden_size,
        "n_layer": config.num_layers,
        "n_head": config.num_heads,
        "n_inner": config.intermediate_size,
        "activation_function": "gelu_new",
        "resid_pdrop": 0.0,
        "embd_pdrop": 0.0,
        "attn_pdrop": 0.0,
        "layer_norm_epsilon": config.norm_eps,
        "initializer_range": config.init_std,
        "tie_word_embeddings": config.tie_embeddings,
    }


def from_config(values: Values) -> tuple[ModelConfig, ObjectiveConfig]:
    """The model of a GPT2Config."""
    if (activation := values.get("activation_function", SAME_ACTIVATION[0])) not in SAME_ACTIVATION:
        allowed = " or ".join(map(repr, SAME_ACTIVATION))
        raise UserError(f"activation_function of config.json is {activation!r}, allowed: {allowed}")
    only(values, scale_attn_weights=True, scale_attn_by_inverse_layer_idx=False, add_cross_attention=False)
    width, heads = required(values, "n_embd"), required(values, "n_head")
    config = ModelConfig(
        family="gpt2",
        vocab_size=required(values, "vocab_size"),
        hidden_size=width,
        intermediate_size=values.get("n_inner") or 4 * width,
        num_layers=required(values, "n_layer"),
        num_heads=heads,
        num_kv_heads=heads,
        head_dim=width // heads,
        max_positions=required(values, "n_positions"),
        init_std=float(values.get("initializer_range", 0.02)),
        tie_embeddings=bool(values.get("tie_word_embeddings", True)),
        norm_eps=llama.epsilon(values, "layer_norm_epsilon", 1e-5),
    )
    return resolve(config), ObjectiveConfig()


def reasons(config: ModelConfig) -> list[str]:
    """Why GPT-2's class cannot be the model."""
    return different(
        config,
        norm="layer",
        positions="learned",
        feed_forward="gelu",
        use_bias=True,
        qk_norm=False,
        scale_embeddings=False,
        num_kv_heads=config.num_heads,
        head_dim=config.hidden_size // config.num_heads,
        hidden_size=config.num_heads * config.head_dim,
        query_scalar=config.head_dim if config.query_scalar else 0.0,
        layer_pattern="G" * len(config.layer_pattern),
        layer_repeats=1,
        canon_set="",
    )


FORMAT = Format(
    class_names=("GPT2LMHeadModel",),
    model_type="gpt2",
    family="gpt2",
    table=table,
    from_config=from_config,
    trunk=TRUNK,
    head=("lm_head.weight", f"{TRUNK}wte.weight"),
    buffers=r".*\.attn\.(masked_)?bias",
    reasons=reasons,
    to_config=to_config,
)
