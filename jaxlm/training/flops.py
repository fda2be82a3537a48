"""Parameters by part, FLOPs of training by formula, and the peaks that MFU divides by.

XLA's own count takes the body of a loop once and leaves custom kernels out, so the formulas are ours. One multiply-add
is 2 FLOPs; the backward pass costs twice the forward.
"""

from __future__ import annotations

import math
from typing import Any

from jaxlm.config import ModelConfig
from jaxlm.families import Model, build_model
from jaxlm.layers.parameters import paths
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

# Part of the model by a name in the path, the first that is there: Canon layers lie inside other parts.
_PARTS = ("canon", "norm", "embedding", "head", "attention", "feed_forward")


def part_of(path: str) -> str:
    """The part a parameter belongs to: one of canon, norm, embedding, head, attention, feed_forward."""
    for part in _PARTS:
        if any(name == part or name.startswith(f"{part}_") or name.endswith(f"_{part}") for name in path.split("/")):
            return part
    raise ValueError(f"no part of {__name__} holds parameter {path!r}")


def parameter_counts(model: Model) -> dict[str, Any]:
    """`total`, `non_embedding` (without the embedding table), `active` (those that one token uses), and `by_part`."""
    by_part: dict[str, int] = {}
    for path, leaf in paths(model.abstract_params()):
        part = part_of(path)
        by_part[part] = by_part.get(part, 0) + math.prod(leaf.shape)
    total = sum(by_part.values())
    return {"total": total, "non_embedding": total - by_part["embedding"], "active": total, "by_part": by_part}


def flops_per_token(config: ModelConfig, seq_len: int) -> dict[str, float]:
    """FLOPs of training (forward and backward) per token at `seq_len`, in three conventions.

    `six_n`: 6 for each parameter that multiplies; a tied table counts once, as the head, an untied embedding is a
    lookup and does not count. `with_attention`: plus 12 x heads x head size x T a layer, every position seeing every
    other, right for bidirectional models. `with_causal_attention`: half of that. A local layer sees at most
    2 W - 1 positions where it sees ahead, and about W - W^2 / 2T, the mean over the row, where it does not.
    """
    counts = parameter_counts(build_model(config))
    six_n = 6.0 * (counts["total"] if config.tie_embeddings else counts["non_embedding"])
    width, window = config.num_heads * config.head_dim, min(config.sliding_window, seq_len)
    seen = {"G": float(seq_len), "L": float(min(2 * window - 1, seq_len))}
    seen_causally = {"G": seq_len / 2, "L": window - window**2 / (2 * seq_len)}
    return {
        "six_n": six_n,
        "with_attention": six_n + 12.0 * width * sum(seen[kind] for kind in config.layer_kinds),
        "with_causal_attention": six_n + 12.0 * width * sum(seen_causally[kind] for kind in config.layer_kinds),
    }


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
