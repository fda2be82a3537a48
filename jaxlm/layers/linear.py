"""Matrices, norm and embedding. Legend: B rows, T positions, D width, V vocabulary."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from flax import nnx
from jax.typing import DTypeLike

from jaxlm.layers.parameters import Constant, Normal, parameter
from jaxlm.layers.recompute import recomputed


def precision(dtype: DTypeLike) -> jax.lax.Precision:
    """fp32 means fp32 on every backend: a GPU's TF32 and a TPU's bf16 passes are not left to chance."""
    return jax.lax.Precision.HIGHEST if jnp.dtype(dtype) == jnp.float32 else jax.lax.Precision.DEFAULT


class Linear(nnx.Module):
    """y = x @ kernel, computed in `dtype`."""

    def __init__(self, inputs: int, outputs: int, *, std: float, logical: tuple[str, str], dtype: DTypeLike) -> None:
        self.kernel = parameter((inputs, outputs), Normal(std), logical)
        self.dtype = jnp.dtype(dtype)

    def __call__(self, x: jax.Array) -> jax.Array:
        """[..., inputs] to [..., outputs]."""
        return jnp.matmul(x.astype(self.dtype), self.kernel[...].astype(self.dtype), precision=precision(self.dtype))


class RMSNorm(nnx.Module):
    """x / rms(x) * scale over the last axis, computed in fp32 (Zhang and Sennrich 2019; transformers' LlamaRMSNorm)."""

    def __init__(self, width: int, *, eps: float) -> None:
        self.scale = parameter((width,), Constant(1.0), ("embed",))
        self.eps = eps

    def __call__(self, x: jax.Array) -> jax.Array:
        """[..., width], any dtype, to the same shape and dtype."""

        @recomputed
        def normalise(x: jax.Array, scale: jax.Array) -> jax.Array:
            x32 = x.astype(jnp.float32)
            inverse = jax.lax.rsqrt(jnp.mean(jnp.square(x32), axis=-1, keepdims=True) + self.eps)
            return (x32 * inverse * scale).astype(x.dtype)

        return normalise(x, self.scale[...])


class Embedding(nnx.Module):
    """A row of `table` for each token; also a head that is not tied."""

    def __init__(self, vocab_size: int, width: int, *, std: float, dtype: DTypeLike) -> None:
        self.table = parameter((vocab_size, width), Normal(std), ("vocab", "embed"))
        self.dtype = jnp.dtype(dtype)

    def __call__(self, tokens_BT: jax.Array) -> jax.Array:
        """int32 [B, T] to [B, T, D] in `dtype`."""
        return self.table[...][tokens_BT].astype(self.dtype)


def logits(x: jax.Array, head_VD: jax.Array) -> jax.Array:
    """[..., D] and [V, D] to fp32 [..., V]: operands in x's dtype, sums and result in fp32."""
    return jax.lax.dot_general(
        x,
        head_VD.astype(x.dtype),
        (((x.ndim - 1,), (1,)), ((), ())),
        precision=precision(x.dtype),
        preferred_element_type=jnp.float32,
    )
