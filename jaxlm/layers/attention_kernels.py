"""Attention over a whole sequence, in three implementations that agree: `xla`, `blocked` and `cudnn`.

Legend: B rows, T queries, S keys, N query heads, K key/value heads, G = N / K queries a key head, H head dim.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxlm.errors import UserError
from jaxlm.layers.linear import contract_rows, precision
from jaxlm.layers.structure import Structure

QUERY_BLOCK = 128
_HIDDEN = -1e30  # finite, so that a row of padding that sees nothing gives numbers and not NaN


def choose(name: str, *, backend: str, dtype: str, head_dim: int) -> str:
    """The implementation that `auto` means on a backend; refuses cuDNN where it cannot run.

    cuDNN's limits are those of `jax.nn.dot_product_attention`: 16-bit, head size a multiple of 8 and at most 128.
    """
    cudnn_fits = dtype == "bfloat16" and head_dim % 8 == 0 and head_dim <= 128
    if name == "cudnn" and not cudnn_fits:
        raise UserError(
            f"execution.attention is 'cudnn' with execution.dtype {dtype!r} and model.head_dim {head_dim}, "
            "allowed: bfloat16 and a multiple of 8 up to 128"
        )
    if name != "auto":
        return name
    if backend == "cpu":
        return "blocked"
    return "cudnn" if backend == "gpu" and cudnn_fits else "xla"


def attend(
    q_BTNH: jax.Array,
    k_BTKH: jax.Array,
    v_BTKH: jax.Array,
    structure: Structure,
    *,
    window: int,
    segments_BT: jax.Array | None,
    allowed_TT: jax.Array | None = None,
    implementation: str,
) -> jax.Array:
    """softmax(q k / sqrt(H)) v over what the structure lets each query see; softmax in fp32.

    Args:
      q_BTNH, k_BTKH, v_BTKH: one dtype; N is a multiple of K.
      structure: the rule; with two streams T = 2L.
      window: W of a local layer, 0 for a global one.
      segments_BT: int32 document numbers if documents are isolated, else None.
      allowed_TT: bool, query by key: what may be seen at most, where that is drawn at random. It leaves nothing to
        skip, so that all scores are built, as `xla` does.
      implementation: `xla` builds all scores; `blocked` skips the keys that a block of queries cannot see, which is
        what a CPU needs; `cudnn` is the fused kernel of NVIDIA GPUs.

    Returns:
      [B, T, N, H] in q's dtype.
    """
    if allowed_TT is not None:
        implementation = "xla"
    if implementation == "cudnn":
        return _cudnn(q_BTNH, k_BTKH, v_BTKH, structure, window, segments_BT)
    q, k, v = _heads_first(q_BTNH, k_BTKH.shape[2]), k_BTKH.swapaxes(1, 2), v_BTKH.swapaxes(1, 2)
    size = q_BTNH.shape[1]
    step = QUERY_BLOCK if implementation == "blocked" else size
    parts = []
    for start in range(0, size, step):
        stop = min(start + step, size)
        runs = structure.key_runs(start, stop, size, window) if implementation == "blocked" else [(0, size)]
        keys_S = np.concatenate([np.arange(lo, hi) for lo, hi in runs])
        seen = _visible(structure, np.arange(start, stop), keys_S, size, window)
        if allowed_TT is not None:
            seen = allowed_TT if seen is None else allowed_TT & seen
        if segments_BT is not None:
            own = segments_BT[:, start:stop, None] == segments_BT[:, None, keys_S]
            seen = own if seen is None else own & seen
        pick = (lambda x, runs=runs: x) if runs == [(0, size)] else (lambda x, runs=runs: _take_runs(x, runs))
        parts.append(scores_to_values(q[:, :, :, start:stop], pick(k), pick(v), seen))
    return _heads_last(jnp.concatenate(parts, axis=3) if len(parts) > 1 else parts[0])


def scores_to_values(q_BKGTH: jax.Array, k_BKSH: jax.Array, v_BKSH: jax.Array, seen: jax.Array | None) -> jax.Array:
    """The core: [B, K, G, T, H] queries on [B, K, S, H] keys and values; `seen` is bool [T, S] or [B, T, S] or None.

    Queries that share a key head are rows of one matrix, so that every product is one contiguous batched matmul.
    """
    B, K, G, T, H = q_BKGTH.shape
    seen_BT = seen[None] if seen is not None and seen.ndim == 2 else seen
    out = _core(q_BKGTH.reshape(B, K, G * T, H), k_BKSH, v_BKSH, seen_BT)
    return out.reshape(B, K, G, T, -1).astype(q_BKGTH.dtype)


def _product(a: jax.Array, b: jax.Array, over_a: int, over_b: int) -> jax.Array:
    options: dict[str, Any] = dict(precision=precision(a.dtype), preferred_element_type=jnp.float32)
    return jax.lax.dot_general(a, b, (((over_a,), (over_b,)), ((0, 1), (0, 1))), **options)


@jax.custom_vjp
def _core(q_BKRH: jax.Array, k_BKSH: jax.Array, v_BKSH: jax.Array, seen: jax.Array | None) -> jax.Array:
    """Rows R of queries, `seen` bool [1 or B, T, S] with R = G * T; fp32 [B, K, R, H]."""
    return _core_forward(q_BKRH, k_BKSH, v_BKSH, seen)[0]


def _core_forward(
    q_BKRH: jax.Array, k_BKSH: jax.Array, v_BKSH: jax.Array, seen: jax.Array | None
) -> tuple[jax.Array, Any]:
    scores = _product(q_BKRH, k_BKSH, 3, 3) * q_BKRH.shape[-1] ** -0.5
    if seen is not None:
        B, K, R, S = scores.shape
        by_query = scores.reshape(B, K, R // seen.shape[1], seen.shape[1], S)
        scores = jnp.where(seen[:, None, None], by_query, _HIDDEN).reshape(scores.shape)
    weights = jax.nn.softmax(scores, axis=-1).astype(v_BKSH.dtype)
    out = _product(weights, v_BKSH, 3, 2)
    return out, (q_BKRH, k_BKSH, v_BKSH, weights, out)


def _core_backward(saved: Any, grad: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array, None]:
    """By hand, because sum(dweights * weights) over the keys is sum(grad * out), H numbers a row instead of S (arXiv
    2205.14135, B.2), and so that the gradients of keys and values are products that `contract_rows` makes.
    """
    q, k, v, weights, out = saved
    low = grad.astype(v.dtype)
    shift = jnp.sum(grad * out, axis=-1, keepdims=True)
    dscores = (weights * (_product(low, v, 3, 3) - shift) * q.shape[-1] ** -0.5).astype(q.dtype)
    # The narrow operand is the one that is turned.
    dk, dv = contract_rows(q, dscores).swapaxes(2, 3), contract_rows(low, weights).swapaxes(2, 3)
    return _product(dscores, k, 3, 2).astype(q.dtype), dk.astype(k.dtype), dv.astype(v.dtype), None


_core.defvjp(_core_forward, _core_backward)


def _heads_first(q_BTNH: jax.Array, num_kv_heads: int) -> jax.Array:
    B, T, N, H = q_BTNH.shape
    return q_BTNH.reshape(B, T, num_kv_heads, N // num_kv_heads, H).transpose(0, 2, 3, 1, 4)


def _heads_last(x_BKGTH: jax.Array) -> jax.Array:
    B, K, G, T, H = x_BKGTH.shape
    return x_BKGTH.transpose(0, 3, 1, 2, 4).reshape(B, T, K * G, H)


def _take_runs(x_BKSH: jax.Array, runs: list[tuple[int, int]]) -> jax.Array:
    pieces = [x_BKSH[:, :, lo:hi] for lo, hi in runs]
    return jnp.concatenate(pieces, axis=2) if len(pieces) > 1 else pieces[0]


def _visible(structure: Structure, query: np.ndarray, key: np.ndarray, size: int, window: int) -> jax.Array | None:
    """Bool [T, S], computed in the graph from indices; None where every query sees every key."""
    length = size // structure.streams
    if structure.visible(query[:, None], key[None, :], length, window).all():
        return None
    return structure.visible(jnp.asarray(query)[:, None], jnp.asarray(key)[None, :], length, window)


def _cudnn(
    q_BTNH: jax.Array,
    k_BTKH: jax.Array,
    v_BTKH: jax.Array,
    structure: Structure,
    window: int,
    segments_BT: jax.Array | None,
) -> jax.Array:
    """The fused kernel knows causal, causal with a window, and everything; the rest it reads from a mask."""
    options: dict[str, Any] = {}
    if segments_BT is None and structure.causal:
        options = {"is_causal": True, "local_window_size": (window - 1, 0) if window else None}
    elif segments_BT is not None or structure.block_size or structure.streams == 2 or window:
        index = np.arange(q_BTNH.shape[1])
        mask = _visible(structure, index, index, len(index), window)
        mask = jnp.ones((len(index),) * 2, bool)[None] if mask is None else mask[None]
        if segments_BT is not None:
            mask = mask & (segments_BT[:, :, None] == segments_BT[:, None, :])
        options = {"mask": mask[:, None]}
    return jax.nn.dot_product_attention(q_BTNH, k_BTKH, v_BTKH, implementation="cudnn", **options)
