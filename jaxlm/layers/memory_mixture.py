"""What the weights of a neural memory are made of after each chunk: numbers that follow from eta and alpha alone.

    S_c = eta_c S_(c-1) - G_c,   M_c = (1 - alpha_c) M_(c-1) + S_c         G_c: the gradients of chunk c

is linear, so M_c = P_c M_held + Q_c S_held + F_c M_start - sum_i A_ci g_i over the positions i, where M_held and S_held
are those at the start of the memory batch. F is 0 but where documents are isolated: a document's first chunk starts
from M_start and without momentum. Of a chunk in which documents meet, only the last one writes.
Legend: B rows, N heads, U positions, C chunks, c positions of a chunk.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np


@dataclass(frozen=True)
class Mixture:
    """How much of each is in some memories, m of them, all fp32.

    Attributes:
      held, momentum: memory and momentum at the start of the batch, [B, N, m, 1].
      written: the gradient of each position, to be taken away, [B, N, m, U].
      start: the memory before any text, [B, N, m, 1]; None where documents are not isolated.
    """

    held: jax.Array
    momentum: jax.Array
    written: jax.Array
    start: jax.Array | None = None

    def at(self, index: Any) -> Mixture:
        """Those of the memories, or of them as often as they are named."""
        start = None if self.start is None else self.start[:, :, index]
        return Mixture(self.held[:, :, index], self.momentum[:, :, index], self.written[:, :, index], start)


def mixtures(
    rates_BUN3: jax.Array, chunk: int, documents: tuple[jax.Array, jax.Array] | None = None
) -> tuple[Mixture, Mixture, Mixture]:
    """The memory that each position reads (m = U), the memory after the batch and the momentum after it (m = 1).

    Args:
      rates_BUN3: logits of theta, eta and alpha; the first is not used here.
      chunk: c, divides U.
      documents: if they are isolated, that of each position, int32 [B, U], and that of the position before the batch,
        int32 [B]; a number does not come back.
    """
    B, U, N, _ = rates_BUN3.shape
    C = U // chunk
    logits_BCcN2 = rates_BUN3[..., 1:].reshape(B, C, chunk, N, 2)
    index_U = (np.arange(U) + 1) // chunk  # complete chunks when a position is read
    writes_BU, anew_BC, own_BU = jnp.ones((B, U), bool), jnp.zeros((B, C), bool), None
    if documents is not None:
        document_BU, document_B = documents
        last_BC = document_BU[:, chunk - 1 :: chunk]
        writes_BU = document_BU == jnp.repeat(last_BC, chunk, axis=1)
        known_BC = jnp.concatenate([document_B[:, None], last_BC], axis=1)  # by the held memory, and after each chunk
        anew_BC = known_BC[:, 1:] != known_BC[:, :-1]
        own_BU = known_BC[:, index_U] == document_BU
    counted_BCc11 = writes_BU.reshape(B, C, chunk, 1, 1)
    pooled_BCN2 = jnp.sum(logits_BCcN2 * counted_BCc11, axis=2) / jnp.sum(counted_BCc11, axis=2)
    eta_BNC, alpha_BNC = jnp.moveaxis(pooled_BCN2, (3, 2), (0, 2))
    log_eta, log_keep = jax.nn.log_sigmoid(eta_BNC), jax.nn.log_sigmoid(-alpha_BNC)

    epoch_BC = jnp.cumsum(anew_BC, axis=1)  # how often the memory has been made anew within the batch
    untouched_B1C = (epoch_BC == 0)[:, None]
    momentum_BNC = jnp.where(untouched_B1C, jnp.exp(jnp.cumsum(log_eta, axis=-1)), 0.0)
    held_BNC = jnp.where(untouched_B1C, jnp.exp(jnp.cumsum(log_keep, axis=-1)), 0.0)
    decay_of_momentum, decay_of_memory = _decay(log_eta, epoch_BC), _decay(log_keep, epoch_BC)
    start_BNC = _matvec(decay_of_memory, anew_BC[:, None] * jnp.exp(log_keep))

    def written(decay_BNmC: jax.Array) -> jax.Array:
        return jnp.repeat(decay_BNmC, chunk, axis=3) * writes_BU[:, None, None]

    # Momentum goes into the memory, so what is written decays as both do.
    memories = Mixture(
        held_BNC[..., None],
        _matvec(decay_of_memory, momentum_BNC)[..., None],
        written(jnp.matmul(decay_of_memory, decay_of_momentum, precision=jax.lax.Precision.HIGHEST)),
        None if documents is None else start_BNC[..., None],
    )
    momenta = Mixture(jnp.zeros_like(memories.held), momentum_BNC[..., None], written(decay_of_momentum))
    return _read(memories, index_U, own_BU), memories.at([C - 1]), momenta.at([C - 1])


def _read(memories: Mixture, index_U: np.ndarray, own_BU: jax.Array | None) -> Mixture:
    """What each position reads: the memory after so many chunks, and after none the one that was held.

    A memory that knows another document (not `own_BU`) is not read: then it is the one before any text.
    """

    def before(x: jax.Array, value: float) -> jax.Array:
        return jnp.pad(x, ((0, 0), (0, 0), (1, 0), (0, 0)), constant_values=value)[:, :, index_U]

    held, momentum, written = (
        before(memories.held, 1.0),
        before(memories.momentum, 0.0),
        before(memories.written, 0.0),
    )
    if own_BU is None or memories.start is None:
        return Mixture(held, momentum, written)
    own = own_BU[:, None, :, None]
    held, momentum, written = (jnp.where(own, x, 0.0) for x in (held, momentum, written))
    return Mixture(held, momentum, written, jnp.where(own, before(memories.start, 0.0), 1.0))


def _matvec(x_BNCC: jax.Array, y_BNC: jax.Array) -> jax.Array:
    return jnp.einsum("bnji,bni->bnj", x_BNCC, y_BNC, precision=jax.lax.Precision.HIGHEST)


def _decay(log_BNC: jax.Array, epoch_BC: jax.Array) -> jax.Array:
    """[B, N, C, C]: exp of the sum over i < m <= j of log_m at [j, i], 0 above the diagonal and across epochs.

    The sums are taken as such: differences of long sums would lose digits.
    """
    C = log_BNC.shape[-1]
    later = np.tril(np.ones((C, C), bool), -1)
    sums = jnp.cumsum(jnp.where(later, log_BNC[..., None], 0.0), axis=2)
    seen_BCC = np.tril(np.ones((C, C), bool)) & (epoch_BC[:, :, None] == epoch_BC[:, None, :])
    return jnp.where(seen_BCC[:, None], jnp.exp(sums), 0.0)
