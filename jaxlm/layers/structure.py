"""Which positions may see which, as a rule instead of a matrix.

One rule has all the readings. Positions lie in blocks of `block_size` on the absolute grid of the row; a position sees
its own block and the earlier ones. Blocks of 1 are causal attention, one block of everything is bidirectional.

With two streams the row is [noisy ; clean], L positions each (BD3-LM, arXiv 2503.09573): a noisy position sees its own
noisy block and the *clean* earlier blocks, a clean position sees clean blocks up to its own.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np


@dataclass(frozen=True)
class Structure:
    """block_size: 1 causal, b block-causal, 0 bidirectional. streams: 1, or 2 for [noisy ; clean]."""

    block_size: int = 1
    streams: int = 1

    def __post_init__(self) -> None:
        assert self.block_size >= 0 and self.streams in (1, 2), self

    @property
    def causal(self) -> bool:
        """Plain left to right."""
        return self.block_size == 1 and self.streams == 1

    def block(self, index: Any) -> Any:
        """The block of each position."""
        return index // self.block_size if self.block_size else index * 0

    def visible(self, query: Any, key: Any, length: int, window: int = 0) -> Any:
        """Whether `query` sees `key`: bool, of the broadcast shape of the two index arrays (NumPy or JAX).

        Args:
          query: indices into the row, streams included.
          key: the same.
          length: L, the positions of one stream; only read with two streams.
          window: W; a query sees W-1 positions back, and ahead where it sees ahead at all; 0: no limit.
        """
        query_at, key_at = (query % length, key % length) if self.streams == 2 else (query, key)
        query_block, key_block = self.block(query_at), self.block(key_at)
        if self.streams == 2:
            query_clean, key_clean = query >= length, key >= length
            own_noisy_block = ~query_clean & ~key_clean & (query_block == key_block)
            seen = own_noisy_block | (
                key_clean & ((key_block < query_block) | (query_clean & (key_block == query_block)))
            )
        else:
            seen = key_block <= query_block
        if window:
            seen = seen & (query_at - key_at < window) & (key_at - query_at < window)
        return seen

    def key_runs(self, start: int, stop: int, size: int, window: int) -> list[tuple[int, int]]:
        """The runs [lo, hi) of keys that any query in [start, stop) of a row of `size` sees."""
        query, key = np.arange(start, stop)[:, None], np.arange(size)[None, :]
        seen = np.broadcast_to(self.visible(query, key, size // self.streams, window), (stop - start, size)).any(axis=0)
        edges = np.flatnonzero(np.diff(np.concatenate([[False], seen, [False]]).astype(np.int8)))
        return [(int(lo), int(hi)) for lo, hi in edges.reshape(-1, 2)]


def document_positions(segments_BT: jax.Array) -> jax.Array:
    """Positions counted from the start of each document: int32 [B, T]."""
    index_T = jnp.arange(segments_BT.shape[1], dtype=jnp.int32)
    starts_BT = jnp.concatenate(
        [jnp.ones_like(segments_BT[:, :1], dtype=bool), segments_BT[:, 1:] != segments_BT[:, :-1]], axis=1
    )
    return index_T - jax.lax.cummax(jnp.where(starts_BT, index_T, 0), axis=1)
