"""What a hidden state depends on, found by gradients, and rules about it as matrices of bool."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np


def influence(hidden: Callable[[jax.Array], jax.Array], x_RD: jax.Array) -> np.ndarray:
    """bool [positions, R]: whether a hidden state depends on an input, for `hidden` from [R, D] to [positions, D]."""
    y, pull = jax.vjp(hidden, x_RD)
    # One direction per position: that the part of a gradient along it vanishes by accident is as good as impossible.
    along = jnp.eye(len(y))[:, :, None] * jax.random.normal(jax.random.key(6), y.shape[-1:])
    # One after another: XLA 0.10.2 for CPUs gets a vmapped backward pass of norms over several heads wrong.
    return jax.lax.map(lambda one: jnp.abs(pull(one)[0]).sum(-1), along) > 0


def pairs(rule: Callable[[int, int], bool], size: int) -> np.ndarray:
    return np.array([[rule(query, key) for key in range(size)] for query in range(size)])


def then(later: np.ndarray, earlier: np.ndarray) -> np.ndarray:
    return (later.astype(int) @ earlier.astype(int)) > 0
