"""The files of a release: weights, configuration, tokenizer, model card, and the PyTorch code if it needs its own.

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

from jaxlm.config import ObjectiveConfig
from jaxlm.errors import UserError
from jaxlm.layers.parameters import Tree, from_paths, paths
from jaxlm.model_config import ModelConfig
from jaxlm.release import remote
from jaxlm.release.formats import Format
from jaxlm.release.mapping import to_hugging_face
from jaxlm.release.tables.remote import reading

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
      config: of the model, resolved, the mask token filled in.
      params: nested dict of fp32 arrays, `rounded` to dtype.
      tokenizer: `save` writes files that AutoTokenizer reads, with a pad token, padding on the left.
      objective: who sees whom when the model reads a text, and what the logits mean.
      format: what it is written as, see `tables.choose`.
      dtype: of the weights on disk, a key of DTYPES.
    """

    config: ModelConfig
    params: Tree
    tokenizer: Tokenizer
    objective: ObjectiveConfig
    format: Format
    dtype: str

    def __post_init__(self) -> None:
        if self.is_diffusion and self.config.mask_token_id is None:
            raise UserError("model.mask_token_id is None, allowed: an id, for a diffusion model")

    @property
    def is_diffusion(self) -> bool:
        """Whether it writes by denoising."""
        return self.objective.kind == "diffusion"

    @property
    def class_name(self) -> str:
        """Its class in transformers, or in the code that travels with it."""
        return reading(self.objective)["architectures"][0] if self.format.remote_code else self.format.name

    @property
    def never_generated(self) -> list[int]:
        """The ids that no text holds: those outside the tokenizer, and the mask token."""
        mask, known = self.config.mask_token_id, self.tokenizer.vocab_size
        outside = list(range(known, self.config.vocab_size))
        return outside if mask is None or mask >= known else [mask, *outside]


@contextmanager
def whole_or_nothing(out: Path, flag: str = "--out") -> Iterator[Path]:
    """A directory beside `out` that gets its name when the block ends well, and is removed when it does not.

    Raises UserError, with the `flag` that named it, where `out` is not new or empty, or cannot be made.
    """
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise UserError(f"{flag}={out} is not empty, allowed: a new or empty directory")
    temporary = out.with_name(f".{out.name}.tmp-{os.getpid()}")
    try:
        temporary.mkdir(parents=True)
    except OSError as error:
        raise UserError(f"{flag}={out} cannot be made ({error.strerror}), allowed: a new or empty directory") from None
    try:
        yield temporary
        os.rename(temporary, out)  # also onto an empty directory, and never onto another
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def write(release: Release, card: str, out: Path) -> None:
    """Writes all files into the existing directory `out`."""
    tensors = to_hugging_face(release.format.table(release.config), release.params)
    tensors = {name: tensor.astype(DTYPES[release.dtype], copy=False) for name, tensor in tensors.items()}
    save_file(tensors, out / WEIGHTS, metadata={"format": "pt"})
    _write_json(out / CONFIG, config_json(release))
    _write_json(out / GENERATION_CONFIG, generation_json(release))
    release.tokenizer.save(out)
    for file in remote_files() if release.format.remote_code else ():
        shutil.copyfile(file, out / file.name)
    (out / CARD).write_text(card, "utf-8")


def rounded(params: Tree, dtype: str) -> Tree:
    """The fp32 values that weights of `dtype` can hold, as NumPy arrays."""

    def values(leaf: Any) -> np.ndarray:
        return np.asarray(leaf).astype(DTYPES[dtype], copy=False).astype(np.float32, copy=False)

    return from_paths({path: values(leaf) for path, leaf in paths(params)})


def remote_files() -> list[Path]:
    """The PyTorch code that travels with the weights."""
    return sorted(Path(remote.__path__[0]).glob("*_jaxlm.py"))


def config_json(release: Release) -> dict[str, Any]:
    """config.json: what the model is, which class runs it, and the special tokens."""
    assert release.format.to_config is not None
    end_of_text = release.tokenizer.end_of_text_id
    values = {
        "model_type": release.format.model_type,
        "architectures": [release.class_name],
        **release.format.to_config(release.config),
        "bos_token_id": end_of_text,
        "eos_token_id": end_of_text,
        # A padding id here would take that token's embedding out of any training with transformers' own classes.
        "pad_token_id": end_of_text if release.format.remote_code else None,
        "use_cache": not release.is_diffusion,
        "dtype": release.dtype,
    }
    if not release.format.remote_code:
        return values
    auto_map = {
        "AutoConfig": "configuration_jaxlm.JaxlmConfig",
        "AutoModel": "modeling_jaxlm.JaxlmModel",
        "AutoModelForCausalLM": f"modeling_jaxlm.{release.class_name}",
    }
    return values | reading(release.objective) | {"auto_map": auto_map, "tokenizer_size": release.tokenizer.vocab_size}


def generation_json(release: Release) -> dict[str, Any]:
    """Where a text ends, what fills a row behind its end, and what is no text at all; our own code knows the last."""
    end_of_text = release.tokenizer.end_of_text_id
    values: dict[str, Any] = {f"{role}_token_id": end_of_text for role in ("bos", "eos", "pad")}
    values["use_cache"] = not release.is_diffusion
    if not release.format.remote_code and release.never_generated:
        values["suppress_tokens"] = release.never_generated
    return values


def _write_json(path: Path, values: dict[str, Any]) -> None:
    path.write_text(json.dumps(values, indent=2) + "\n", "utf-8")
