"""Randomness as a pure function of (seed, purpose, step): nothing is carried, saved, or dependent on devices.

Typed threefry keys with partitionable bits: a value depends on its key and its index, not on the mesh.
"""

from __future__ import annotations

import zlib

import jax

PURPOSES = ("init", "data", "corruption", "evaluation", "continuation", "sampling")


def key(seed: int, purpose: str, step: int | jax.Array = 0) -> jax.Array:
    """The typed key (scalar) of one purpose at one step.

    Args:
      seed: the run's seed.
      purpose: one of `PURPOSES`; two purposes never share numbers.
      step: optimizer step, evaluation draw or sample number; may be traced.
    """
    assert purpose in PURPOSES, purpose
    root = jax.random.key(seed, impl="threefry2x32")
    return jax.random.fold_in(jax.random.fold_in(root, zlib.crc32(purpose.encode())), step)


def per_row(base: jax.Array, rows_B: jax.Array) -> jax.Array:
    """Keys [B], one for each position in the global batch."""
    return jax.vmap(jax.random.fold_in, (None, 0))(base, rows_B)
