"""Attention within segments of a row, each with learned keys and values in front: what a Titans model has of attention.

Positions lie in segments on the absolute grid of the row. A position sees its own segment up to itself, and
`num_persistent_tokens` learned keys and values, which are the layer's own and not rotated (titans-pytorch; the paper
puts learned tokens in front of the sequence instead). Nothing passes from segment to segment here: that is what the
memory is for. Legend: B rows, T positions, b new positions, U positions of a segment, n segments, D width, N query
heads, K key/value heads, G = N / K, H head dim, P persistent tokens, S keys.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx

from jaxlm.config import ExecutionConfig
from jaxlm.layers import pieces
from jaxlm.layers.attention_kernels import scores_to_values
from jaxlm.layers.linear import Linear, residual_std
from jaxlm.layers.norms import head_norm
from jaxlm.layers.parameters import Normal, parameter
from jaxlm.layers.reading import Cache, Reading
from jaxlm.layers.rotary import rotate
from jaxlm.model_config import ModelConfig


class SegmentAttention(nnx.Module):
    """Grouped-query attention of each position to its segment. Causal only."""

    def __init__(self, config: ModelConfig, execution: ExecutionConfig) -> None:
        N, K, H = config.num_heads, config.num_kv_heads, config.head_dim
        make: dict[str, Any] = dict(dtype=execution.dtype)
        self.qkv = Linear(config.hidden_size, (N + 2 * K) * H, std=config.init_std, logical=("embed", "heads"), **make)
        self.query_norm, self.key_norm = head_norm(config), head_norm(config)
        self.out = Linear(N * H, config.hidden_size, std=residual_std(config), logical=("heads", "embed"), **make)
        # titans-pytorch starts them at zero; equal ones get equal gradients and would stay one token for ever.
        shape, P = (2, K, config.num_persistent_tokens or 0, H), config.num_persistent_tokens
        self.persistent = parameter(shape, Normal(config.init_std), (None, None, None, None)) if P else None
        self.num_heads, self.num_kv_heads, self.head_dim = N, K, H
        self.unit = config.segment_len + (config.num_longterm_tokens or 0)
        self.theta = config.rope_theta if config.positions == "rope" else None
        self.dtype = jnp.dtype(execution.dtype)

    def whole(self, x_BTD: jax.Array, reading: Reading) -> jax.Array:
        """[B, T, D] to [B, T, D]."""
        assert reading.structure.causal, reading.structure
        T = x_BTD.shape[1]
        q, k, v = (pieces.split(x, self.unit) for x in self.project(x_BTD, reading.positions_BT))
        seen = jnp.tril(jnp.ones((self.unit, self.unit), bool))[None, None]
        if reading.segments_BT is not None:
            documents_nBU = pieces.split(reading.segments_BT, self.unit)
            seen = seen & (documents_nBU[..., :, None] == documents_nBU[..., None, :])
        rows = q.shape[:2]
        seen = jnp.broadcast_to(seen, (*rows, self.unit, self.unit))
        q, k, v, seen = (x.reshape(-1, *x.shape[2:]) for x in (q, k, v, seen))  # each segment a row
        y = self.attend(q, k, v, seen)
        return pieces.join(y.reshape(*rows, *y.shape[1:]), T)

    def init_cache(self, batch: int, length: int) -> Cache:
        """Keys and values of the unfinished segment, so its size does not depend on `length`."""
        del length
        held = pieces.empty(jax.ShapeDtypeStruct((self.num_kv_heads, self.head_dim), self.dtype), batch, self.unit)
        return {"keys": held, "values": held}

    def extend(self, x_BbD: jax.Array, reading: Reading, cache: Cache) -> tuple[jax.Array, Cache]:
        """Writes the new keys and values behind those of the unfinished segment and attends to both."""
        assert reading.length_B is not None and reading.structure.causal
        index_b = jnp.arange(x_BbD.shape[1])
        q, k, v = self.project(x_BbD, reading.positions_BT)
        buffer, at_B = pieces.write(cache, {"keys": k, "values": v}, reading.length_B)
        query_Bb1 = (at_B[:, None] + index_b)[:, :, None]
        key_S = jnp.arange(buffer["keys"].shape[1])
        seen_BbS = (key_S <= query_Bb1) & (key_S // self.unit == query_Bb1 // self.unit)
        return self.attend(q, buffer["keys"], buffer["values"], seen_BbS), {"buffer": buffer, "at": at_B}

    def commit(self, cache: Cache, n_B: jax.Array) -> Cache:
        """Keeps the segment that the n-th new position leaves unfinished."""
        return pieces.cut(cache["buffer"], (cache["at"] + n_B) // self.unit, self.unit)

    def project(self, x_BTD: jax.Array, positions_BT: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
        """Queries [B, T, N, H], keys and values [B, T, K, H], rotated where they are."""
        N, K, H = self.num_heads, self.num_kv_heads, self.head_dim
        q, k, v = jnp.split(self.qkv(x_BTD).reshape(*x_BTD.shape[:2], N + 2 * K, H), [N, N + K], axis=2)
        if self.query_norm is not None and self.key_norm is not None:
            q, k = self.query_norm(q), self.key_norm(k)
        if self.theta is not None:
            q, k = (rotate(x, positions_BT, self.theta) for x in (q, k))
        return q, k, v

    def attend(self, q_BTNH: jax.Array, k_BSKH: jax.Array, v_BSKH: jax.Array, seen_BTS: jax.Array) -> jax.Array:
        """[B, T, D]: what the queries find in the keys that they see and in the persistent ones."""
        B, T = q_BTNH.shape[:2]
        k_BKSH, v_BKSH = k_BSKH.swapaxes(1, 2), v_BSKH.swapaxes(1, 2)
        if self.persistent is not None:
            lasting = jnp.broadcast_to(
                self.persistent[...].astype(self.dtype)[:, None], (2, B, *self.persistent.get_value().shape[1:])
            )
            k_BKSH, v_BKSH = jnp.concatenate([lasting[0], k_BKSH], 2), jnp.concatenate([lasting[1], v_BKSH], 2)
            seen_BTS = jnp.pad(seen_BTS, ((0, 0), (0, 0), (lasting.shape[3], 0)), constant_values=True)
        q_BKTGH = q_BTNH.reshape(B, T, self.num_kv_heads, -1, self.head_dim).swapaxes(1, 2)
        out_BKGTH = scores_to_values(q_BKTGH.swapaxes(2, 3), k_BKSH, v_BKSH, seen_BTS)
        return self.out(out_BKGTH.transpose(0, 3, 1, 2, 4).reshape(B, T, -1))
