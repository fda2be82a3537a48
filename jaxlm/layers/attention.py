"""Grouped-query attention, with or without rotary positions, whole and with a cache.

Legend: B rows, T positions, b new positions, S cache length, D width, N query heads, K key/value heads, H head dim.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx

from jaxlm.config import ExecutionConfig
from jaxlm.layers.attention_kernels import attend, scores_to_values
from jaxlm.layers.canon import canon
from jaxlm.layers.linear import Linear, residual_std
from jaxlm.layers.norms import head_norm
from jaxlm.layers.reading import Cache, Reading
from jaxlm.layers.rotary import rotate
from jaxlm.model_config import ModelConfig


class Attention(nnx.Module):
    """One matrix makes queries, keys and values; Canon B, if there is one, sits on all three before the heads part.

    `kind` is the layer's letter: an L layer has a window, and its own rotary base.
    """

    def __init__(self, config: ModelConfig, execution: ExecutionConfig, kind: str) -> None:
        N, K, H = config.num_heads, config.num_kv_heads, config.head_dim
        make: dict[str, Any] = dict(dtype=execution.dtype, bias=bool(config.use_bias))
        self.qkv = Linear(config.hidden_size, (N + 2 * K) * H, std=config.init_std, logical=("embed", "heads"), **make)
        self.canon_b = canon(config, execution, "B", (N + 2 * K) * H, "heads")
        self.query_norm, self.key_norm = head_norm(config), head_norm(config)
        self.out = Linear(N * H, config.hidden_size, std=residual_std(config), logical=("heads", "embed"), **make)
        self.num_heads, self.num_kv_heads, self.head_dim = N, K, H
        self.window = config.sliding_window if kind == "L" else 0
        theta = (config.rope_theta_local if kind == "L" else 0) or config.rope_theta
        self.theta = theta if config.positions == "rope" else None
        # The kernels divide by sqrt(head_dim).
        self.query_factor = (H / config.query_scalar) ** 0.5 if config.query_scalar else 1.0
        self.implementation, self.dtype = execution.attention, jnp.dtype(execution.dtype)

    def whole(self, x_BTD: jax.Array, reading: Reading) -> jax.Array:
        """[B, T, D] to [B, T, D] over a whole sequence."""
        q_BTNH, k_BTKH, v_BTKH = self._project(x_BTD, reading)
        out_BTNH = attend(
            q_BTNH,
            k_BTKH,
            v_BTKH,
            reading.structure,
            window=self.window,
            segments_BT=reading.segments_BT,
            allowed_TT=reading.allowed_TT,
            implementation=self.implementation,
        )
        return self.out(out_BTNH.reshape(*x_BTD.shape[:2], -1))

    def weights(self, x_BTD: jax.Array, reading: Reading) -> jax.Array:
        """How much of each position each query takes, in the reading of `whole`: [B, N, T, T], rows sum to 1."""
        q_BTNH, k_BTKH, _ = self._project(x_BTD, reading)
        B, T, K, _ = k_BTKH.shape
        # Attention to one-hot values is the weights: so they come from the code that `whole` runs.
        one_hot_BTKT = jnp.broadcast_to(jnp.eye(T, dtype=q_BTNH.dtype)[:, None], (B, T, K, T))
        out_BTNT = attend(
            q_BTNH,
            k_BTKH,
            one_hot_BTKT,
            reading.structure,
            window=self.window,
            segments_BT=reading.segments_BT,
            allowed_TT=reading.allowed_TT,
            implementation="xla",
        )
        return out_BTNT.swapaxes(1, 2)

    def init_cache(self, batch: int, length: int) -> Cache:
        """Keys and values of `length` positions, heads first so that reading them is one contiguous product."""
        shape = (batch, self.num_kv_heads, length, self.head_dim)
        return {"keys": jnp.zeros(shape, self.dtype), "values": jnp.zeros(shape, self.dtype)}

    def extend(self, x_BbD: jax.Array, reading: Reading, cache: Cache) -> tuple[jax.Array, Cache]:
        """Writes the new keys and values behind the accepted ones and attends to both.

        What is written and not accepted lies beyond `length_B` and is overwritten by the next call.
        """
        assert reading.length_B is not None and reading.num_new_B is not None
        q_BbNH, k_BbKH, v_BbKH = self._project(x_BbD, reading)
        write = jax.vmap(lambda old_KSH, new_KbH, at: jax.lax.dynamic_update_slice_in_dim(old_KSH, new_KbH, at, axis=1))
        cache = {
            "keys": write(cache["keys"], k_BbKH.swapaxes(1, 2), reading.length_B),
            "values": write(cache["values"], v_BbKH.swapaxes(1, 2), reading.length_B),
        }
        B, b = x_BbD.shape[:2]
        key_S = jnp.arange(cache["keys"].shape[2])
        query_Bb1 = (reading.length_B[:, None] + jnp.arange(b))[:, :, None]
        seen_BbS = reading.structure.visible(query_Bb1, key_S, key_S.size, self.window)
        seen_BbS &= key_S < (reading.length_B + reading.num_new_B)[:, None, None]
        groups = self.num_heads // self.num_kv_heads
        q_BKGbH = q_BbNH.reshape(B, b, self.num_kv_heads, groups, self.head_dim).transpose(0, 2, 3, 1, 4)
        out_BKGbH = scores_to_values(q_BKGbH, cache["keys"], cache["values"], seen_BbS)
        return self.out(out_BKGbH.transpose(0, 3, 1, 2, 4).reshape(B, b, -1)), cache

    def commit(self, cache: Cache, n_B: jax.Array) -> Cache:
        """Nothing to do: the accepted length, which the model keeps, says what is real."""
        del n_B
        return cache

    def _project(self, x_BTD: jax.Array, reading: Reading) -> tuple[jax.Array, jax.Array, jax.Array]:
        N, K, H = self.num_heads, self.num_kv_heads, self.head_dim
        qkv = reading.mix("canon_b", self.canon_b, self.qkv(x_BTD))
        qkv = qkv.reshape(*qkv.shape[:2], N + 2 * K, H)
        q, k, v = jnp.split(qkv, [N, N + K], axis=2)
        if self.query_norm is not None and self.key_norm is not None:
            q, k = self.query_norm(q), self.key_norm(k)
        if self.theta is not None:
            q, k = (rotate(x, reading.positions_BT, self.theta) for x in (q, k))
        return (q if self.query_factor == 1.0 else q * self.query_factor), k, v
