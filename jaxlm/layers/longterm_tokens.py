"""Learned vectors that every segment ends with: places where a model can put what the segment was about.

The sequence gets longer: behind each full segment of tokens follow the vectors. They are read before the token that
comes next, so a row that ends with a segment ends without them.
Legend: B rows, b tokens, e positions of the longer sequence, D width, m vectors a segment.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx
from jax.typing import DTypeLike

from jaxlm.layers.parameters import Normal, parameter


class LongTermTokens(nnx.Module):
    """`count` vectors behind each `segment_len` tokens (lucidrains' titans-pytorch, `num_longterm_mem_tokens`)."""

    def __init__(self, count: int, segment_len: int, width: int, *, std: float, dtype: DTypeLike) -> None:
        self.table = parameter((count, width), Normal(std), (None, "embed"))
        self.count, self.segment_len, self.dtype = count, segment_len, jnp.dtype(dtype)

    def lengthened(self, tokens: Any) -> Any:
        """How many positions so many tokens take: int or int array."""
        return tokens + (tokens - (tokens > 0)) // self.segment_len * self.count

    def _size(self, b: int, before_B: Any) -> int:
        """Positions that b tokens need: just those at the start of a row, as many as there may be elsewhere."""
        return (
            int(self.lengthened(b)) if isinstance(before_B, int) else b + (1 + (b - 1) // self.segment_len) * self.count
        )

    def _token(self, b: int, before_B: Any) -> tuple[jax.Array, jax.Array]:
        """For each position: its place in the segment with its vectors, and the token at or before it; int32 [B, e]."""
        before_B1 = jnp.atleast_1d(jnp.asarray(before_B, jnp.int32))[:, None]
        position_Be = self.lengthened(before_B1) + jnp.arange(self._size(b, before_B), dtype=jnp.int32)
        segment_Be, place_Be = jnp.divmod(position_Be, self.segment_len + self.count)
        token_Be = segment_Be * self.segment_len + jnp.minimum(place_Be, self.segment_len - 1)
        return place_Be, token_Be - before_B1

    def weave(self, x_BbD: jax.Array, before_B: Any = 0) -> jax.Array:
        """[B, b, D], behind `before_B` tokens (int32 [B], or the int 0), to the longer sequence, [B, e, D].

        Positions past the last real token repeat something; whoever reads them must know how many are real.
        """
        place_Be, token_Be = self._token(x_BbD.shape[1], before_B)
        vector_BeD = self.table[...].astype(self.dtype)[jnp.maximum(place_Be - self.segment_len, 0)]
        return jnp.where((place_Be < self.segment_len)[..., None], _rows(x_BbD, token_Be), vector_BeD)

    def weave_segments(self, segments_BT: jax.Array) -> jax.Array:
        """Document numbers of the longer sequence: a vector belongs to the document of the token before it."""
        _, token_Be = self._token(segments_BT.shape[1], 0)
        return _rows(segments_BT, token_Be)

    def unweave(self, x_BeD: jax.Array, b: int, before_B: Any = 0) -> jax.Array:
        """The positions of the b tokens, [B, b, D]."""
        before_B1 = jnp.atleast_1d(jnp.asarray(before_B, jnp.int32))[:, None]
        token_Bb = before_B1 + jnp.arange(b, dtype=jnp.int32)
        return _rows(x_BeD, token_Bb + token_Bb // self.segment_len * self.count - self.lengthened(before_B1))


def _rows(x: jax.Array, index: jax.Array) -> jax.Array:
    """x[b, index[b or 0, i]]; what would lie outside is the nearest that there is."""
    index = jnp.clip(index, 0, x.shape[1] - 1)
    if len(index) == 1:
        return jnp.take(x, index[0], axis=1)
    return jax.vmap(lambda row, i: row[i])(x, index)
