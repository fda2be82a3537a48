"""Cross-entropy of a large vocabulary without ever holding all logits.

Legend: B rows, T positions, D width, V vocabulary.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

from jaxlm.layers.linear import logits


def nats(x_BTD: jax.Array, head_VD: jax.Array, targets_BT: jax.Array) -> jax.Array:
    """-log softmax(x @ head.T)[target] over all V rows: fp32 [B, T]."""
    logits_BTV = logits(x_BTD, head_VD)
    chosen_BT = jnp.take_along_axis(logits_BTV, targets_BT[:, :, None], axis=-1)[:, :, 0]
    return jax.nn.logsumexp(logits_BTV, axis=-1) - chosen_BT


def chunked_nats(x_BTD: jax.Array, head_VD: jax.Array, targets_BT: jax.Array, chunk: int) -> jax.Array:
    """`nats`, with the logits of at most `chunk` positions of each row alive at once; 0: all of them.

    Chunks run along T, so that rows stay on the devices that own them; the backward pass recomputes each chunk.
    """
    B, T, D = x_BTD.shape
    if not 0 < chunk < T:
        return nats(x_BTD, head_VD, targets_BT)
    count = -(-T // chunk)
    fill = count * chunk - T
    x = jnp.pad(x_BTD, ((0, 0), (0, fill), (0, 0))).reshape(B, count, chunk, D).swapaxes(0, 1)
    targets = jnp.pad(targets_BT, ((0, 0), (0, fill))).reshape(B, count, chunk).swapaxes(0, 1)
    one_chunk = jax.checkpoint(lambda x_BcD, targets_Bc: nats(x_BcD, head_VD, targets_Bc))
    _, out = jax.lax.scan(lambda carry, part: (carry, one_chunk(*part)), None, (x, targets))
    return out.swapaxes(0, 1).reshape(B, count * chunk)[:, :T]
