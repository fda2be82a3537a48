"""Which tokens are masked, and how likely each was to be: a function of the key and the position in the global batch.

Legend: B rows, T tokens of a row that are written (1..T of the window), b block size, R rows of the global batch.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

from jaxlm.config import ObjectiveConfig
from jaxlm.objectives.draws import Draw
from jaxlm.randomness import per_row

_GOLDEN = 0.6180339887498949


def noise_levels(
    config: ObjectiveConfig, key: jax.Array, rows_B: jax.Array, num_rows: int | jax.Array, num_blocks: int
) -> jax.Array:
    """T in [0, 1), one for each block of each row: fp32 [B, blocks].

    Stratified: (u + position / R) mod 1 over the global batch, a variance reduction of MDLM (arXiv 2406.07524); the
    blocks of one row are spread by the golden ratio, so that neither a column nor a row of blocks has a common level.
    Otherwise independent.
    """
    if config.stratified:
        start = jax.random.uniform(jax.random.fold_in(key, Draw.START), ())
        spread = rows_B[:, None] / num_rows + _GOLDEN * jnp.arange(num_blocks)
        return (start + spread) % 1.0
    return jax.vmap(lambda row_key: jax.random.uniform(row_key, (num_blocks,)))(
        per_row(jax.random.fold_in(key, Draw.LEVELS), rows_B)
    )


def corrupt(
    config: ObjectiveConfig, key: jax.Array, rows_B: jax.Array, num_rows: int | jax.Array, scored_BT: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """Independent masks at each block's level.

    The probability is p = (1 - eps) t + eps (LLaDA, arXiv 2502.09992), so no token weighs more than 1 / eps.

    Args:
      scored_BT: bool; tokens that are not scored (padding, a prompt) are never masked.

    Returns:
      masked_BT bool, p_BT fp32.
    """
    T = scored_BT.shape[1]
    block = config.block_size or T
    t = noise_levels(config, key, rows_B, num_rows, -(-T // block))
    p_BT = jnp.repeat((1.0 - config.eps) * t + config.eps, block, axis=1)[:, :T]
    draw = jax.vmap(lambda row_key: jax.random.uniform(row_key, (T,)))
    draws_BT = draw(per_row(jax.random.fold_in(key, Draw.MASKS), rows_B))
    return (draws_BT < p_BT) & scored_BT, p_BT
