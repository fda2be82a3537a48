"""What a loss is compared with: two compressors and a model of single tokens, on exactly the scored text.

Windows come here as the tokens that are scored, one int array a window (`likelihood.scored_tokens`).
N windows, V ids of the tokenizer.
"""

from __future__ import annotations

import gzip
import lzma
from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt

from jaxlm.evaluation.statistics import Array, Score

Tokens = npt.NDArray[np.integer[Any]]


def gzip_size(text: bytes) -> int:
    """Bytes that `gzip -9` makes of `text`, its header included."""
    return len(gzip.compress(text, compresslevel=9, mtime=0))


def xz_size(text: bytes) -> int:
    """Bytes that `xz -9` makes of `text`, its header included."""
    return len(lzma.compress(text, preset=9))


def count_tokens(windows: Iterable[Tokens], vocab_size: int) -> npt.NDArray[np.int64]:
    """How often each token is scored in `windows`: int64 [V]."""
    counts_V = np.zeros(vocab_size, np.int64)
    for tokens in windows:
        counts_V += np.bincount(tokens, minlength=vocab_size)
    return counts_V


def token_frequency_nats(counts_V: npt.NDArray[np.int64]) -> Array:
    """Nats of each token under its frequency with one added to every count (Laplace): float64 [V]."""
    return -np.log((counts_V + 1) / (counts_V.sum() + len(counts_V)))


def token_frequency(counts_V: npt.NDArray[np.int64], windows: Iterable[Tokens], token_bytes_V: Tokens) -> Score:
    """What `windows` cost under the token frequencies of other windows, `counts_V`."""
    nats_V = token_frequency_nats(counts_V)
    sums = [(nats_V[tokens].sum(), len(tokens), token_bytes_V[tokens].sum()) for tokens in windows]
    nats_N, tokens_N, bytes_N = np.asarray(sums, np.float64).T
    return Score(nats_N, tokens_N, bytes_N)


def summary(frequency: Score, text: bytes) -> dict[str, dict[str, Any]]:
    """The baselines as `evaluate` writes them. Without a byte of text there are no bits per byte."""
    loss, bits = frequency.nats_per_token, frequency.bits_per_byte
    out: dict[str, dict[str, Any]] = {
        "token_frequency": {
            "loss": loss.value,
            "stderr": loss.stderr,
            "bits_per_byte": bits.value if bits else None,
            "bits_per_byte_stderr": bits.stderr if bits else None,
        }
    }
    for name, size in (("xz", xz_size(text)), ("gzip", gzip_size(text))):
        out[name] = {"compressed_bytes": size, "bits_per_byte": 8 * size / len(text) if text else None}
    return out
