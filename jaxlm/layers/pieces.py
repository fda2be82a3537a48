"""A sequence in pieces of fixed length on the absolute grid of the row, and the cache of a part that works on them.

Such a part goes over whole pieces with a state, `step(state, items) -> (state', y)`, or sees nothing outside a piece
and needs no state. Its cache holds what the piece that is not finished has so far, and is cut at the last finished one.
Legend: B rows, T positions, b new positions, U positions of a piece, n pieces.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

Items = Any  # tree of arrays [B, T, ...]
State = Any  # tree of arrays [B, ...]
Step = Callable[[State, Items], tuple[State, jax.Array]]


def split(items: Items, unit: int) -> Items:
    """[B, T, ...] to [n, B, U, ...]; the last piece is filled up with zeros."""

    def one(x: jax.Array) -> jax.Array:
        n = -(-x.shape[1] // unit)
        x = jnp.pad(x, ((0, 0), (0, n * unit - x.shape[1]), *(((0, 0),) * (x.ndim - 2))))
        return x.reshape(x.shape[0], n, unit, *x.shape[2:]).swapaxes(0, 1)

    return jax.tree.map(one, items)


def join(x: jax.Array, length: int) -> jax.Array:
    """[n, B, U, ...] to the first `length` positions, [B, T, ...]."""
    x = x.swapaxes(0, 1)
    return x.reshape(x.shape[0], -1, *x.shape[3:])[:, :length]


def whole(step: Step, state: State, items: Items, unit: int) -> jax.Array:
    """Goes over all pieces: y [B, T, ...]. The backward pass does a piece again and keeps only the states between."""
    length = jax.tree.leaves(items)[0].shape[1]
    _, y = jax.lax.scan(jax.checkpoint(step, prevent_cse=False), state, split(items, unit))
    return join(y, length)


def empty(like: Items, batch: int, unit: int) -> Items:
    """The items of an unfinished piece before the first position: zeros [B, U, ...] in the shapes of `like`."""
    return jax.tree.map(lambda x: jnp.zeros((batch, unit, *x.shape), x.dtype), like)


def write(held: Items, new: Items, length_B: jax.Array) -> tuple[Items, jax.Array]:
    """New items [B, b, ...] behind those of the unfinished piece.

    Returns the buffer [B, n U, ...], whose first position starts a piece in every row, and where the new ones begin in
    it, int32 [B]. What lies behind them is whatever it was; no real position may look there.
    """
    unit, b = jax.tree.leaves(held)[0].shape[1], jax.tree.leaves(new)[0].shape[1]
    at_B = length_B % unit
    size = -(-(unit - 1 + b) // unit) * unit

    def one(old: jax.Array, x: jax.Array) -> jax.Array:
        old = jnp.pad(old, ((0, 0), (0, size - unit), *(((0, 0),) * (old.ndim - 2))))
        return jax.vmap(lambda row, new, at: jax.lax.dynamic_update_slice_in_dim(row, new, at, axis=0))(old, x, at_B)

    return jax.tree.map(one, held, new), at_B


def take(x: jax.Array, at_B: jax.Array, size: int) -> jax.Array:
    """The positions [at, at + size) of each row: [B, S, ...] to [B, size, ...]."""
    return jax.vmap(lambda row, at: jax.lax.dynamic_slice_in_dim(row, at, size, axis=0))(x, at_B)


def cut(buffer: Items, done_B: jax.Array, unit: int) -> Items:
    """The piece after `done_B` finished ones: [B, U, ...] of what `write` gave."""

    def one(x: jax.Array) -> jax.Array:
        # All pieces may be finished: then there is nothing behind them, and nothing is what the next one starts with.
        return take(jnp.pad(x, ((0, 0), (0, unit), *(((0, 0),) * (x.ndim - 2)))), done_B * unit, unit)

    return jax.tree.map(one, buffer)


def extend(step: Step, state: State, held: Items, new: Items, length_B: jax.Array) -> tuple[jax.Array, dict[str, Any]]:
    """`whole`, for new positions after `length_B` accepted ones.

    Args:
      state: at the start of the unfinished piece.
      held: the items of that piece, [B, U, ...].
      new: those of the new positions, [B, b, ...].

    Returns:
      y of the new positions [B, b, ...], and a proposal for `commit`.
    """
    unit, b = jax.tree.leaves(held)[0].shape[1], jax.tree.leaves(new)[0].shape[1]
    buffer, at_B = write(held, new, length_B)

    def keep(state: State, items: Items) -> tuple[State, Any]:
        after, y = step(state, items)
        return after, (after, y)

    _, (states, y) = jax.lax.scan(keep, state, split(buffer, unit))
    y = take(join(y, len(y) * unit), at_B, b)
    states = jax.tree.map(lambda first, later: jnp.concatenate([first[None], later]), state, states)
    return y, {"states": states, "buffer": buffer, "at": at_B}


def commit(proposal: dict[str, Any], n_B: jax.Array, unit: int) -> tuple[State, Items]:
    """The state and the items of the unfinished piece after the first n of the new positions."""
    done_B = (proposal["at"] + n_B) // unit
    rows_B = jnp.arange(len(done_B))
    state = jax.tree.map(lambda x: x[done_B, rows_B], proposal["states"])
    return state, cut(proposal["buffer"], done_B, unit)
