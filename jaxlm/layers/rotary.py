"""Rotary position embedding, half-split layout (RoFormer, arXiv 2104.09864; transformers' `rotate_half`)."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from jaxlm.layers.recompute import recomputed


def rotate(x_BTNH: jax.Array, positions_BT: jax.Array, theta: float) -> jax.Array:
    """Rotates pairs (i, i + H/2) of each head by position * theta^(-2i/H).

    Args:
      x_BTNH: [B, T, N, H], any dtype; angles and products are fp32.
      positions_BT: int32 [B or 1, T].
      theta: base of the frequencies.

    Returns:
      [B, T, N, H] in x's dtype.
    """
    half = x_BTNH.shape[-1] // 2
    frequency = theta ** (-jnp.arange(half, dtype=jnp.float32) / half)
    angle = positions_BT.astype(jnp.float32)[:, :, None, None] * frequency

    @recomputed
    def turn(x: jax.Array, cos: jax.Array, sin: jax.Array) -> jax.Array:
        first, second = jnp.split(x.astype(jnp.float32), 2, axis=-1)
        return jnp.concatenate([first * cos - second * sin, second * cos + first * sin], axis=-1).astype(x.dtype)

    return turn(x_BTNH, jnp.cos(angle), jnp.sin(angle))
