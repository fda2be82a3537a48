"""Cross-entropy of a large vocabulary without ever holding all logits.

Legend: B rows, T positions, D width, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from jaxlm.layers.linear import logits


def nats(x_BTD: jax.Array, head_VD: jax.Array, targets_BT: jax.Array) -> jax.Array:
    """-log softmax(x @ head.T)[target] over all V rows: fp32 [B, T]."""
    return _nats(logits(x_BTD, head_VD), targets_BT)


def nats_and_likeliest(x_BTD: jax.Array, head_VD: jax.Array, targets_BT: jax.Array) -> tuple[jax.Array, jax.Array]:
    """`nats`, and whether the target is the likeliest of all V rows: fp32 [B, T], bool [B, T]."""
    logits_BTV = logits(x_BTD, head_VD)
    return _nats(logits_BTV, targets_BT), jnp.argmax(logits_BTV, axis=-1) == targets_BT


def chunked_nats(x_BTD: jax.Array, head_VD: jax.Array, targets_BT: jax.Array, chunk: int) -> jax.Array:
    """`nats`, with the logits of at most `chunk` positions of each row alive at once; 0: all of them."""
    return in_chunks(nats, x_BTD, head_VD, targets_BT, chunk)


def in_chunks(
    score: Callable[[jax.Array, jax.Array, jax.Array], Any],
    x_BTD: jax.Array,
    head_VD: jax.Array,
    targets_BT: jax.Array,
    chunk: int,
) -> Any:
    """`score`, which gives arrays [B, T] of (x, head, targets), for at most `chunk` positions of each row at once.

    Chunks run along T, so that rows stay on the devices that own them; the backward pass recomputes each chunk.
    """
    B, T, D = x_BTD.shape
    if not 0 < chunk < T:
        return score(x_BTD, head_VD, targets_BT)
    count = -(-T // chunk)
    fill = count * chunk - T
    x = jnp.pad(x_BTD, ((0, 0), (0, fill), (0, 0))).reshape(B, count, chunk, D).swapaxes(0, 1)
    targets = jnp.pad(targets_BT, ((0, 0), (0, fill))).reshape(B, count, chunk).swapaxes(0, 1)
    one_chunk = jax.checkpoint(lambda x_BcD, targets_Bc: score(x_BcD, head_VD, targets_Bc))
    _, out = jax.lax.scan(lambda carry, part: (carry, one_chunk(*part)), None, (x, targets))
    return jax.tree.map(lambda chunks: chunks.swapaxes(0, 1).reshape(B, count * chunk)[:, :T], out)


def _nats(logits_BTV: jax.Array, targets_BT: jax.Array) -> jax.Array:
    chosen_BT = jnp.take_along_axis(logits_BTV, targets_BT[:, :, None], axis=-1)[:, :, 0]
    return jax.nn.logsumexp(logits_BTV, axis=-1) - chosen_BT
