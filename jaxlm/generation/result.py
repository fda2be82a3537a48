"""What a decoder returns, and the checks that both decoders share."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from jaxlm.errors import UserError


@dataclass(frozen=True)
class Decoded:
    """The raw output for one prompt.

    Attributes:
      token_ids: the new tokens, up to an end-of-text token that ended the row; no stop string has cut them.
      passes: decoding or denoising forwards.
      cache_passes: forwards that only fill a cache.
      seconds: wall time of the whole call, compilation excluded; shared by the rows of a batch.
      seconds_to_first_token: until the leftmost new token was final.
      committed_at: for each token, the pass (from 0) in which it was written, for the last time where revision wrote
        it more than once.
      changed_share: of the places that were written, the share whose token is not the first one written there.
    """

    token_ids: list[int]
    passes: int
    cache_passes: int
    seconds: float
    seconds_to_first_token: float
    committed_at: list[int]
    changed_share: float = 0.0


def check_lengths(prompts: Sequence[Sequence[int]], max_new_tokens: int, max_positions: int) -> None:
    """Refuses what does not fit into the model's context."""
    if max_new_tokens < 1:
        raise UserError(f"--max_new_tokens is {max_new_tokens}, allowed: at least 1")
    longest = max(len(prompt) for prompt in prompts)
    if longest + max_new_tokens > max_positions:
        raise UserError(
            f"a prompt of {longest} tokens and --max_new_tokens={max_new_tokens} make {longest + max_new_tokens}, "
            f"allowed: at most model.max_positions = {max_positions}"
        )


def pad_right(rows: Sequence[Sequence[int]], width: int) -> np.ndarray:
    """int32 [B, width], zeros behind each row."""
    out = np.zeros((len(rows), width), np.int32)
    for i, row in enumerate(rows):
        out[i, : len(row)] = row
    return out


def bucket(size: int, least: int = 16) -> int:
    """The next power of two, so that few lengths are compiled."""
    return max(least, 1 << (size - 1).bit_length())


def timed(function: Callable[..., Any], *args: Any) -> tuple[Any, float]:
    """The result of a jitted function and the seconds it took, compilation apart.

    Compiling ahead of time keeps the first call honest; jax.jit would count compilation into it.
    """
    compiled = function.lower(*args).compile()  # type: ignore[attr-defined]
    start = time.perf_counter()
    out = jax.block_until_ready(compiled(*args))
    return out, time.perf_counter() - start
