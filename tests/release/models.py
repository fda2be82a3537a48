"""The tiny models of these tests, and what is written of them."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

from jaxlm.release import tables
from jaxlm.release.card import Origin, model_card
from jaxlm.release.directory import Release, rounded, write
from jaxlm.trained import Trained
from jaxlm.training.flops import parameter_counts

TINY = {
    "family": "llama3_canon",
    "vocab_size": 384,
    "num_layers": 3,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_heads": 4,
    "num_kv_heads": 2,
    "head_dim": 10,
    "max_positions": 160,
    "canon_set": "AC",
}

# One model for each thing that could be wrong in our code in PyTorch alone: Canon options, windows, heads, readings.
MODELS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "llama3, untied": ({"family": "llama3", "canon_set": "", "tie_embeddings": False}, {}),
    "layers that run twice, normed heads, two rotary bases": (
        {
            "layer_repeats": 2,
            "qk_norm": True,
            "layer_pattern": "GL",
            "sliding_window": 5,
            "rope_theta_local": 99.0,
        },
        {},
    ),
    "everything Canon can be, with windows": (
        {"canon_set": "ABCD", "canon_bias": True, "canon_activation": True, "layer_pattern": "GL", "sliding_window": 5},
        {},
    ),
    "diffusion, with windows": (
        {"canon_set": "ABCD", "canon_d_width": "product", "layer_pattern": "LG", "sliding_window": 7},
        {"kind": "diffusion"},
    ),
    "diffusion, shifted, no residual": (
        {"canon_residual": False, "canon_kernel": 3},
        {"kind": "diffusion", "shift": True},
    ),
    "diffusion in blocks": ({"canon_set": "AB"}, {"kind": "diffusion", "block_size": 8}),
}

# One model for each of transformers' own classes.
PLAIN = {"canon_set": ""}
NATIVE: dict[str, dict[str, Any]] = {
    "LlamaForCausalLM": PLAIN | {"family": "minimind", "use_bias": True},
    "Qwen3ForCausalLM": PLAIN | {"family": "qwen3", "num_heads": 6, "tie_embeddings": False},
    "GPT2LMHeadModel": PLAIN | {"family": "gpt2", "num_kv_heads": 4, "head_dim": 8, "mask_token_id": 3},
    "Gemma3ForCausalLM": PLAIN | {"family": "gemma3", "layer_pattern": "LG", "sliding_window": 9, "query_scalar": 7.0},
    "Lfm2ForCausalLM": PLAIN | {"family": "lfm2", "layer_pattern": "CGC"},
    "MixtralForCausalLM": PLAIN | {"family": "moe", "intermediate_size": 20},
    "Qwen3MoeForCausalLM": PLAIN | {"family": "moe", "qk_norm": True, "normalize_experts": False, "num_experts": 5},
}


def release_of(trained: Trained, dtype: str = "float32", kind: str = "jaxlm") -> Release:
    config = trained.config.model
    objective = dataclasses.replace(trained.config.objective, block_size=trained.structure.block_size)
    target = tables.choose(config, objective, kind)
    return Release(config, rounded(trained.params, dtype), trained.tokenizer, objective, target, dtype)


def origin_of(trained: Trained, **changes: Any) -> Origin:
    manifest = {
        "parameters": parameter_counts(trained.model),
        "data": {"data_sha256": "d" * 64, "tokenizer_sha256": "t" * 64},
        "versions": {"jax": "0.10.2", "optax": None},
        "git_revision": None,
        "init_from": None,
    }
    fields = dict(
        config=trained.config, kind="train", step=4, manifest=manifest, validation=None, data=None, statistics=None
    )
    return Origin(**(fields | changes))


def export(trained: Trained, out: Path, dtype: str = "float32", kind: str = "jaxlm") -> Path:
    release = release_of(trained, dtype, kind)
    out.mkdir()
    write(release, model_card(release, origin_of(trained)), out)
    return out
