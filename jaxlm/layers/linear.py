"""Matrices and embedding. Legend: B rows, T positions, D width, V vocabulary."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from flax import nnx
from jax.typing import DTypeLike

from jaxlm.layers.parameters import Constant, Normal, parameter
from jaxlm.model_config import ModelConfig


def precision(dtype: DTypeLike) -> jax.lax.Precision:
    """fp32 means fp32 on every backend: a GPU's TF32 and a TPU's bf16 passes are not left to chance."""
    return jax.lax.Precision.HIGHEST if jnp.dtype(dtype) == jnp.float32 else jax.lax.Precision.DEFAULT


def residual_std(config: ModelConfig) -> float:
    """How wide the matrices that write to the residual stream start: GPT-2 has them smaller by sqrt(2 L)."""
    return config.init_std / (2 * config.num_layers) ** 0.5 if config.scale_residual_init else config.init_std


class Linear(nnx.Module):
    """y = x @ kernel, plus a bias if there is one, computed in `dtype`."""

    def __init__(
        self, inputs: int, outputs: int, *, std: float, logical: tuple[str, str], dtype: DTypeLike, bias: bool = False
    ) -> None:
        self.kernel = parameter((inputs, outputs), Normal(std), logical)
        self.bias = parameter((outputs,), Constant(0.0), (logical[1],)) if bias else None
        self.dtype = jnp.dtype(dtype)

    def __call__(self, x: jax.Array) -> jax.Array:
        """[..., inputs] to [..., outputs]."""
        y = jnp.matmul(x.astype(self.dtype), self.kernel[...].astype(self.dtype), precision=precision(self.dtype))
        return y if self.bias is None else y + self.bias[...].astype(self.dtype)


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
