"""A GGUF file, read by transformers: its weights, which may be quantised, as the fp32 that they stand for."""

from __future__ import annotations

import importlib.util
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from jaxlm.data.tokenizer import Tokenizer
from jaxlm.errors import UserError
from jaxlm.release.mapping import Tensors


def read_gguf(file: Path) -> tuple[dict[str, Any], Tensors, Tokenizer]:
    """The config.json, tensors and tokenizer that transformers makes of a GGUF file.

    Raises UserError for a file that it cannot read, and where a package is missing.
    """
    for name in ("accelerate", "gguf", "torch", "transformers"):
        if importlib.util.find_spec(name) is None:
            raise UserError(
                f"{file.name} needs the package {name}, allowed: pip install 'jaxlm[hf]', or a directory with "
                "model.safetensors"
            )
    import torch
    import transformers

    transformers.utils.logging.disable_progress_bar()
    where: dict[str, Any] = {"pretrained_model_name_or_path": str(file.parent), "gguf_file": file.name}
    try:
        model: Any = transformers.AutoModelForCausalLM.from_pretrained(**where, dtype=torch.float32)
        backend: Any = transformers.AutoTokenizer.from_pretrained(**where)
    except Exception as error:  # of every kind: the file is somebody else's, and so is the code that reads it
        said = str(error).strip().splitlines() or [type(error).__name__]
        raise UserError(f"{file} cannot be read as GGUF ({said[0]})") from None
    values = model.config.to_dict() | {"architectures": [type(model).__name__]}
    tensors = {name: np.asarray(tensor.numpy()) for name, tensor in model.state_dict().items()}
    with tempfile.TemporaryDirectory() as scratch:
        backend.save_pretrained(scratch)
        return values, tensors, Tokenizer.load(scratch)
