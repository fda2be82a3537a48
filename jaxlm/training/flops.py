"""Parameters by part, FLOPs of training by formula, and the peaks that MFU divides by.

XLA's own count takes the body of a loop once and leaves custom kernels out, so the formulas are ours. One multiply-add
is 2 FLOPs; the backward pass costs twice the forward.
"""

from __future__ import annotations

import functools
import math
from typing import Any

from jaxlm.families import Model, build_model
from jaxlm.layers.parameters import paths
from jaxlm.model_config import ModelConfig
from jaxlm.objectives import Objective

# Vendors' dense bf16 peaks in FLOP/s, by jax's `device_kind`.
PEAK_FLOPS = {
    "NVIDIA A40": 149.7e12,
    "NVIDIA H200": 989e12,
    "TPU v5 lite": 197e12,
    "TPU v5e": 197e12,
    "TPU v5": 459e12,
    "TPU v5p": 459e12,
    "TPU v6 lite": 918e12,
    "TPU v6e": 918e12,
}

# Part of the model by a name in the path, the first that is there: Canon layers and norms lie inside other parts.
_PARTS = ("canon", "norm", "embedding", "positions", "head", "memory", "attention", "convolution", "feed_forward")
_LOOKED_UP = ("embedding", "positions")  # rows are picked, nothing is multiplied


def part_of(path: str) -> str:
    """The part a parameter belongs to, one of canon, norm, embedding, positions, head, memory, attention, ..."""
    for part in _PARTS:
        if any(name == part or name.startswith(f"{part}_") or name.endswith(f"_{part}") for name in path.split("/")):
            return part
    raise ValueError(f"no part of {__name__} holds parameter {path!r}")


def parameter_counts(model: Model) -> dict[str, Any]:
    """`total`, `non_embedding` (without the tables of tokens and positions), `active` and `by_part`.

    Active are those that work for one token: of the routed experts as many as it chooses.
    """
    by_part: dict[str, int] = {}
    idle = 0
    for path, leaf in paths(model.abstract_params()):
        part, size = part_of(path), math.prod(leaf.shape)
        by_part[part] = by_part.get(part, 0) + size
        if "/experts/" in path:
            idle += size * (model.config.num_experts - model.config.experts_per_token) // model.config.num_experts
    total = sum(by_part.values())
    looked_up = sum(by_part.get(part, 0) for part in _LOOKED_UP)
    return {"total": total, "non_embedding": total - looked_up, "active": total - idle, "by_part": by_part}


@functools.lru_cache(maxsize=8)
def described(config: ModelConfig) -> Model:
    """The model of a configuration, to be counted: deep ones take a second to describe, and are asked several times."""
    return build_model(config)


def flops_per_token(config: ModelConfig, seq_len: int) -> dict[str, float]:
    """FLOPs of training (forward and backward) per token at `seq_len`, in three conventions.

    `six_n`: 6 for each parameter that multiplies, as often as it does: those of a block that runs twice count twice, an
    expert that is not chosen does not count. A tied table counts once, as the head; embeddings are lookups.
    `with_attention`: plus 12 x heads x head size x T a layer, every position seeing every other, right for
    bidirectional models. `with_causal_attention`: half of that. A local layer sees at most 2 W - 1 positions where it
    sees ahead, and about W - W^2 / 2T, the mean over the row, where it does not. A convolution sees its taps, which are
    parameters. Learned vectors in the sequence are work for the blocks too, spread over the tokens.
    """
    model = described(config)
    config, counts = model.config, parameter_counts(model)
    head = config.vocab_size * config.hidden_size
    blocks = counts["active"] - (counts["total"] - counts["non_embedding"]) - (0 if config.tie_embeddings else head)
    positions = config.layer_repeats * model.module.lengthened(seq_len) / seq_len  # of the blocks, for each token
    memory = _MemoryWork(config)
    six_n = 6.0 * ((blocks + memory.products) * positions + head)
    width, window = config.num_heads * config.head_dim, min(config.sliding_window, seq_len)
    segment = min(config.segment_positions, seq_len)
    fixed = config.num_persistent_tokens or 0
    again = segment if config.memory_reading == "context" else 0  # what the memory says stands beside the text
    seen = {
        "G": float(seq_len),
        "L": float(min(2 * window - 1, seq_len)),
        "C": 0.0,
        "S": float(fixed + segment),
        "M": float(fixed + segment + again),
    }
    seen_causally = {
        "G": seq_len / 2,
        "L": window - window**2 / (2 * seq_len),
        "C": 0.0,
        "S": fixed + segment / 2,
        "M": fixed + (segment + again) / 2,
    }
    twelve = 12.0 * width * positions
    every = twelve * sum(seen[kind] for kind in config.layer_kinds) + 6.0 * positions * memory.pairs
    causal = twelve * sum(seen_causally[kind] for kind in config.layer_kinds) + 3.0 * positions * memory.pairs
    return {"six_n": six_n, "with_attention": six_n + every, "with_causal_attention": six_n + causal}


class _MemoryWork:
    """Multiply-adds of a forward pass for each position, in all M layers, beside one for each of their parameters.

    Attributes:
      products: with the network's matrices, which work five times and more: it stores (forward, and backward through
        all but the first), is read (memory and momentum), and is written (both). The paper's reading projects twice.
      pairs: of a position with each of the memory batch: what an outer product gives is taken as two inner ones.
    """

    def __init__(self, config: ModelConfig) -> None:
        layers, N, H, D = config.layer_kinds.count("M"), config.num_heads, config.head_dim, config.hidden_size
        widths = config.memory_widths
        sizes = [a * b for a, b in zip(widths, widths[1:], strict=False)]
        products = N * (4 * sum(sizes) + sum(sizes[1:]))
        if config.memory_reading == "context":
            K = config.num_kv_heads
            products += N * sum(sizes) + D * 2 * K * H + 2 * D * N * H + D * N
        self.products = layers * products
        self.pairs = layers * N * config.memory_batch * (sum(widths[:-1]) + sum(widths[1:]) + H)


def training_flops(objective: Objective, seq_len: int) -> tuple[float, str]:
    """FLOPs per token of one training step under an objective, and the name of the convention.

    Block diffusion runs a noisy and a clean copy of the row: every parameter but the head works twice, and the two
    copies together look at about as many pairs of positions as one that sees everything.
    """
    config, structure = objective.model.config, objective.structure(seq_len)
    flops = flops_per_token(config, seq_len)
    if structure.causal:
        return flops["with_causal_attention"], "with_causal_attention"
    if structure.streams == 1:
        return flops["with_attention"], "with_attention"
    head = 6.0 * config.vocab_size * config.hidden_size
    return flops["with_attention"] + flops["six_n"] - head, "with_attention_two_streams"


def peak_flops(device_kind: str) -> float | None:
    """Dense bf16 FLOP/s of one device; None for one that is not in the table, such as a CPU."""
    return PEAK_FLOPS.get(device_kind)
