"""Memory as context, as the paper has it (Titans, arXiv 2501.00663, section 4.1): attention between two readings.

    h = f_M(q(x))                          what the memory before this segment knows about each of its positions
    y = attention(persistent, h, x)        each position sees h and x up to itself, and the persistent tokens
    M learns from y;  out = y * sigmoid(f_M(q(y)))

Here a segment is a memory batch, and segments have to wait for each other. Two departures, without which a position
would see what follows it: h of a later position is not seen, though it knows nothing but earlier segments its query is
made of a later token; and the second reading is of the chunks that are complete, not of the segment's end.
Legend: B rows, T positions, b new positions, U positions of a segment, D width, N heads, K key/value heads, H head dim.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx

from jaxlm.config import ExecutionConfig
from jaxlm.layers import pieces
from jaxlm.layers.neural_memory import NeuralMemory
from jaxlm.layers.reading import Cache, Reading
from jaxlm.layers.segment_attention import SegmentAttention
from jaxlm.model_config import ModelConfig


class MemoryAsContext(nnx.Module):
    """A mixer that takes the place of attention in a block: [B, T, D] to [B, T, D]."""

    def __init__(self, config: ModelConfig, execution: ExecutionConfig) -> None:
        self.attention = SegmentAttention(config, execution)
        self.memory = NeuralMemory(config, execution)
        self.unit = self.memory.unit
        self.width, self.dtype = config.hidden_size, jnp.dtype(execution.dtype)

    def whole(self, x_BTD: jax.Array, reading: Reading) -> jax.Array:
        """Segment after segment."""
        assert reading.structure.causal, reading.structure
        items = {"x": x_BTD, "positions": jnp.broadcast_to(reading.positions_BT, x_BTD.shape[:2])}
        if reading.segments_BT is not None:
            items["segments"] = reading.segments_BT
        state = self.memory.start_state(x_BTD.shape[0], isolated=reading.segments_BT is not None)
        return pieces.whole(self.step, state, items, self.unit)

    def init_cache(self, batch: int, length: int) -> Cache:
        """The memory at the start of the unfinished segment, and what came into the layer in that segment."""
        like = {"x": jax.ShapeDtypeStruct((self.width,), self.dtype), "positions": jax.ShapeDtypeStruct((), jnp.int32)}
        state = self.memory.init_cache(batch, length)["state"]
        return {"state": state, "held": pieces.empty(like, batch, self.unit)}

    def extend(self, x_BbD: jax.Array, reading: Reading, cache: Cache) -> tuple[jax.Array, Cache]:
        """The unfinished segment is done again with the new positions."""
        assert reading.length_B is not None and reading.structure.causal
        state = self.memory.fresh_or(cache["state"], reading.length_B < self.unit)
        new = {"x": x_BbD, "positions": reading.positions_BT}
        return pieces.extend(self.step, state, cache["held"], new, reading.length_B)

    def commit(self, cache: Cache, n_B: jax.Array) -> Cache:
        """Keeps the memory at the start of the segment that the n-th new position leaves unfinished."""
        state, held = pieces.commit(cache, n_B, self.unit)
        return {"state": state, "held": held}

    def step(self, state: dict[str, Any], items: dict[str, jax.Array]) -> tuple[dict[str, Any], jax.Array]:
        """One segment, [B, U, D]."""
        x_BUD, positions_BU, documents_BU = items["x"], items["positions"], items.get("segments")
        seen = jnp.tril(jnp.ones((self.unit, self.unit), bool))[None]
        isolated: dict[str, jax.Array] = {}
        if documents_BU is not None:
            seen = seen & (documents_BU[:, :, None] == documents_BU[:, None, :])
            isolated = {"segments": documents_BU}
        h_BUD = self.memory.recall(state, x_BUD, documents_BU)
        q, k, v = self.attention.project(x_BUD, positions_BU)
        _, h_k, h_v = self.attention.project(h_BUD, positions_BU)
        seen_BUS = jnp.broadcast_to(jnp.tile(seen, (1, 1, 2)), (x_BUD.shape[0], self.unit, 2 * self.unit))
        keys, values = jnp.concatenate([h_k, k], axis=1), jnp.concatenate([h_v, v], axis=1)
        y_BUD = self.attention.attend(q, keys, values, seen_BUS)
        learned = {**self.memory.stored(y_BUD), "query": self.memory.queries(y_BUD), **isolated}
        state, read_BUNH = self.memory.step(state, learned)
        return state, y_BUD * jax.nn.sigmoid(self.memory.answer(y_BUD, read_BUNH))
