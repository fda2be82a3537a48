"""From logits to tokens, in fp32. Legend: B rows, N positions, V vocabulary."""

from __future__ import annotations

from dataclasses import dataclass

import jax
import jax.numpy as jnp

from jaxlm.errors import UserError

_NEVER = -jnp.inf


@dataclass(frozen=True)
class Sampling:
    """How a token is chosen. temperature 0 is greedy, and then top_k and top_p have nothing to do.

    Temperatures and penalties that single precision would turn into infinities are refused.
    """

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    repetition_penalty: float = 1.0

    def __post_init__(self) -> None:
        for name, good, allowed in (
            ("temperature", self.temperature == 0 or 1e-3 <= self.temperature <= 1e3, "0 (greedy), or 0.001 to 1000"),
            ("top_k", self.top_k >= 0, "at least 0 (0: all tokens)"),
            ("top_p", 0 < self.top_p <= 1, "above 0, at most 1"),
            ("repetition_penalty", 1e-3 <= self.repetition_penalty <= 1e3, "0.001 to 1000 (1: none)"),
        ):
            if not good:
                raise UserError(f"--{name} is {getattr(self, name)}, allowed: {allowed}")


def restrict(logits: jax.Array, tokenizer_size: int, *never: int | None) -> jax.Array:
    """-inf for ids that are not to be written: those beyond the tokenizer, and each of `never` (the mask token)."""
    ids_V = jnp.arange(logits.shape[-1])
    forbidden_V = ids_V >= tokenizer_size
    for token_id in never:
        forbidden_V |= ids_V == (-1 if token_id is None else token_id)
    return jnp.where(forbidden_V, _NEVER, logits)


def penalise(logits: jax.Array, counted: jax.Array, penalty: float) -> jax.Array:
    """Makes counted tokens less likely: positive logits are divided, negative ones multiplied (CTRL, arXiv 1909.05858).

    Args:
      logits: fp32 [..., V].
      counted: bool, broadcastable to the logits.
    """
    if penalty == 1.0:
        return logits
    return jnp.where(counted, jnp.where(logits > 0, logits / penalty, logits * penalty), logits)


def mark(counted_BV: jax.Array, tokens_BN: jax.Array, real_BN: jax.Array) -> jax.Array:
    """`counted` with the real ones of these tokens marked too."""
    rows = jnp.arange(tokens_BN.shape[0])[:, None]
    return counted_BV.at[rows, tokens_BN].max(real_BN)


def draw(logits: jax.Array, keys: jax.Array, sampling: Sampling) -> jax.Array:
    """Chooses one token at each position: int32 [...] from fp32 [..., V] and keys [...], one a position.

    The order is transformers': temperature, then top-k, then top-p.
    """
    assert keys.shape == logits.shape[:-1]  # a key that is shared would draw the same everywhere
    if sampling.temperature == 0:
        return jnp.argmax(logits, axis=-1).astype(jnp.int32)
    logits = logits / sampling.temperature
    if sampling.top_k:
        kth = jax.lax.top_k(logits, min(sampling.top_k, logits.shape[-1]))[0][..., -1:]
        logits = jnp.where(logits < kth, _NEVER, logits)
    if sampling.top_p < 1:
        ordered = -jnp.sort(-logits, axis=-1)
        mass_before = jnp.cumsum(jax.nn.softmax(ordered, axis=-1), axis=-1) - jax.nn.softmax(ordered, axis=-1)
        least = jnp.min(jnp.where(mass_before < sampling.top_p, ordered, jnp.inf), axis=-1, keepdims=True)
        logits = jnp.where(logits < least, _NEVER, logits)
    return jnp.vectorize(jax.random.categorical, signature="(),(v)->()")(keys, logits).astype(jnp.int32)
