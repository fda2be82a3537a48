"""Attention that goes from causal to all-visible over the first steps of a conversion (DiffuLLaMA).

DiffuLLaMA (arXiv 2410.17891; `anneal_steps` in its trainer): a position sees the ones before it, and each
one after it with a probability that rises evenly to 1. One draw a step, the same for all rows, heads and layers: the
one place where who sees whom is a matrix and not a rule. Legend: T positions.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

from jaxlm.objectives.draws import Draw


def annealed_attention(anneal_steps: int, key: jax.Array, step: int | jax.Array, length: int) -> jax.Array:
    """What each position sees at an update: bool [T, T], query by key, T = `length`.

    Args:
      anneal_steps: N; from the update after N-1 others on, everything is seen.
      key: of the step.
      step: int32, the updates before this one.
      length: T.
    """
    ratio = jnp.minimum(1.0, (step + 1) / anneal_steps)
    draws_TT = jax.random.uniform(jax.random.fold_in(key, Draw.ATTENTION), (length, length))
    return jnp.tri(length, dtype=bool) | (draws_TT < ratio)
