"""LlamaForCausalLM: Llama 3, MobileLLM, MiniMind's dense models, and whatever else was walked to this skeleton.

Its projections are apart where ours are one matrix. What it shares with others of transformers' classes is public here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from jaxlm.config import ObjectiveConfig
from jaxlm.errors import UserError
from jaxlm.families import resolve
from jaxlm.model_config import ModelConfig
from jaxlm.release.formats import Format, Values, different, only, required, rope_theta
from jaxlm.release.mapping import Entry, Transform, bias, matrix, same

OURS, THEIRS = "layers/*", "model.layers.*"


def attention(
    config: ModelConfig, query_norm: str = "q_norm", key_norm: str = "k_norm", out: str = "o_proj"
) -> list[Entry]:
    """Projections with their biases, and the norms of query and key heads, where the model has them."""
    queries, keys = config.num_heads * config.head_dim, config.num_kv_heads * config.head_dim
    ours, theirs = f"{OURS}/attention", f"{THEIRS}.self_attn"
    entries = [
        *linear(f"{ours}/qkv", {f"{theirs}.{name}_proj": queries if name == "q" else keys for name in "qkv"}, config),
        *linear(f"{ours}/out", {f"{theirs}.{out}": config.hidden_size}, config),
    ]
    if config.qk_norm:
        for name, theirs_name in (("query_norm", query_norm), ("key_norm", key_norm)):
            entries.append(Entry(f"{ours}/{name}/scale", same(f"{theirs}.{theirs_name}.weight")))
    return entries


def feed_forward(
    config: ModelConfig, gate: str = "mlp.gate_proj", up: str = "mlp.up_proj", down: str = "mlp.down_proj"
) -> list[Entry]:
    """Gate and up, which are one matrix of ours, and down."""
    ours, width = f"{OURS}/feed_forward", config.intermediate_size
    return [
        *linear(f"{ours}/gate_up", {f"{THEIRS}.{name}": width for name in (gate, up)}, config),
        *linear(f"{ours}/down", {f"{THEIRS}.{down}": config.hidden_size}, config),
    ]


def linear(ours: str, theirs: Mapping[str, int], config: ModelConfig) -> list[Entry]:
    """A matrix and, if the model has biases, its bias."""

    def entry(name: str, their_name: str, transform: Any) -> Entry:
        made: Transform = transform({f"{module}.{their_name}": size for module, size in theirs.items()})
        return Entry(f"{ours}/{name}", made)

    weight = entry("kernel", "weight", matrix)
    return [weight, entry("bias", "bias", bias)] if config.use_bias else [weight]


def scales(theirs_by_ours: Mapping[str, str]) -> list[Entry]:
    """The norms of a layer."""
    return [Entry(f"{OURS}/{our}/scale", same(f"{THEIRS}.{their}.weight")) for our, their in theirs_by_ours.items()]


def ends(config: ModelConfig, final_norm: str = "model.norm") -> list[Entry]:
    """Embedding and final norm; a tied head has no entry, for it is the embedding."""
    entries = [
        Entry("embedding/table", same("model.embed_tokens.weight")),
        Entry("final_norm/scale", same(f"{final_norm}.weight")),
    ]
    return entries if config.tie_embeddings else [*entries, Entry("head/table", same("lm_head.weight"))]


NORMS = {"attention_norm": "input_layernorm", "feed_forward_norm": "post_attention_layernorm"}


def table(config: ModelConfig) -> tuple[Entry, ...]:
    """Entries of the whole model."""
    return (*ends(config), *scales(NORMS), *attention(config), *feed_forward(config))


def skeleton(config: ModelConfig) -> dict[str, Any]:
    """The fields of config.json that all of Llama's relatives have, as transformers 4.57 and 5 both read them.

    The rotary base is not in `rope_parameters`, which 4.57 would pass over without a word.
    """
    return {
        "vocab_size": config.vocab_size,
        "hidden_size": config.hidden_size,
        "intermediate_size": config.intermediate_size,
        "num_hidden_layers": config.num_layers,
        "num_attention_heads": config.num_heads,
        "num_key_value_heads": config.num_kv_heads,
        "head_dim": config.head_dim,
        "hidden_act": "silu",
        "max_position_embeddings": config.max_positions,
        "rope_theta": config.rope_theta,
        "rms_norm_eps": config.norm_eps,
        "initializer_range": config.init_std,
        "tie_word_embeddings": config.tie_embeddings,
    }


def to_config(config: ModelConfig) -> dict[str, Any]:
    """The fields of a LlamaConfig."""
    biases = bool(config.use_bias)
    return skeleton(config) | {"attention_bias": biases, "mlp_bias": biases}


def sizes(values: Values, *, tied: bool, head_dim: int | None = None) -> dict[str, Any]:
    """The fields of ModelConfig that `skeleton` writes, but for rotary base and epsilon; refuses other activations.

    `tied` and `head_dim` are what transformers takes where the file has none (None: an equal share of the width).
    """
    only(values, hidden_act="silu")
    width, heads = required(values, "hidden_size"), required(values, "num_attention_heads")
    tied_here = values.get("tie_word_embeddings")
    return {
        "vocab_size": required(values, "vocab_size"),
        "hidden_size": width,
        "intermediate_size": required(values, "intermediate_size"),
        "num_layers": required(values, "num_hidden_layers"),
        "num_heads": heads,
        "num_kv_heads": values.get("num_key_value_heads") or heads,
        "head_dim": values.get("head_dim") or head_dim or width // heads,
        "max_positions": required(values, "max_position_embeddings"),
        "init_std": float(values.get("initializer_range", 0.02)),
        "tie_embeddings": tied if tied_here is None else tied_here,
    }


def epsilon(values: Values, name: str = "rms_norm_eps", default: float = 1e-6) -> float:
    """Of the norms. Raises UserError for 0, which stands for the family's own in a ModelConfig."""
    given = values.get(name)
    if given is not None and not float(given) > 0:
        raise UserError(f"{name} of config.json is {given!r}, allowed: above 0")
    return default if given is None else float(given)


def from_config(values: Values) -> tuple[ModelConfig, ObjectiveConfig]:
    """The model of a LlamaConfig."""
    biases = bool(values.get("attention_bias"))
    if bool(values.get("mlp_bias")) != biases:
        raise UserError(
            f"mlp_bias of config.json is {values.get('mlp_bias')!r}, allowed: {biases!r}, as attention_bias is"
        )
    config = ModelConfig(
        family="llama3",
        **sizes(values, tied=False),
        norm_eps=epsilon(values),
        rope_theta=rope_theta(values, 10_000.0),
        use_bias=biases,
    )
    return resolve(config), ObjectiveConfig()


def reasons(config: ModelConfig, **parts: Any) -> list[str]:
    """Why a relative of Llama, with other `parts` than Llama's, cannot be the model."""
    needed = {
        "norm": "rms",
        "positions": "rope",
        "feed_forward": "swiglu",
        "use_bias": False,
        "qk_norm": False,
        "scale_embeddings": False,
        "layer_pattern": "G" * len(config.layer_pattern),
        "layer_repeats": 1,
        "num_experts": 0,
        "canon_set": "",
    } | parts
    out = different(config, **needed)
    if config.family == "gemma3" and needed["norm"] == "rms":
        out.append("model.family is 'gemma3' (it has no norms behind the branches)")
    if config.query_scalar not in (0, config.head_dim, needed.get("query_scalar")):
        out.append(f"model.query_scalar is {config.query_scalar} (it has model.head_dim = {config.head_dim})")
    return out


def whole_heads(config: ModelConfig) -> list[str]:
    """A check of the class in transformers 5, though the heads have a width of their own."""
    if config.hidden_size % config.num_heads:
        return [f"model.num_heads is {config.num_heads} (it has a divisor of model.hidden_size = {config.hidden_size})"]
    return []


FORMAT = Format(
    class_names=("LlamaForCausalLM",),
    model_type="llama",
    family="llama3",
    table=table,
    from_config=from_config,
    reasons=lambda config: reasons(config, use_bias=config.use_bias) + whole_heads(config),
    to_config=to_config,
)
