"""Attention within segments of a row, each with learned keys and values in front: what a Titans model has of attention.

Positions lie in segments on the absolute grid of the row. A position sees its own segment up to itself, and
`num_persistent_tokens` learned keys and values, which are the layer's own and not rotated (titans-pytorch; the paper
puts learned tokens in front of the sequence instead). Nothing passes from segment to segment here: that is what the
memory is for. Legend: B rows, T positions, b new positions, U positions of a segment, n segments, R = n B, D
width, N query heads, K key/value heads, G = N / K, H head dim, P persistent tokens, S keys.
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
        self.unit = config.segment_positions
        self.theta = config.rope_theta if config.positions == "rope" else None
        self.dtype = jnp.dtype(execution.dtype)

    def whole(self, x_BTD: jax.Array, reading: Reading) -> jax.Array:
        """[B, T, D] to [B, T, D]."""
        y_RUD = self.attend(*self._by_segments(x_BTD, reading))
        B, T = x_BTD.shape[:2]
        return pieces.join(y_RUD.reshape(-1, B, *y_RUD.shape[1:]), T)

    def weights(self, x_BTD: jax.Array, reading: Reading) -> jax.Array:
        """How much of each key each query takes, in the reading of `whole`: [B, N, T, P + T], rows sum to 1.

        The persistent keys are the first P.
        """
        q_RUNH, k_RUKH, v_RUKH, seen_RUU = self._by_segments(x_BTD, reading)
        k_RKSH, _, seen_RUS = self._in_front(k_RUKH, v_RUKH, seen_RUU)
        R, K, S, _ = k_RKSH.shape
        # As in `Attention.weights`: attention to one-hot values.
        one_hot_RKSS = jnp.broadcast_to(jnp.eye(S, dtype=q_RUNH.dtype), (R, K, S, S))
        w_RKGUS = scores_to_values(self._grouped(q_RUNH), k_RKSH, one_hot_RKSS, seen_RUS)
        (B, T), U, P = x_BTD.shape[:2], self.unit, S - self.unit
        w_nBNUS = w_RKGUS.reshape(-1, B, self.num_heads, U, S)
        out = jnp.zeros((B, self.num_heads, len(w_nBNUS) * U, P + len(w_nBNUS) * U), w_nBNUS.dtype)
        for i, w_BNUS in enumerate(w_nBNUS):
            rows = slice(i * U, (i + 1) * U)
            out = out.at[:, :, rows, :P].set(w_BNUS[..., :P])
            out = out.at[:, :, rows, P + i * U : P + (i + 1) * U].set(w_BNUS[..., P:])
        return out[:, :, :T, : P + T]

    def _by_segments(self, x_BTD: jax.Array, reading: Reading) -> tuple[jax.Array, jax.Array, jax.Array, jax.Array]:
        """Queries, keys, values, and what is seen, bool [R, U, U]: each of the R = n B segments is a row."""
        assert reading.structure.causal, reading.structure
        q, k, v = (pieces.split(x, self.unit) for x in self.project(x_BTD, reading.positions_BT))
        seen = jnp.tril(jnp.ones((self.unit, self.unit), bool))[None, None]
        if reading.segments_BT is not None:
            documents_nBU = pieces.split(reading.segments_BT, self.unit)
            seen = seen & (documents_nBU[..., :, None] == documents_nBU[..., None, :])
        seen = jnp.broadcast_to(seen, (*q.shape[:2], self.unit, self.unit))
        q, k, v, seen = (x.reshape(-1, *x.shape[2:]) for x in (q, k, v, seen))
        return q, k, v, seen

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
        k_BKSH, v_BKSH, seen_BTS = self._in_front(k_BSKH, v_BSKH, seen_BTS)
        out_BKGTH = scores_to_values(self._grouped(q_BTNH), k_BKSH, v_BKSH, seen_BTS)
        return self.out(out_BKGTH.transpose(0, 3, 1, 2, 4).reshape(*q_BTNH.shape[:2], -1))

    def _grouped(self, q_BTNH: jax.Array) -> jax.Array:
        B, T = q_BTNH.shape[:2]
        return q_BTNH.reshape(B, T, self.num_kv_heads, -1, self.head_dim).transpose(0, 2, 3, 1, 4)

    def _in_front(
        self, k_BSKH: jax.Array, v_BSKH: jax.Array, seen_BTS: jax.Array
    ) -> tuple[jax.Array, jax.Array, jax.Array]:
        """Keys and values with heads first, behind the persistent ones, which every query sees."""
        k_BKSH, v_BKSH = k_BSKH.swapaxes(1, 2), v_BSKH.swapaxes(1, 2)
        if self.persistent is None:
            return k_BKSH, v_BKSH, seen_BTS
        k_KPH, v_KPH = self.persistent[...].astype(self.dtype)

        def join(front_KPH: jax.Array, x_BKSH: jax.Array) -> jax.Array:
            front_BKPH = jnp.broadcast_to(front_KPH, (len(x_BKSH), *front_KPH.shape))
            return jnp.concatenate([front_BKPH, x_BKSH], axis=2)

        seen_BTS = jnp.pad(seen_BTS, ((0, 0), (0, 0), (k_KPH.shape[1], 0)), constant_values=True)
        return join(k_KPH, k_BKSH), join(v_KPH, v_BKSH), seen_BTS
