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
from jaxlm.objectives.annealing import annealed_attention
from jaxlm.objectives.corruption import corrupt
from jaxlm.objectives.cropping import cut_off, kept_positions
from jaxlm.objectives.mask_noise import mask_noise

Batch = dict[str, jax.Array]
Sums = dict[str, tuple[jax.Array, jax.Array]]
Step = int | jax.Array | None


@dataclass(frozen=True)
class Objective:
    """Weighted sums of a batch's cost, in nats.

    A batch has `tokens` int32 [B, T+1], `segment_ids` int32 [B, T+1] and `loss_mask` bool [B, T+1]. `key` is
    `randomness.key(seed, purpose, step)`, `rows_B` (int32) the position of each row in the global batch of `num_rows`.
    `step` (int32) counts the updates before this one; it is given in training alone, and with it crops, annealed
    attention and noise on masks apply where the configuration has them. None scores whole windows as they are.
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

    def corruption(
        self, batch: Batch, key: jax.Array, rows_B: jax.Array, num_rows: int | jax.Array, step: Step = None
    ) -> jax.Array:
        """Which of tokens 1..T are masked: bool [B, T], all False without corruption."""
        scored_BT, _ = self._left(batch, key, rows_B, step)
        return self._corrupt(scored_BT, key, rows_B, num_rows)[0]

    def per_row(
        self,
        params: Tree,
        batch: Batch,
        key: jax.Array,
        rows_B: jax.Array,
        num_rows: int | jax.Array,
        step: Step = None,
    ) -> tuple[jax.Array, jax.Array]:
        """Nats and scored tokens of each row: fp32 [B], fp32 [B].

        With corruption the nats are an unbiased estimate of the ELBO: cross-entropy of the masked tokens over p.
        """
        return self._cost(params, batch, key, rows_B, num_rows, step)[:2]

    def __call__(
        self,
        params: Tree,
        batch: Batch,
        key: jax.Array,
        rows_B: jax.Array,
        num_rows: int | jax.Array,
        step: Step = None,
    ) -> Sums:
        """Named pairs (sum, weight), fp32 scalars.

        `loss` in nats, its weight the scored tokens of these rows; each auxiliary loss, times its coefficient, weighted
        by the rows. What is minimised is the total of their quotients over the global batch.
        """
        nats_B, weight_B, auxiliary_B = self._cost(params, batch, key, rows_B, num_rows, step)
        rows = jnp.float32(len(rows_B))
        auxiliary = {name: (jnp.sum(loss_B), rows) for name, loss_B in auxiliary_B.items()}
        return {"loss": (jnp.sum(nats_B), jnp.sum(weight_B)), **auxiliary}

    def _cost(
        self, params: Tree, batch: Batch, key: jax.Array, rows_B: jax.Array, num_rows: int | jax.Array, step: Step
    ) -> tuple[jax.Array, jax.Array, dict[str, jax.Array]]:
        """`per_row`, and the auxiliary losses of each row."""
        scored_BT, kept_BT = self._left(batch, key, rows_B, step)
        masked_BT, p_BT = self._corrupt(scored_BT, key, rows_B, num_rows)
        T = scored_BT.shape[1]
        structure = self.structure(T)
        hidden_BT = self._hidden(masked_BT, structure)
        x_BTD, auxiliary_B = self.model.hidden_and_losses(
            params,
            self._inputs(batch, hidden_BT, structure),
            structure,
            self._segments(batch, kept_BT, structure),
            **self._disturbances(hidden_BT, structure, key, rows_B, step),
        )
        x_BTD = x_BTD[:, :T]
        nats_BT = chunked_nats(x_BTD, self.model.head_VD(params), batch["tokens"][:, 1:], self.loss_chunk)
        weights_BT = masked_BT / p_BT if self.corrupts else scored_BT.astype(jnp.float32)
        weight_B = jnp.sum(scored_BT, axis=1, dtype=jnp.float32)
        return jnp.sum(nats_BT * weights_BT, axis=1), weight_B, auxiliary_B

    def _left(self, batch: Batch, key: jax.Array, rows_B: jax.Array, step: Step) -> tuple[jax.Array, jax.Array | None]:
        """Which tokens count once rows are cut, bool [B, T]; and which positions are left, None where all are."""
        scored_BT = self.scored(batch)
        if step is None or not self.config.crop_share:
            return scored_BT, None
        kept_BT = kept_positions(self.config.crop_share, key, rows_B, scored_BT.shape[1])
        return scored_BT & kept_BT, kept_BT

    def _corrupt(
        self, scored_BT: jax.Array, key: jax.Array, rows_B: jax.Array, num_rows: int | jax.Array
    ) -> tuple[jax.Array, jax.Array]:
        if not self.corrupts:
            return jnp.zeros_like(scored_BT), jnp.ones(scored_BT.shape, jnp.float32)
        return corrupt(self.config, key, rows_B, num_rows, scored_BT)

    def _hidden(self, masked_BT: jax.Array, structure: Structure) -> jax.Array:
        """At which input positions the mask token stands: bool [B, T]."""
        if not self.config.shift:
            return masked_BT
        index_T = jnp.arange(masked_BT.shape[1])
        first_T = index_T % structure.block_size == 0 if structure.block_size else index_T == 0
        return jnp.pad(masked_BT, ((0, 0), (1, 0)))[:, :-1] & ~first_T

    def _inputs(self, batch: Batch, hidden_BT: jax.Array, structure: Structure) -> jax.Array:
        """Input tokens: [B, T], or [B, 2T] as [noisy ; clean]."""
        clean_BT = batch["tokens"][:, self._carried]
        if not self.corrupts:
            return clean_BT
        assert self.mask_token_id is not None  # build_objective has seen to it
        noisy_BT = jnp.where(hidden_BT, self.mask_token_id, clean_BT)
        return noisy_BT if structure.streams == 1 else jnp.concatenate([noisy_BT, clean_BT], axis=1)

    def _segments(self, batch: Batch, kept_BT: jax.Array | None, structure: Structure) -> jax.Array | None:
        """What must not see each other, documents or what is cut off: [B, T] or [B, 2T]; None where all may."""
        segments_BT = batch["segment_ids"][:, self._carried] if self.isolate_documents else None
        if kept_BT is not None:
            segments_BT = cut_off(segments_BT, kept_BT)
        return None if segments_BT is None else jnp.tile(segments_BT, (1, structure.streams))

    @property
    def _carried(self) -> slice:
        """Which of a window's tokens the input positions carry."""
        return slice(None, -1) if self.config.shift else slice(1, None)

    def _disturbances(
        self, hidden_BT: jax.Array, structure: Structure, key: jax.Array, rows_B: jax.Array, step: Step
    ) -> dict[str, jax.Array]:
        """What the first steps of a training do to the model, by argument of `Model.hidden_and_losses`."""
        out, config, T = {}, self.config, hidden_BT.shape[1]
        if step is not None and config.anneal_steps:
            out["allowed_TT"] = annealed_attention(config.anneal_steps, key, step, T)
        if step is not None and config.mask_noise_steps:
            std, steps, width = config.mask_noise_std, config.mask_noise_steps, self.model.config.hidden_size
            noise_BTD = mask_noise(std, steps, key, rows_B, step, hidden_BT, width)
            # The clean stream has no masks.
            out["noise_BTD"] = jnp.pad(noise_BTD, ((0, 0), (0, (structure.streams - 1) * T), (0, 0)))
        return out


def build_objective(
    config: ObjectiveConfig,
    model: Model,
    *,
    mask_token_id: int | None = None,
    isolate_documents: bool = False,
    loss_chunk: int = 0,
) -> Objective:
    """The objective of a configuration.

    Raises UserError for a diffusion without a mask token in the vocabulary, and for annealing where some layers are not
    attention.
    """
    if config.anneal_steps and (other := sorted(set(model.config.layer_kinds) - set("GL"))):
        raise UserError(
            f"objective.anneal_steps is {config.anneal_steps}, allowed: 0 with {' or '.join(other)} layers in "
            f"model.layer_pattern (it is {model.config.layer_pattern!r}): only attention is annealed"
        )
    if config.kind == "diffusion" and not (mask_token_id is not None and mask_token_id < model.config.vocab_size):
        raise UserError(
            f"the mask token is {mask_token_id}, allowed: an id below model.vocab_size = {model.config.vocab_size} "
            "(make model.vocab_size larger than the tokenizer)"
        )
    return Objective(config, model, mask_token_id, isolate_documents, loss_chunk)
