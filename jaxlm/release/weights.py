"""The weights of a Hugging Face directory: safetensors, in one file or in several, as fp32."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from jaxlm.errors import UserError
from jaxlm.release.formats import Format
from jaxlm.release.mapping import Tensors

WEIGHTS, INDEX = "model.safetensors", "model.safetensors.index.json"
EXACT = ("float32", "float16", "bfloat16")  # every value of these is one of fp32
PICKLES = ("pytorch_model.bin", "pytorch_model.bin.index.json")
_CHUNK = 1 << 24


def weight_files(directory: Path) -> list[Path]:
    """The safetensors files of a model, sorted. Raises UserError where there are none, or one of several is missing."""
    if (directory / WEIGHTS).is_file():
        return [directory / WEIGHTS]
    if not (directory / INDEX).is_file():
        if any((directory / name).is_file() for name in PICKLES):
            raise UserError(
                f"{directory} has its weights as pickle, which can run any code, allowed: safetensors (load it with "
                f"transformers where you trust it, and save it again: model.save_pretrained(DIR))"
            )
        raise UserError(f"{directory} has no weights, allowed: a directory with {WEIGHTS}, or one .gguf file")
    try:
        names = set(json.loads((directory / INDEX).read_text("utf-8"))["weight_map"].values())
        files = sorted(directory / name for name in names)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        raise UserError(f"{directory / INDEX} is no index of weights, allowed: one with a weight_map") from None
    for file in files:
        if not file.is_file():
            raise UserError(f"{directory} lacks {file.name}, allowed: all {len(files)} files of {INDEX}")
    return files


def read_tensors(files: Sequence[Path]) -> Tensors:
    """All tensors by name, as they are stored. Raises UserError for a damaged file, or a dtype that NumPy has not."""
    from safetensors import SafetensorError
    from safetensors.numpy import load_file

    out: Tensors = {}
    for file in files:
        try:
            out |= load_file(file)
        except (SafetensorError, OSError) as error:
            raise UserError(f"{file} cannot be read as safetensors ({error})") from None
        except (AttributeError, KeyError, TypeError) as error:  # what the library raises for a dtype it does not know
            raise UserError(f"{file} has a dtype that cannot be read ({error}), allowed: {', '.join(EXACT)}") from None
    return out


def parameters_of(tensors: Mapping[str, np.ndarray], found: Format, *, tied: bool) -> Tensors:
    """The tensors that the table of a format names, fp32: without buffers, without a tied head, every name in full.

    Raises UserError for a head that is stored, should be the embedding, and is not, and for a dtype whose values fp32
    does not hold.
    """
    head, embedding = found.head
    whole = any(name.startswith(found.trunk) for name in tensors)
    out = {name if whole or name == head else found.trunk + name: tensor for name, tensor in tensors.items()}
    out = {name: tensor for name, tensor in out.items() if not re.fullmatch(found.buffers, name)}
    for name, tensor in out.items():
        if str(tensor.dtype) not in EXACT:
            raise UserError(f"tensor {name} is {tensor.dtype}, allowed: {', '.join(EXACT)}")
    out = {name: tensor.astype(np.float32, copy=False) for name, tensor in out.items()}
    if tied and head in out and embedding in out and not np.array_equal(stored := out.pop(head), out[embedding]):
        raise UserError(
            f"tensor {head} {list(stored.shape)} is not {embedding}, allowed: the same, for tie_word_embeddings is true"
        )
    return out


def sha256(files: Sequence[Path]) -> str:
    """Of the one file; of several, of the lines `digest  name` of each, as `sha256sum` prints them."""
    digests = []
    for file in files:
        digest = hashlib.sha256()
        with file.open("rb") as stream:
            while chunk := stream.read(_CHUNK):
                digest.update(chunk)
        digests.append(digest.hexdigest())
    if len(files) == 1:
        return digests[0]
    lines = "".join(f"{digest}  {file.name}\n" for digest, file in zip(digests, files, strict=True))
    return hashlib.sha256(lines.encode()).hexdigest()
