"""Windows that are cut to a random length in training, so that a model meets texts of every length (LLaDA).

LLaDA (arXiv 2502.09992, section 2.2) cuts 1 % of its sequences to a length drawn evenly from [1, L]. Shapes stay: what
lies behind the cut is neither scored nor masked, and is a document of its own, which the rest does not see. Only the
balance of routed experts still counts it, as it counts padding. Legend: B rows, T positions.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

from jaxlm.objectives.draws import Draw
from jaxlm.randomness import per_row

_BEHIND = -1  # the documents of a window have the numbers from 0 on


def kept_positions(crop_share: float, key: jax.Array, rows_B: jax.Array, length: int) -> jax.Array:
    """Which positions are left of each row, the first n of T = `length`: bool [B, T].

    A row is cut with probability `crop_share`; then n is even over 1..T, else T. A function of the step's key and the
    row's position in the global batch.
    """

    def kept_T(row_key: jax.Array) -> jax.Array:
        whether, where = jax.random.split(row_key)
        is_cut = jax.random.uniform(whether) < crop_share
        n = jnp.where(is_cut, jax.random.randint(where, (), 1, length + 1), length)
        return jnp.arange(length) < n

    return jax.vmap(kept_T)(per_row(jax.random.fold_in(key, Draw.CROPS), rows_B))


def cut_off(segments_BT: jax.Array | None, kept_BT: jax.Array) -> jax.Array:
    """The documents (None: one) of cut rows: int32 [B, T]. What is cut is one that no other position belongs to."""
    return jnp.where(kept_BT, 0 if segments_BT is None else segments_BT, _BEHIND)
