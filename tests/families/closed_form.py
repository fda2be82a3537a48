"""How many parameters a model has, from its fields alone."""

from jaxlm.families import resolve
from jaxlm.model_config import ModelConfig


def closed_form(config: ModelConfig) -> int:
    c = resolve(config)
    D, F, H, N, K = c.hidden_size, c.intermediate_size, c.head_dim, c.num_heads, c.num_kv_heads
    heads, bias = (N + 2 * K) * H, int(bool(c.use_bias))
    norm = D * (1 + (c.norm == "layer") * bias)

    attention = D * heads + N * H * D + bias * (heads + D) + 2 * H * bool(c.qk_norm)
    convolution = 3 * D * D + c.conv_kernel * D + D * D
    if c.num_experts:
        feed_forward = D * c.num_experts + (c.num_experts + c.num_shared_experts) * 3 * D * F
    elif c.feed_forward == "gelu":
        feed_forward = 2 * D * F + bias * (F + D)
    else:
        feed_forward = 3 * D * F + bias * (2 * F + D)

    gated_width = F if c.feed_forward == "gelu" or c.canon_d_width == "product" else 2 * F
    widths = {"A": D, "B": heads, "C": D, "D": gated_width}
    canon = sum((c.canon_kernel + c.canon_bias) * widths[place] for place in c.canon_set)

    # Titans: learned keys and values, learned vectors, and a memory: a network a head, projections, rates, norms.
    attention += 2 * K * (c.num_persistent_tokens or 0) * H
    inner = round(H * c.memory_expansion)
    matrices = H * H if c.memory_depth == 1 else 2 * H * inner + (c.memory_depth - 2) * inner * inner
    projections = 3 * D * N * H + N * H * D + D * N + (D + 1) * 3 * N
    memory = N * (matrices + H) + projections + 2 * N * H + 2 * D

    norms = (4 if c.family == "gemma3" else 2) * norm
    layers = sum((convolution if kind == "C" else attention) + feed_forward + canon + norms for kind in c.layer_kinds)
    layers += c.layer_kinds.count("M") * memory
    tables = c.vocab_size * (1 if c.tie_embeddings else 2) + c.max_positions * (c.positions == "learned")
    tables += c.num_longterm_tokens or 0
    return tables * D + layers + norm
