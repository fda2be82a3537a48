"""Matrices and embedding. Legend: B rows, T positions, D width, V vocabulary."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from flax import nnx
from jax.typing import DTypeLike

from jaxlm.layers.parameters import Constant, Initializer, Normal, parameter
from jaxlm.model_config import ModelConfig


def precision(dtype: DTypeLike) -> jax.lax.Precision:
    """fp32 means fp32 on every backend: a GPU's TF32 and a TPU's bf16 passes are not left to chance."""
    return jax.lax.Precision.HIGHEST if jnp.dtype(dtype) == jnp.float32 else jax.lax.Precision.DEFAULT


def residual_std(config: ModelConfig) -> float:
    """How wide the matrices that write to the residual stream start: GPT-2 has them smaller by sqrt(2 L)."""
    return config.init_std / (2 * config.num_layers) ** 0.5 if config.scale_residual_init else config.init_std


def contract_rows(x: jax.Array, y: jax.Array) -> jax.Array:
    """x.T @ y over the second-last axis: [..., R, I] and [..., R, J] to [..., I, J], sums at least in fp32.

    The gradient of every matrix is such a product. XLA's fast CPU kernel takes a product only if its left side is
    contracted over the last axis, so there x is turned first; the barrier keeps XLA from undoing that.
    """
    batch = tuple(range(x.ndim - 2))
    row = x.ndim - 2

    def product(x: jax.Array, y: jax.Array, axis: int) -> jax.Array:
        return jax.lax.dot_general(
            x,
            y,
            (((axis,), (row,)), (batch, batch)),
            precision=precision(x.dtype),
            preferred_element_type=jnp.promote_types(x.dtype, jnp.float32),
        )

    def turned(x: jax.Array, y: jax.Array) -> jax.Array:
        return jax.lax.optimization_barrier(product(jax.lax.optimization_barrier(x.swapaxes(-1, -2)), y, row + 1))

    return jax.lax.platform_dependent(x, y, cpu=turned, default=lambda x, y: product(x, y, row))


@jax.custom_vjp
def matmul(x: jax.Array, kernel: jax.Array) -> jax.Array:
    """[..., I] @ [I, J] in their dtype."""
    return jnp.matmul(x, kernel, precision=precision(x.dtype))


def _matmul_forward(x: jax.Array, kernel: jax.Array) -> tuple[jax.Array, tuple[jax.Array, jax.Array]]:
    # Not by way of `matmul`, in which the recomputation policies would not see that it is a product.
    return jnp.matmul(x, kernel, precision=precision(x.dtype)), (x, kernel)


def _matmul_backward(saved: tuple[jax.Array, jax.Array], dy: jax.Array) -> tuple[jax.Array, jax.Array]:
    x, kernel = saved
    dx = jnp.matmul(dy, kernel.T, precision=precision(x.dtype))
    flat_x, flat_dy = x.reshape(-1, x.shape[-1]), dy.reshape(-1, dy.shape[-1])
    return dx, contract_rows(flat_x, flat_dy).astype(kernel.dtype)


matmul.defvjp(_matmul_forward, _matmul_backward)


class Linear(nnx.Module):
    """y = x @ kernel, plus a bias if there is one, computed in `dtype`; `bias` may say where it starts, else at 0."""

    def __init__(
        self,
        inputs: int,
        outputs: int,
        *,
        std: float,
        logical: tuple[str, str],
        dtype: DTypeLike,
        bias: bool | Initializer = False,
    ) -> None:
        self.kernel = parameter((inputs, outputs), Normal(std), logical)
        start = Constant(0.0) if bias is True else bias
        self.bias = parameter((outputs,), start, (logical[1],)) if start else None
        self.dtype = jnp.dtype(dtype)

    def __call__(self, x: jax.Array) -> jax.Array:
        """[..., inputs] to [..., outputs]."""
        y = matmul(x.astype(self.dtype), self.kernel[...].astype(self.dtype))
        return y if self.bias is None else y + self.bias[...].astype(self.dtype)


class Embedding(nnx.Module):
    """A row of `table` for each token; also a head that is not tied."""

    def __init__(self, vocab_size: int, width: int, *, std: float, dtype: DTypeLike) -> None:
        self.table = parameter((vocab_size, width), Normal(std), ("vocab", "embed"))
        self.dtype = jnp.dtype(dtype)

    def __call__(self, tokens_BT: jax.Array) -> jax.Array:
        """int32 [B, T] to [B, T, D] in `dtype`."""
        return self.table[...][tokens_BT].astype(self.dtype)


@jax.custom_vjp
def logits(x: jax.Array, head_VD: jax.Array) -> jax.Array:
    """[..., D] and [V, D] to fp32 [..., V]: operands in x's dtype, sums and result in fp32."""
    return jax.lax.dot_general(
        x,
        head_VD.astype(x.dtype),
        (((x.ndim - 1,), (1,)), ((), ())),
        precision=precision(x.dtype),
        preferred_element_type=jnp.float32,
    )


def _logits_forward(x: jax.Array, head_VD: jax.Array) -> tuple[jax.Array, tuple[jax.Array, jax.Array]]:
    return logits(x, head_VD), (x, head_VD)


def _logits_backward(saved: tuple[jax.Array, jax.Array], dy: jax.Array) -> tuple[jax.Array, jax.Array]:
    # Products as the automatic derivative has them: what arrives in fp32 meets operands that stay as they are.
    x, head_VD = saved
    dx = jax.lax.dot_general(
        dy,
        head_VD.astype(x.dtype),
        (((dy.ndim - 1,), (0,)), ((), ())),
        precision=precision(x.dtype),
        preferred_element_type=jnp.float32,
    ).astype(x.dtype)
    # [D, V] and turned: x is small, dy is not.
    flat_x, flat_dy = x.reshape(-1, x.shape[-1]), dy.reshape(-1, dy.shape[-1])
    return dx, contract_rows(flat_x, flat_dy).T.astype(head_VD.dtype)


logits.defvjp(_logits_forward, _logits_backward)
