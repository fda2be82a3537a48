"""Noise on the embeddings of masked tokens in the first steps of a conversion (LLaDA2.0).

LLaDA2.0 (arXiv 2512.15745, section 7.1): the row of the mask token was never trained and has decayed to nearly zero,
so equal masks everywhere make gradients explode; independent Gaussian noise on what the embedding gives for them keeps
them apart until the row has grown. Legend: B rows, T positions, D width.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

from jaxlm.objectives.draws import Draw
from jaxlm.randomness import per_row


def mask_noise(
    std: float,
    num_steps: int,
    key: jax.Array,
    rows_B: jax.Array,
    step: int | jax.Array,
    hidden_BT: jax.Array,
    width: int,
) -> jax.Array:
    """What is added to the embeddings at an update: fp32 [B, T, D], D = `width`.

    Zero where `hidden_BT` (bool: the input is the mask token) is False, and from update `num_steps` (of 0, 1, ...) on.
    A function of the step's key and the row's position in the global batch.
    """
    T = hidden_BT.shape[1]
    draw = jax.vmap(lambda row_key: jax.random.normal(row_key, (T, width)))
    noise_BTD = draw(per_row(jax.random.fold_in(key, Draw.EMBEDDINGS), rows_B))
    return jnp.where(hidden_BT[:, :, None] & (jnp.asarray(step) < num_steps), std * noise_BTD, 0.0)
