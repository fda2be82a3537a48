"""What a batch costs: autoregression, block diffusion and masked diffusion as one objective with three settings.

* `block_size`: tokens that are written together: 1, b, or 0 for the whole window;
* `shift`: the logits that predict a token are read one position before it, or at it;
* corruption: off for autoregression, which runs one clean stream.

A window holds tokens 0..T; tokens 1..T are scored, whatever the setting. Position j of the input belongs to token j+1:
it carries that token, noisy (no shift), or the token before it (shift). Blocks are laid over these positions, so with a
shift the first position of a block carries the last token of a finished block and is clean. Blocks of one with a shift
therefore are autoregression; one block of everything is MDLM / LLaDA; in between it is BD3-LM, which needs the row
twice: [noisy ; clean]. Legend: B rows, T tokens scored, D width.
"""

from __future__ import annotations

from dataclasses import dataclass

import jax
import jax.numpy as jnp

from jaxlm.config import ObjectiveConfig
from jaxlm.errors import UserError
from jaxlm.families import Model
from jaxlm.layers.cross_entropy import chunked_nats
from jaxlm.layers.parameters import Tree
from jaxlm.layers.structure import Structure
from jaxlm.objectives.corruption import corrupt

Batch = dict[str, jax.Array]
Sums = dict[str, tuple[jax.Array, jax.Array]]


@dataclass(frozen=True)
class Objective:
    """Weighted sums of a batch's cost, in nats.

    A batch has `tokens` int32 [B, T+1], `segment_ids` int32 [B, T+1] and `loss_mask` bool [B, T+1]. `key` is
    `randomness.key(seed, purpose, step)`, `rows_B` (int32) the position of each row in the global batch of `num_rows`.
    """

    config: ObjectiveConfig
    model: Model
    mask_token_id: int | None = None
    isolate_documents: bool = False
    loss_chunk: int = 0

    @property
    def corrupts(self) -> bool:
        """Whether tokens are masked."""
        return self.config.kind == "diffusion"

    @property
    def is_bound(self) -> bool:
        """Whether the loss is an upper bound of the negative log-likelihood (ELBO) and not the thing itself."""
        return self.corrupts and not (self.config.shift and self.config.block_size == 1)

    def structure(self, length: int) -> Structure:
        """Who sees whom in rows of `length` tokens."""
        block = self.config.block_size or 0
        if block >= length:
            block = 0
        # Where every position is the first of its block and reads a clean token, both streams are the same.
        two_streams = self.corrupts and block > 0 and not (self.config.shift and block == 1)
        return Structure(block, streams=2 if two_streams else 1)

    def scored(self, batch: Batch) -> jax.Array:
        """Which of tokens 1..T count: bool [B, T]. An isolated document's first token has nothing to be read from."""
        scored_BT = batch["loss_mask"][:, 1:].astype(bool)
        if self.isolate_documents:
            segments = batch["segment_ids"]
            scored_BT = scored_BT & (segments[:, 1:] == segments[:, :-1])
        return scored_BT

    def corruption(self, batch: Batch, key: jax.Array, rows_B: jax.Array, num_rows: int | jax.Array) -> jax.Array:
        """Which of tokens 1..T are masked: bool [B, T], all False without corruption."""
        return self._corrupt(batch, key, rows_B, num_rows)[0]

    def per_row(
        self, params: Tree, batch: Batch, key: jax.Array, rows_B: jax.Array, num_rows: int | jax.Array
    ) -> tuple[jax.Array, jax.Array]:
        """Nats and scored tokens of each row: fp32 [B], fp32 [B].

        With corruption the nats are an unbiased estimate of the ELBO: cross-entropy of the masked tokens over p.
        """
        return self._cost(params, batch, key, rows_B, num_rows)[:2]

    def _cost(
        self, params: Tree, batch: Batch, key: jax.Array, rows_B: jax.Array, num_rows: int | jax.Array
    ) -> tuple[jax.Array, jax.Array, dict[str, jax.Array]]:
        """`per_row`, and the auxiliary losses of each row."""
        masked_BT, p_BT = self._corrupt(batch, key, rows_B, num_rows)
        scored_BT = self.scored(batch)
        T = scored_BT.shape[1]
        structure = self.structure(T)
        inputs, segments = self._inputs(batch, masked_BT, structure)
        x_BTD, auxiliary_B = self.model.hidden_and_losses(params, inputs, structure, segments)
        x_BTD = x_BTD[:, :T]
        nats_BT = chunked_nats(x_BTD, self.model.head_VD(params), batch["tokens"][:, 1:], self.loss_chunk)
        weights_BT = masked_BT / p_BT if self.corrupts else scored_BT.astype(jnp.float32)
        weight_B = jnp.sum(scored_BT, axis=1, dtype=jnp.float32)
        return jnp.sum(nats_BT * weights_BT, axis=1), weight_B, auxiliary_B

    def __call__(
        self, params: Tree, batch: Batch, key: jax.Array, rows_B: jax.Array, num_rows: int | jax.Array
    ) -> Sums:
        """Named pairs (sum, weight), fp32 scalars.

        `loss` in nats, its weight the scored tokens of these rows; each auxiliary loss, times its coefficient, weighted
        by the rows. What is minimised is the total of their quotients over the global batch.
        """
        nats_B, weight_B, auxiliary_B = self._cost(params, batch, key, rows_B, num_rows)
        rows = jnp.float32(len(rows_B))
        auxiliary = {name: (jnp.sum(loss_B), rows) for name, loss_B in auxiliary_B.items()}
        return {"loss": (jnp.sum(nats_B), jnp.sum(weight_B)), **auxiliary}

    def _corrupt(
        self, batch: Batch, key: jax.Array, rows_B: jax.Array, num_rows: int | jax.Array
    ) -> tuple[jax.Array, jax.Array]:
        scored_BT = self.scored(batch)
        if not self.corrupts:
            return jnp.zeros_like(scored_BT), jnp.ones(scored_BT.shape, jnp.float32)
        return corrupt(self.config, key, rows_B, num_rows, scored_BT)

    def _inputs(self, batch: Batch, masked_BT: jax.Array, structure: Structure) -> tuple[jax.Array, jax.Array | None]:
        """Input tokens, and segments if documents are isolated: [B, T], or [B, 2T] as [noisy ; clean]."""
        carried = slice(None, -1) if self.config.shift else slice(1, None)
        clean_BT = batch["tokens"][:, carried]
        segments = batch["segment_ids"][:, carried] if self.isolate_documents else None
        if not self.corrupts:
            return clean_BT, segments
        if self.config.shift:
            index_T = jnp.arange(clean_BT.shape[1])
            first_T = index_T % structure.block_size == 0 if structure.block_size else index_T == 0
            masked_BT = jnp.pad(masked_BT, ((0, 0), (1, 0)))[:, :-1] & ~first_T
        assert self.mask_token_id is not None  # build_objective has seen to it
        noisy_BT = jnp.where(masked_BT, self.mask_token_id, clean_BT)
        if structure.streams == 1:
            return noisy_BT, segments
        doubled = None if segments is None else jnp.concatenate([segments, segments], axis=1)
        return jnp.concatenate([noisy_BT, clean_BT], axis=1), doubled


def build_objective(
    config: ObjectiveConfig,
    model: Model,
    *,
    mask_token_id: int | None = None,
    isolate_documents: bool = False,
    loss_chunk: int = 0,
) -> Objective:
    """The objective of a configuration; raises UserError where a diffusion has no mask token in the vocabulary."""
    if config.kind == "diffusion" and not (mask_token_id is not None and mask_token_id < model.config.vocab_size):
        raise UserError(
            f"the mask token is {mask_token_id}, allowed: an id below model.vocab_size = {model.config.vocab_size} "
            "(make model.vocab_size larger than the tokenizer)"
        )
    return Objective(config, model, mask_token_id, isolate_documents, loss_chunk)
