"""What the families share: embedding, blocks, final norm, head.

Legend: B rows, T positions, b new positions, e positions that the blocks see, D width.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import jax
import jax.numpy as jnp
from flax import nnx

from jaxlm.config import ExecutionConfig
from jaxlm.errors import UserError
from jaxlm.layers.linear import Embedding
from jaxlm.layers.longterm_tokens import LongTermTokens
from jaxlm.layers.norms import norm
from jaxlm.layers.reading import Cache, Reading
from jaxlm.layers.structure import Structure, document_positions
from jaxlm.model_config import ModelConfig

Losses = dict[str, jax.Array]  # by name, fp32 [B]

REMAT = {
    "dots": jax.checkpoint_policies.dots_with_no_batch_dims_saveable,
    "full": jax.checkpoint_policies.nothing_saveable,
}


class BlockClass(Protocol):
    """A family's block, and what it has a place for: letters of the layer pattern, Canon layers."""

    kinds: str
    takes_canon: bool

    def __call__(self, config: ModelConfig, execution: ExecutionConfig, kind: str) -> Any: ...


class Trunk(nnx.Module):
    """Tokens to hidden states; the head is applied by whoever needs logits, on the positions that need them."""

    def __init__(self, config: ModelConfig, execution: ExecutionConfig, block: BlockClass) -> None:
        make: dict[str, Any] = dict(std=config.init_std, dtype=execution.dtype)
        digits = max(2, len(str(config.num_layers - 1)))
        self.embedding = Embedding(config.vocab_size, config.hidden_size, **make)
        learned = config.positions == "learned"
        self.positions = Embedding(config.max_positions, config.hidden_size, **make) if learned else None
        self.memory_tokens = (
            LongTermTokens(config.num_longterm_tokens, config.segment_len, config.hidden_size, **make)
            if config.num_longterm_tokens
            else None
        )
        self.layers = nnx.Dict(
            {f"{i:0{digits}}": block(config, execution, kind) for i, kind in enumerate(config.layer_kinds)}
        )
        self.final_norm = norm(config)
        self.head = None if config.tie_embeddings else Embedding(config.vocab_size, config.hidden_size, **make)
        self.period, self.repeats = len(config.layer_pattern), config.layer_repeats
        self.embedding_factor = config.hidden_size**0.5 if config.scale_embeddings else None
        self.scan, self.remat = execution.layers == "scan", execution.remat

    def head_VD(self) -> jax.Array:
        """The matrix that turns hidden states into logits: the embedding's if tied."""
        return (self.embedding if self.head is None else self.head).table[...]

    def order(self) -> list[tuple[str, Any]]:
        """The blocks in the order in which they run, named: each stored layer `layer_repeats` times in a row."""
        if self.repeats == 1:
            return list(self.layers.items())
        return [(f"{name}.{i}", block) for name, block in self.layers.items() for i in range(self.repeats)]

    def enter(self, tokens_BT: jax.Array, positions_BT: jax.Array, before_B: Any = 0) -> jax.Array:
        """What the first block reads, behind `before_B` tokens of each row: [B, e, D], e = T in most families."""
        x_BTD = self.embedding(tokens_BT)
        if self.embedding_factor is not None:
            x_BTD = x_BTD * jnp.asarray(self.embedding_factor, x_BTD.dtype)
        if self.positions is not None:
            x_BTD = x_BTD + self.positions(positions_BT)
        return x_BTD if self.memory_tokens is None else self.memory_tokens.weave(x_BTD, before_B)

    def exit(self, x_BeD: jax.Array, size: int, before_B: Any = 0) -> jax.Array:
        """What the head reads: the final norm at the positions of the tokens, [B, T, D]."""
        return self.final_norm(
            x_BeD if self.memory_tokens is None else self.memory_tokens.unweave(x_BeD, size, before_B)
        )

    def lengthened(self, tokens: Any) -> Any:
        """How many positions of the blocks so many tokens of a row take: int or int array."""
        return tokens if self.memory_tokens is None else self.memory_tokens.lengthened(tokens)

    def __call__(
        self,
        tokens_BT: jax.Array,
        structure: Structure,
        segments_BT: jax.Array | None = None,
        *,
        noise_BTD: jax.Array | None = None,
        allowed_TT: jax.Array | None = None,
    ) -> tuple[jax.Array, Losses]:
        """int32 [B, T] to [B, T, D], and the auxiliary losses of the rows, each the mean over the blocks.

        With two streams T = 2L and the segments are those of both halves. `noise_BTD` is added to what the first block
        reads; `allowed_TT` (bool, query by key) is what attention sees at most. Neither is for a family that lengthens
        its rows. Raises UserError for a row that is longer
        than the learned positions, if there are any.
        """
        length = tokens_BT.shape[1] // structure.streams
        if segments_BT is None:
            if self.positions is not None and length > self.positions.table.shape[0]:
                # A lookup past the end would quietly give the last row.
                raise UserError(
                    f"a row has {length} positions, allowed: at most model.max_positions = "
                    f"{self.positions.table.shape[0]}, for they are learned"
                )
            positions = jnp.arange(length, dtype=jnp.int32)[None]
        else:
            positions = document_positions(segments_BT[:, :length])
        positions_BT = jnp.tile(positions, (1, structure.streams))
        x_BTD, noted = self.enter(tokens_BT, positions_BT), []
        if noise_BTD is not None:
            x_BTD = x_BTD + noise_BTD.astype(x_BTD.dtype)
        if self.memory_tokens is not None:
            assert noise_BTD is None and allowed_TT is None
            positions_BT = jnp.arange(x_BTD.shape[1], dtype=jnp.int32)[None]
            if segments_BT is not None:
                segments_BT = self.memory_tokens.weave_segments(segments_BT)
                positions_BT = document_positions(segments_BT)

        def run(blocks: list[Any], x_BTD: jax.Array) -> tuple[jax.Array, Losses]:
            noted: list[Losses] = []
            for block in blocks:
                for _ in range(self.repeats):
                    reading = Reading(structure, positions_BT, segments_BT, allowed_TT=allowed_TT)
                    x_BTD = block(x_BTD, reading)
                    noted.append(reading.noted_B)
            return x_BTD, jax.tree.map(lambda *losses: sum(losses[1:], losses[0]), *noted)

        blocks = list(self.layers.values())
        scanned = len(blocks) // self.period * self.period if self.scan else 0
        if scanned:
            x_BTD, losses = self._scan(run, blocks[:scanned], x_BTD)
            noted.append(losses)
        for block in blocks[scanned:]:
            x_BTD, losses = self._remat(run)([block], x_BTD)
            noted.append(losses)
        executed = len(blocks) * self.repeats
        mean = jax.tree.map(lambda *losses: sum(losses[1:], losses[0]) / executed, *noted)
        return self.exit(x_BTD, tokens_BT.shape[1]), mean

    def _scan(self, run: Callable[..., Any], blocks: list[Any], x_BTD: jax.Array) -> tuple[jax.Array, Losses]:
        """Runs whole periods of the layer pattern in a loop, so that every window is static inside the body."""
        stacked = [
            jax.tree.map(lambda *leaves: jnp.stack(leaves), *blocks[i :: self.period]) for i in range(self.period)
        ]
        body = self._remat(lambda x, period: run(period, x))
        x_BTD, losses = jax.lax.scan(body, x_BTD, stacked)
        return x_BTD, jax.tree.map(lambda loss_PB: loss_PB.sum(0), losses)

    def _remat(self, function: Callable[..., Any]) -> Callable[..., Any]:
        return function if self.remat == "none" else jax.checkpoint(function, policy=REMAT[self.remat])

    def init_cache(self, batch: int, length: int) -> Cache:
        """Empty caches for `batch` rows of up to `length` positions; `length` [B] counts the accepted ones."""
        layers = {
            name: {key: part.init_cache(batch, length) for key, part in block.mixers().items() if part is not None}
            for name, block in self.order()
        }
        return {"length": jnp.zeros(batch, jnp.int32), "layers": layers}

    def extend(
        self, tokens_Bb: jax.Array, cache: Cache, structure: Structure, num_new_B: jax.Array
    ) -> tuple[jax.Array, Cache]:
        """New positions after the accepted ones: [B, b, D] and a cache for `commit`.

        Rows may be padded on the right: only the first `num_new_B` of the b positions are real.
        """
        before_B, b = cache["length"], tokens_Bb.shape[1]
        positions_Bb = before_B[:, None] + jnp.arange(b, dtype=jnp.int32)
        x_BeD, layers = self.enter(tokens_Bb, positions_Bb, before_B), {}
        length_B = self.lengthened(before_B)
        num_new_B = self.lengthened(before_B + num_new_B) - length_B
        positions_Be = length_B[:, None] + jnp.arange(x_BeD.shape[1], dtype=jnp.int32)
        for name, block in self.order():
            proposal = dict(cache["layers"][name])
            reading = Reading(structure, positions_Be, None, length_B, num_new_B, proposal)
            x_BeD = block(x_BeD, reading)
            layers[name] = proposal
        return self.exit(x_BeD, b, before_B), {"length": before_B, "layers": layers}

    def commit(self, cache: Cache, n_B: jax.Array) -> Cache:
        """Accepts the first n of each row's new positions."""
        length_B = cache["length"] + n_B
        kept_B = self.lengthened(length_B) - self.lengthened(cache["length"])
        layers = {
            name: {
                key: part.commit(cache["layers"][name][key], kept_B)
                for key, part in block.mixers().items()
                if part is not None
            }
            for name, block in self.order()
        }
        return {"length": length_B, "layers": layers}
