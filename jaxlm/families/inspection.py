"""What a model does inside on a text: for looking, not for training.

Legend: B rows, T positions, D width, N query heads, E experts, k experts a token.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from jaxlm.families.model import Model
from jaxlm.layers.attention import Attention
from jaxlm.layers.experts import Experts
from jaxlm.layers.parameters import Tree
from jaxlm.layers.reading import Mixer, Reading
from jaxlm.layers.segment_attention import SegmentAttention
from jaxlm.layers.structure import Structure


@dataclass
class _Watching(Reading):
    """A reading that keeps the weights of every attention it meets; what the block computes is the same."""

    seen: list[jax.Array] = field(default_factory=list)

    def mix(self, name: str, part: Mixer | None, x: jax.Array) -> jax.Array:
        if isinstance(part, Attention | SegmentAttention):
            self.seen.append(part.weights(x, self))
        return super().mix(name, part, x)


class _WatchedExperts:
    """Experts that keep which of them each position chose; what they compute is the same."""

    def __init__(self, experts: Experts) -> None:
        self.experts = experts

    def __call__(self, x_BTD: jax.Array, reading: Reading) -> jax.Array:
        self.chosen_BTk = np.asarray(jax.lax.top_k(self.experts.router(x_BTD), self.experts.num_chosen)[1])
        return self.experts(x_BTD, reading)


def attention_weights(model: Model, params: Tree, tokens_BT: Any, structure: Structure) -> dict[str, list[jax.Array]]:
    """The attention maps of every layer on a clean text.

    Args:
      tokens_BT: int [B, T].
      structure: who sees whom, with one stream.

    Returns:
      By layer, in the order in which they run, the weights [B, N, T, T] (query, key) of each attention in it, in the
      compute dtype. Of attention within segments they are [B, N, T, P + T] on the lengthened row, the P persistent keys
      first; attention inside a memory as context is not shown.
    """
    return {name: reading.seen for name, _, reading in _blocks(model.bind(params), tokens_BT, structure)}


def hidden_states(model: Model, params: Tree, tokens_BT: Any, structure: Structure) -> dict[str, jax.Array]:
    """The residual stream [B, T, D] by layer, in the order in which they run: "in" before the first, then after each.

    The final norm is not applied; T is what the blocks see, more than the tokens in a family that lengthens a row.
    Arguments as of `attention_weights`.
    """
    module = model.bind(params)
    return {"in": _enter(module, tokens_BT)} | {name: x_BTD for name, x_BTD, _ in _blocks(module, tokens_BT, structure)}


def expert_load(model: Model, params: Tree, tokens_BT: Any, structure: Structure) -> dict[str, np.ndarray]:
    """The share [E] of all choices that falls on each expert, by layer; a layer without experts is left out.

    An even load is 1 / E each. Arguments as of `attention_weights`.
    """
    module, load = model.bind(params), {}
    for block in module.layers.values():
        for attribute, part in list(vars(block).items()):
            if isinstance(part, Experts):
                setattr(block, attribute, nnx.static(_WatchedExperts(part)))
    for (name, block), _ in zip(module.order(), _blocks(module, tokens_BT, structure), strict=True):
        for part in vars(block).values():
            if isinstance(part, _WatchedExperts):
                count_E = np.bincount(part.chosen_BTk.ravel(), minlength=model.config.num_experts)
                load[name] = count_E / count_E.sum()
    return load


def effective_rank(x_ND: Any) -> float:
    """The exponential of the entropy of the singular values, whose sum is made 1 (Roy & Vetterli 2007): 1 to min(N, D).

    As defined there, the mean is not taken off; a matrix of zeros has none, and gives nan.
    """
    values = np.linalg.svd(np.asarray(x_ND, np.float64), compute_uv=False)
    total = values.sum()
    share = values[values > 0] / total if total > 0 else np.array([np.nan])
    return float(np.exp(-(share * np.log(share)).sum()))


def attention_entropy(weights_BNTT: Any) -> np.ndarray:
    """Entropy of each head's weights in nats, [N]: the mean over rows and positions that look.

    0 is a head that always looks at one position, log n one that looks at n evenly.
    """
    w_BNTT = np.asarray(weights_BNTT, np.float64)
    logs_BNTT = np.log(w_BNTT, out=np.zeros_like(w_BNTT), where=w_BNTT > 0)
    return -(w_BNTT * logs_BNTT).sum(-1).mean((0, 2))


def _enter(module: Any, tokens_BT: Any) -> jax.Array:
    tokens_BT = jnp.asarray(tokens_BT, jnp.int32)
    return module.enter(tokens_BT, jnp.arange(tokens_BT.shape[1], dtype=jnp.int32)[None])


def _blocks(module: Any, tokens_BT: Any, structure: Structure) -> Iterator[tuple[str, jax.Array, _Watching]]:
    """Runs the blocks one by one: yields the name of each, what it leaves in the stream, and its reading."""
    assert structure.streams == 1, structure
    x_BTD = _enter(module, tokens_BT)
    positions_BT = jnp.arange(x_BTD.shape[1], dtype=jnp.int32)[None]
    for name, block in module.order():
        reading = _Watching(structure, positions_BT)
        x_BTD = block(x_BTD, reading)
        yield name, x_BTD, reading
