"""The files of a release: weights, configuration, tokenizer, the PyTorch code that runs them, and the model card.

Nothing here needs PyTorch: weights are written with safetensors from NumPy arrays.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import ml_dtypes
import numpy as np
from safetensors.numpy import save_file

from jaxlm.config import ModelConfig
from jaxlm.errors import UserError
from jaxlm.layers.parameters import Tree, from_paths, paths
from jaxlm.release import remote, tables
from jaxlm.release.mapping import to_hugging_face

WEIGHTS, CONFIG, GENERATION_CONFIG, CARD = "model.safetensors", "config.json", "generation_config.json", "README.md"
DTYPES = {"float32": np.dtype(np.float32), "bfloat16": np.dtype(ml_dtypes.bfloat16)}


class Tokenizer(Protocol):
    """A tokenizer, as far as a release is concerned."""

    end_of_text_id: int
    vocab_size: int

    def save(self, directory: str | Path) -> None: ...


@dataclass(frozen=True)
class Release:
    """What is released. Raises UserError for a model that has no place in a Hugging Face directory.

    Attributes:
      config: of the model, the mask token filled in.
      params: nested dict of fp32 arrays, `rounded` to dtype.
      tokenizer: `save` writes files that AutoTokenizer reads, with a pad token, padding on the left.
      block_size: who sees whom: 1 left to right, 0 everybody, b the own block and the earlier ones.
      shift: whether the logits that predict token i are read at i-1.
      mask_epsilon: least probability of a mask in training; None for an autoregressive model.
      dtype: of the weights on disk, a key of DTYPES.
    """

    config: ModelConfig
    params: Tree
    tokenizer: Tokenizer
    block_size: int
    shift: bool
    mask_epsilon: float | None
    dtype: str

    def __post_init__(self) -> None:
        tables.table(self.config)
        if self.is_diffusion and self.config.mask_token_id is None:
            raise UserError("model.mask_token_id is None, allowed: an id, for a diffusion model")

    @property
    def is_diffusion(self) -> bool:
        """Whether it writes by denoising."""
        return self.mask_epsilon is not None

    @property
    def class_name(self) -> str:
        """Its class in the remote code."""
        return "JaxlmForMaskedDiffusion" if self.is_diffusion else "JaxlmForCausalLM"


@contextmanager
def whole_or_nothing(out: Path) -> Iterator[Path]:
    """A directory beside `out` that gets its name when the block ends well, and is removed when it does not.

    Raises UserError where `out` is not new or empty, or cannot be made.
    """
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise UserError(f"--out={out} is not empty, allowed: a new or empty directory")
    temporary = out.with_name(f".{out.name}.tmp-{os.getpid()}")
    try:
        temporary.mkdir(parents=True)
    except OSError as error:
        raise UserError(f"--out={out} cannot be made ({error.strerror}), allowed: a new or empty directory") from None
    try:
        yield temporary
        os.rename(temporary, out)  # also onto an empty directory, and never onto another
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def write(release: Release, card: str, out: Path) -> None:
    """Writes all files into the existing directory `out`."""
    tensors = to_hugging_face(tables.table(release.config), release.params)
    tensors = {name: tensor.astype(DTYPES[release.dtype]) for name, tensor in tensors.items()}
    save_file(tensors, out / WEIGHTS, metadata={"format": "pt"})
    _write_json(out / CONFIG, config_json(release))
    _write_json(out / GENERATION_CONFIG, generation_json(release))
    release.tokenizer.save(out)
    for file in remote_files():
        shutil.copyfile(file, out / file.name)
    (out / CARD).write_text(card, "utf-8")


def rounded(params: Tree, dtype: str) -> Tree:
    """The fp32 values that weights of `dtype` can hold, as NumPy arrays."""
    return from_paths({path: np.asarray(leaf).astype(DTYPES[dtype]).astype(np.float32) for path, leaf in paths(params)})


def remote_files() -> list[Path]:
    """The PyTorch code that travels with the weights."""
    return sorted(Path(remote.__path__[0]).glob("*_jaxlm.py"))


def config_json(release: Release) -> dict[str, Any]:
    """The fields of `configuration_jaxlm.JaxlmConfig`; names as in Dhara-70M's config.json where it has them."""
    config, end_of_text = release.config, release.tokenizer.end_of_text_id
    return {
        "model_type": "jaxlm",
        "architectures": [release.class_name],
        "auto_map": {
            "AutoConfig": "configuration_jaxlm.JaxlmConfig",
            "AutoModel": "modeling_jaxlm.JaxlmModel",
            "AutoModelForCausalLM": f"modeling_jaxlm.{release.class_name}",
        },
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
        "layer_pattern": config.layer_pattern,
        "sliding_window": config.sliding_window or None,
        "canon_set": config.canon_set,
        "canon_kernel": config.canon_kernel,
        "canon_residual": config.canon_residual,
        "canon_bias": config.canon_bias,
        "canon_activation": config.canon_activation,
        "canon_d_width": config.canon_d_width,
        "attention_block_size": release.block_size,
        "shift": release.shift,
        "tokenizer_size": release.tokenizer.vocab_size,
        "mask_token_id": config.mask_token_id,
        "mask_epsilon": release.mask_epsilon,
        "pad_token_id": end_of_text,
        "bos_token_id": end_of_text,
        "eos_token_id": end_of_text,
        "use_cache": not release.is_diffusion,
        "dtype": release.dtype,
    }


def generation_json(release: Release) -> dict[str, Any]:
    """Where a text ends, and what fills a row behind its end."""
    end_of_text = release.tokenizer.end_of_text_id
    return {
        "bos_token_id": end_of_text,
        "eos_token_id": end_of_text,
        "pad_token_id": end_of_text,
        "use_cache": not release.is_diffusion,
    }


def _write_json(path: Path, values: dict[str, Any]) -> None:
    path.write_text(json.dumps(values, indent=2) + "\n", "utf-8")
