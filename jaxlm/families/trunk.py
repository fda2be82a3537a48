"""What the families share: embedding, blocks, final norm, head.

Legend: B rows, T positions, b new positions, D width.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx

from jaxlm.config import ExecutionConfig, ModelConfig
from jaxlm.layers.linear import Embedding, RMSNorm
from jaxlm.layers.reading import Cache, Reading
from jaxlm.layers.structure import Structure, document_positions

BlockClass = Callable[[ModelConfig, ExecutionConfig, str], Any]

REMAT = {
    "dots": jax.checkpoint_policies.dots_with_no_batch_dims_saveable,
    "full": jax.checkpoint_policies.nothing_saveable,
}


class Trunk(nnx.Module):
    """Tokens to hidden states; the head is applied by whoever needs logits, on the positions that need them."""

    def __init__(self, config: ModelConfig, execution: ExecutionConfig, block: BlockClass) -> None:
        make: dict[str, Any] = dict(std=config.init_std, dtype=execution.dtype)
        digits = max(2, len(str(config.num_layers - 1)))
        self.embedding = Embedding(config.vocab_size, config.hidden_size, **make)
        self.layers = nnx.Dict(
            {f"{i:0{digits}}": block(config, execution, kind) for i, kind in enumerate(config.layer_kinds)}
        )
        self.final_norm = RMSNorm(config.hidden_size, eps=config.norm_eps)
        self.head = None if config.tie_embeddings else Embedding(config.vocab_size, config.hidden_size, **make)
        self.period = len(config.layer_pattern)
        self.scan, self.remat = execution.layers == "scan", execution.remat

    def head_VD(self) -> jax.Array:
        """The matrix that turns hidden states into logits: the embedding's if tied."""
        return (self.embedding if self.head is None else self.head).table[...]

    def __call__(self, tokens_BT: jax.Array, structure: Structure, segments_BT: jax.Array | None = None) -> jax.Array:
        """int32 [B, T] to [B, T, D]; with two streams T = 2L and the segments are those of both halves."""
        length = tokens_BT.shape[1] // structure.streams
        if segments_BT is None:
            positions = jnp.arange(length, dtype=jnp.int32)[None]
        else:
            positions = document_positions(segments_BT[:, :length])
        reading = Reading(structure, jnp.tile(positions, (1, structure.streams)), segments_BT)
        x_BTD = self.embedding(tokens_BT)
        blocks = list(self.layers.values())
        scanned = len(blocks) // self.period * self.period if self.scan else 0
        x_BTD = self._scan(blocks[:scanned], x_BTD, reading)
        for block in blocks[scanned:]:
            x_BTD = self._remat(lambda block, x: block(x, reading))(block, x_BTD)
        return self.final_norm(x_BTD)

    def _scan(self, blocks: list[Any], x_BTD: jax.Array, reading: Reading) -> jax.Array:
        """Runs whole periods of the layer pattern in a loop, so that every window is static inside the body."""
        if not blocks:
            return x_BTD
        stacked = [
            jax.tree.map(lambda *leaves: jnp.stack(leaves), *blocks[i :: self.period]) for i in range(self.period)
        ]

        def body(x: jax.Array, period: list[Any]) -> tuple[jax.Array, None]:
            for block in period:
                x = block(x, reading)
            return x, None

        return jax.lax.scan(self._remat(body), x_BTD, stacked)[0]

    def _remat(self, function: Callable[..., Any]) -> Callable[..., Any]:
        return function if self.remat == "none" else jax.checkpoint(function, policy=REMAT[self.remat])

    def init_cache(self, batch: int, length: int) -> Cache:
        """Empty caches for `batch` rows of up to `length` positions; `length` [B] counts the accepted ones."""
        layers = {
            name: {key: part.init_cache(batch, length) for key, part in block.mixers().items() if part is not None}
            for name, block in self.layers.items()
        }
        return {"length": jnp.zeros(batch, jnp.int32), "layers": layers}

    def extend(
        self, tokens_Bb: jax.Array, cache: Cache, structure: Structure, num_new_B: jax.Array
    ) -> tuple[jax.Array, Cache]:
        """New positions after the accepted ones: [B, b, D] and a cache for `commit`.

        Rows may be padded on the right: only the first `num_new_B` of the b positions are real.
        """
        positions_Bb = cache["length"][:, None] + jnp.arange(tokens_Bb.shape[1], dtype=jnp.int32)
        x_BbD, layers = self.embedding(tokens_Bb), {}
        for name, block in self.layers.items():
            proposal = dict(cache["layers"][name])
            reading = Reading(structure, positions_Bb, None, cache["length"], num_new_B, proposal)
            x_BbD = block(x_BbD, reading)
            layers[name] = proposal
        return self.final_norm(x_BbD), {"length": cache["length"], "layers": layers}

    def commit(self, cache: Cache, n_B: jax.Array) -> Cache:
        """Accepts the first n of each row's new positions."""
        layers = {
            name: {
                key: part.commit(cache["layers"][name][key], n_B)
                for key, part in block.mixers().items()
                if part is not None
            }
            for name, block in self.layers.items()
        }
        return {"length": cache["length"] + n_B, "layers": layers}
