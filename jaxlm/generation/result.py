"""What a decoder returns, the checks that both decoders share, and their clock."""

from __future__ import annotations

import functools
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
      seconds_to_first_token: until the leftmost new token was final; the passes of one compiled loop, which are not
        timed singly, share its time.
      seconds_to_first_pass: until the first pass that writes had ended.
      cache_bytes: of the keys, values and other inputs that are kept, of all rows.
      logits_bytes: of the logits (fp32) of one pass, of all rows.
      committed_at: for each token, the pass (from 0) in which it was written, for the last time where revision wrote
        it more than once.
      changed_share: of the places that were written, the share whose token is not the first one written there.
    """

    token_ids: list[int]
    passes: int
    cache_passes: int
    seconds: float
    seconds_to_first_token: float
    seconds_to_first_pass: float
    cache_bytes: int
    logits_bytes: int
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


def num_bytes(tree: Any) -> int:
    """Of all arrays of a tree."""
    return sum(leaf.nbytes for leaf in jax.tree.leaves(tree))


def pad_right(rows: Sequence[Sequence[int]], width: int) -> np.ndarray:
    """int32 [B, width], zeros behind each row."""
    out = np.zeros((len(rows), width), np.int32)
    for i, row in enumerate(rows):
        out[i, : len(row)] = row
    return out


def round_up(size: int, multiple: int) -> int:
    """The next multiple: what is attended to costs time, so where that counts, lengths are compiled in small steps."""
    return -(-size // multiple) * multiple


def bucket(size: int, least: int = 16) -> int:
    """The next power of two, so that few lengths are compiled."""
    return max(least, 1 << (size - 1).bit_length())


class Timeline:
    """Calls of functions that are compiled before they are called, and when each pass in them ended."""

    def __init__(self) -> None:
        self._calls: list[tuple[float, int]] = []  # seconds and passes

    def run(self, function: Callable[..., Any], *args: Any, passes: int = 0, **static: Any) -> Any:
        """The result of a pure, hashable function of arrays, which is given `static` as keywords.

        `passes` is how many the call makes, if that is known before; else see `took`.
        """
        leaves, tree = jax.tree.flatten(args)
        shapes = tuple(jax.ShapeDtypeStruct(np.shape(leaf), leaf.dtype) for leaf in leaves)
        compiled = _compiled(function, tuple(static.items()), tree, shapes)
        start = time.perf_counter()
        out = jax.block_until_ready(compiled(*args))
        self._calls.append((time.perf_counter() - start, passes))
        return out

    def took(self, passes: int) -> None:
        """Says how many passes the last call made."""
        self._calls[-1] = (self._calls[-1][0], passes)

    @property
    def seconds(self) -> float:
        """Of all calls."""
        return sum(seconds for seconds, _ in self._calls)

    def until(self, number: int) -> float:
        """Seconds until this pass, counted from 1, had ended; the passes of one call take equal parts of it."""
        before = 0.0
        for seconds, passes in self._calls:
            if passes >= number:
                return before + seconds * number / passes
            before, number = before + seconds, number - passes
        raise ValueError(f"no pass {number} follows those that were made")


@functools.lru_cache(maxsize=64)
def _compiled(function: Callable[..., Any], static: tuple[Any, ...], tree: Any, shapes: tuple[Any, ...]) -> Any:
    """Ahead of time, which keeps the first call honest: jax.jit would count compilation into it."""
    jitted = jax.jit(functools.partial(function, **dict(static)))
    return jitted.lower(*jax.tree.unflatten(tree, shapes)).compile()


def forget_compiled() -> None:
    """Lets go of what decodes, and of the models that it was compiled for."""
    _compiled.cache_clear()
