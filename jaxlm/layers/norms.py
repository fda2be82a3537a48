"""Norms over the last axis, computed in fp32 or what is wider."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from flax import nnx

from jaxlm.layers.parameters import Constant, parameter
from jaxlm.layers.recompute import recomputed
from jaxlm.model_config import ModelConfig


class RMSNorm(nnx.Module):
    """x / rms(x) * scale (Zhang and Sennrich 2019; transformers' LlamaRMSNorm).

    With `unit_offset` the factor is 1 + scale, which starts at 0 (transformers' Gemma3RMSNorm). With `heads` the input
    is [..., heads, width] and each head has a scale of its own.
    """

    def __init__(
        self, width: int, *, eps: float, unit_offset: bool = False, heads: int = 0, logical: str | None = "embed"
    ) -> None:
        start = Constant(0.0 if unit_offset else 1.0)
        self.scale = (
            parameter((heads, width), start, (None, logical)) if heads else parameter((width,), start, (logical,))
        )
        self.eps, self.offset = eps, 1.0 if unit_offset else 0.0

    def __call__(self, x: jax.Array) -> jax.Array:
        """[..., width], any dtype, to the same shape and dtype."""

        @recomputed
        def normalise(x: jax.Array, scale: jax.Array) -> jax.Array:
            x32 = x.astype(jnp.promote_types(x.dtype, jnp.float32))
            inverse = jax.lax.rsqrt(jnp.mean(jnp.square(x32), axis=-1, keepdims=True) + self.eps)
            return (x32 * inverse * (scale + self.offset)).astype(x.dtype)

        return normalise(x, self.scale[...])


class LayerNorm(nnx.Module):
    """(x - mean(x)) / std(x) * scale, plus a bias if there is one (arXiv 1607.06450; torch's LayerNorm)."""

    def __init__(self, width: int, *, eps: float, bias: bool) -> None:
        self.scale = parameter((width,), Constant(1.0), ("embed",))
        self.bias = parameter((width,), Constant(0.0), ("embed",)) if bias else None
        self.eps = eps

    def __call__(self, x: jax.Array) -> jax.Array:
        """[..., width], any dtype, to the same shape and dtype."""

        @recomputed
        def normalise(x: jax.Array, scale: jax.Array, bias: jax.Array | float) -> jax.Array:
            x32 = x.astype(jnp.promote_types(x.dtype, jnp.float32))
            centred = x32 - jnp.mean(x32, axis=-1, keepdims=True)
            inverse = jax.lax.rsqrt(jnp.mean(jnp.square(centred), axis=-1, keepdims=True) + self.eps)
            return (centred * inverse * scale + bias).astype(x.dtype)

        return normalise(x, self.scale[...], 0.0 if self.bias is None else self.bias[...])


def norm(config: ModelConfig) -> RMSNorm | LayerNorm:
    """The norm of the residual stream that a configuration asks for."""
    if config.norm == "layer":
        return LayerNorm(config.hidden_size, eps=config.norm_eps, bias=bool(config.use_bias))
    return RMSNorm(config.hidden_size, eps=config.norm_eps, unit_offset=config.norm == "rms_unit_offset")


def head_norm(config: ModelConfig) -> RMSNorm | None:
    """The norm of each query or key head, one scale for all heads; None without `qk_norm`."""
    if not config.qk_norm:
        return None
    unit_offset = config.norm == "rms_unit_offset"
    return RMSNorm(config.head_dim, eps=config.norm_eps, unit_offset=unit_offset, logical=None)
