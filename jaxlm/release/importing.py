"""A Hugging Face directory, or a GGUF file, as a model of ours."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jaxlm.config import ObjectiveConfig
from jaxlm.data.tokenizer import Tokenizer
from jaxlm.errors import UserError
from jaxlm.families import build_model
from jaxlm.fields import build, to_dict
from jaxlm.layers.parameters import Tree
from jaxlm.model_config import ModelConfig
from jaxlm.release import tables
from jaxlm.release.formats import only
from jaxlm.release.gguf import read_gguf
from jaxlm.release.mapping import from_hugging_face
from jaxlm.release.weights import parameters_of, read_tensors, sha256, weight_files

CONFIG = "config.json"


@dataclass(frozen=True)
class Imported:
    """What was read.

    Attributes:
      config: the architecture, resolved, the mask token filled in if the model has one.
      objective: who sees whom and what the logits mean.
      params: nested dict of fp32 NumPy arrays.
      tokenizer: the model's own.
      class_name: what the directory calls it.
      source_sha256: of the file of weights; see `weights.sha256` for several.
      warnings: one line each, for the user.
    """

    config: ModelConfig
    objective: ObjectiveConfig
    params: Tree
    tokenizer: Tokenizer
    class_name: str
    source_sha256: str
    warnings: tuple[str, ...]


def read_model(path: Path) -> Imported:
    """Reads a directory with config.json, safetensors and tokenizer, one with a GGUF file, or such a file.

    Weights in half precision become the fp32 numbers that they are. Raises UserError, naming field or tensor, for
    whatever jaxlm cannot represent exactly.
    """
    if (file := _gguf_file(path)) is not None:
        values, tensors, tokenizer = read_gguf(file)
        files = [file]
    else:
        values, files = read_config(path), weight_files(path)
        tensors, tokenizer = read_tensors(files), Tokenizer.load(path)
    try:
        if file is None:  # what comes from a GGUF file is no longer quantised, whatever its configuration says
            only(values, quantization_config=None)
        found = tables.of_config_json(values)
        config, objective = found.from_config(values)
        config = build(ModelConfig, to_dict(config))  # which checks the types
    except UserError:
        raise
    except (TypeError, ValueError, AttributeError, LookupError) as error:
        raise UserError(f"config.json of {path} has a field of the wrong type ({error})") from error
    if tokenizer.vocab_size > config.vocab_size:
        raise UserError(
            f"the tokenizer of {path} has {tokenizer.vocab_size} ids, allowed: at most vocab_size = {config.vocab_size}"
        )
    if file is not None and config.num_experts:
        raise UserError(f"{file} holds a mixture of experts, allowed: one as model.safetensors")
    params = from_hugging_face(
        found.table(config),
        parameters_of(tensors, found, tied=config.tie_embeddings),
        build_model(config).abstract_params(),
    )
    name = (values.get("architectures") or [found.name])[0]
    return Imported(config, objective, params, tokenizer, name, sha256(files), _warnings(config, tokenizer))


def read_config(directory: Path) -> dict[str, Any]:
    """The config.json of a directory, or UserError."""
    file = directory / CONFIG
    if not file.is_file():
        raise UserError(f"{directory} has no {CONFIG}, allowed: a Hugging Face directory, or a .gguf file")
    try:
        values = json.loads(file.read_text("utf-8"))
    except ValueError as error:
        raise UserError(f"{file} cannot be read as JSON ({error})") from None
    if not isinstance(values, Mapping):
        raise UserError(f"{file} holds {type(values).__name__} {values!r:.40}, allowed: a JSON object")
    return dict(values)


def _gguf_file(path: Path) -> Path | None:
    """The file, if `path` is one or a directory with nothing better; None for a directory with a config.json."""
    if path.is_file():
        if path.suffix != ".gguf":
            raise UserError(f"{path} is a file, allowed: a directory, or a file that ends in .gguf")
        return path
    if not path.is_dir():
        raise UserError(f"{path} does not exist, allowed: a Hugging Face directory, or a .gguf file")
    files = sorted(path.glob("*.gguf"))
    if not files or (path / CONFIG).is_file():
        return None
    if len(files) > 1:
        raise UserError(f"{path} has {len(files)} .gguf files, allowed: one, or the path of the one that is meant")
    return files[0]


def _warnings(config: ModelConfig, tokenizer: Tokenizer) -> tuple[str, ...]:
    mask = config.mask_token_id
    if mask is None or mask >= tokenizer.vocab_size:
        return ()
    what = "the end-of-text token" if mask == tokenizer.end_of_text_id else "a token of the text"
    written = tokenizer.decode([mask])
    return (f"mask_token_id {mask} is also {what}, {written!r}: it is never written, and read as a mask",)
