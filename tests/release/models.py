"""The tiny models of these tests, and what is written of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

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

# One model for each thing that could be wrong in PyTorch alone: every Canon option, windows, heads, readings.
MODELS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "llama3, untied": ({"family": "llama3", "canon_set": "", "tie_embeddings": False}, {}),
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


def release_of(trained: Trained, dtype: str = "float32") -> Release:
    objective = trained.config.objective
    return Release(
        config=trained.config.model,
        params=rounded(trained.params, dtype),
        tokenizer=trained.tokenizer,
        block_size=trained.structure.block_size,
        shift=bool(objective.shift),
        mask_epsilon=objective.eps if trained.mode == "diffusion" else None,
        dtype=dtype,
    )


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


def export(trained: Trained, out: Path, dtype: str = "float32") -> Path:
    release = release_of(trained, dtype)
    out.mkdir()
    write(release, model_card(release, origin_of(trained)), out)
    return out
