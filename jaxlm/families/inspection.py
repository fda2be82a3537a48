"""What a model does inside on a text: for looking, not for training.

Legend: B rows, T positions, N query heads.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp

from jaxlm.families.model import Model
from jaxlm.layers.attention import Attention
from jaxlm.layers.parameters import Tree
from jaxlm.layers.reading import Mixer, Reading
from jaxlm.layers.structure import Structure


@dataclass
class _Watching(Reading):
    """A reading that keeps the weights of every attention it meets; what the block computes is the same."""

    seen: list[jax.Array] = field(default_factory=list)

    def mix(self, name: str, part: Mixer | None, x: jax.Array) -> jax.Array:
        if isinstance(part, Attention):
            self.seen.append(part.weights(x, self))
        return super().mix(name, part, x)


def attention_weights(model: Model, params: Tree, tokens_BT: Any, structure: Structure) -> dict[str, list[jax.Array]]:
    """The attention maps of every layer on a clean text.

    Args:
      tokens_BT: int [B, T].
      structure: who sees whom, with one stream.

    Returns:
      By layer, in the order in which they run, the weights [B, N, T, T] (query, key) of each attention in it, in the
      compute dtype.
    """
    assert structure.streams == 1, structure
    tokens_BT = jnp.asarray(tokens_BT, jnp.int32)
    module, positions_BT = model.bind(params), jnp.arange(tokens_BT.shape[1], dtype=jnp.int32)[None]
    x_BTD, out = module.enter(tokens_BT, positions_BT), {}
    for name, block in module.order():
        reading = _Watching(structure, positions_BT)
        x_BTD = block(x_BTD, reading)
        out[name] = reading.seen
    return out
