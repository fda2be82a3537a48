"""LLaMA 3: the names of transformers' Llama, whose projections are apart where ours are one matrix."""

from __future__ import annotations

from jaxlm.config import ModelConfig
from jaxlm.release.mapping import Entry, matrix, same


def table(config: ModelConfig) -> tuple[Entry, ...]:
    """Entries of the whole model; a tied head has none, for it is the embedding."""
    queries, keys = config.num_heads * config.head_dim, config.num_kv_heads * config.head_dim
    width = config.intermediate_size
    ours, theirs = "layers/*", "model.layers.*"
    layer = (
        Entry(f"{ours}/attention_norm/scale", same(f"{theirs}.input_layernorm.weight")),
        Entry(
            f"{ours}/attention/qkv/kernel",
            matrix(
                {
                    f"{theirs}.self_attn.q_proj.weight": queries,
                    f"{theirs}.self_attn.k_proj.weight": keys,
                    f"{theirs}.self_attn.v_proj.weight": keys,
                }
            ),
        ),
        Entry(f"{ours}/attention/out/kernel", matrix({f"{theirs}.self_attn.o_proj.weight": config.hidden_size})),
        Entry(f"{ours}/feed_forward_norm/scale", same(f"{theirs}.post_attention_layernorm.weight")),
        Entry(
            f"{ours}/feed_forward/gate_up/kernel",
            matrix({f"{theirs}.mlp.gate_proj.weight": width, f"{theirs}.mlp.up_proj.weight": width}),
        ),
        Entry(f"{ours}/feed_forward/down/kernel", matrix({f"{theirs}.mlp.down_proj.weight": config.hidden_size})),
    )
    head = () if config.tie_embeddings else (Entry("head/table", same("lm_head.weight")),)
    return (
        Entry("embedding/table", same("model.embed_tokens.weight")),
        *layer,
        Entry("final_norm/scale", same("model.norm.weight")),
        *head,
    )
