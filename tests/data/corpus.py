"""A small corpus, the same every time, and the settings under which it is prepared."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from jaxlm.config import PrepareConfig

WORDS = "norms convolve arrays of small models over every device while gradients wait and the loss falls".split()


def texts(count: int) -> list[str]:
    """Different texts of 60 to 400 bytes."""
    return [" ".join(f"{WORDS[(i * j + j) % len(WORDS)]} {i}" for j in range(7 + i % 29)) + "." for i in range(count)]


def write_lines(path: Path, documents: list[str]) -> Path:
    """A JSON lines file of the texts."""
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in documents))
    return path


def settings(corpus: Path, **changes: Any) -> PrepareConfig:
    """T = 16, a vocabulary of 300, a tenth of the documents for validation."""
    fields: dict[str, Any] = {"tokenizer": "train:300", "seq_len": 16, "validation_share": 0.1, "min_bytes": 8}
    return PrepareConfig(**({"files": str(corpus)} | fields | changes))


def silent(line: str) -> None:
    """A report that nobody reads."""
