"""A model of the Hugging Face hub, as a directory."""

from __future__ import annotations

from pathlib import Path

from jaxlm.errors import UserError

# Nothing that could run: no code, no pickle.
PATTERNS = ("config.json", "generation_config.json", "*.safetensors", "model.safetensors.index.json")
TOKENIZER_PATTERNS = ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "vocab.json", "merges.txt")


def directory_of(name: str) -> Path:
    """The directory of `name`: a path that exists, or the snapshot of the hub's model `owner/name`.

    Raises UserError for what is neither, and where the hub does not answer and the files are not in its cache.
    """
    if Path(name).exists():
        return Path(name)
    if name.count("/") != 1 or name.startswith((".", "/")) or name.endswith("/"):
        raise UserError(f"--model={name} does not exist, allowed: a directory, a .gguf file, or a hub id OWNER/NAME")
    from huggingface_hub import snapshot_download

    try:
        return Path(snapshot_download(name, allow_patterns=[*PATTERNS, *TOKENIZER_PATTERNS]))
    # Whatever goes wrong on the way to the hub, the user can do one and the same thing about it.
    except Exception as error:
        raise UserError(
            f"--model={name} is no directory here, and the hub gave no such model ({type(error).__name__}); allowed: a "
            "directory with its config.json, model.safetensors (or the shards with model.safetensors.index.json), "
            "tokenizer.json and tokenizer_config.json"
        ) from None
