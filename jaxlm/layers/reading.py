"""How a block is being run: over a whole sequence, or over new positions that follow a cache.

A block is written once. Where it moves information along the sequence it says `reading.mix(name, part, x)`, and the
reading picks the form of the part: `part.whole(x, reading)` or `part.extend(x, reading, cache) -> (y, cache')`. What
`extend` returns is a proposal; `part.commit(cache', n_B)` keeps the first n of the new positions.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Protocol

import jax

from jaxlm.layers.structure import Structure

Cache = dict[str, Any]


class Mixer(Protocol):
    """A part that moves information along the sequence; its two forms agree."""

    def whole(self, x_BTD: jax.Array, reading: Reading) -> jax.Array: ...

    def extend(self, x_BbD: jax.Array, reading: Reading, cache: Cache) -> tuple[jax.Array, Cache]: ...

    def init_cache(self, batch: int, length: int) -> Cache: ...

    def commit(self, cache: Cache, n_B: jax.Array) -> Cache: ...


@dataclass
class Reading:
    """What a block needs to know of the sequence.

    Attributes:
      structure: who sees whom.
      positions_BT: rotary positions, int32 [B or 1, T]; with two streams T = 2L.
      segments_BT: document numbers, int32 [B, T], where documents must not see each other; else None.
      length_B: accepted positions in the cache, int32 [B]; None in the whole form.
      num_new_B: how many of the new positions are real, int32 [B]; None in the whole form.
      cache: this block's caches by mixer name; `mix` replaces them by what `extend` proposes.
      allowed_TT: what each position sees at most, within the structure, bool [T, T], query by key, where that is drawn
        at random; else None. Only attention in the whole form reads it.
      noted_B: losses of the rows that this block has beside the model's own, fp32 [B] by name.
    """

    structure: Structure
    positions_BT: jax.Array
    segments_BT: jax.Array | None = None
    length_B: jax.Array | None = None
    num_new_B: jax.Array | None = None
    cache: Cache | None = None
    allowed_TT: jax.Array | None = None
    noted_B: dict[str, jax.Array] = field(default_factory=dict)

    def note(self, name: str, loss_B: jax.Array) -> None:
        """Keeps an auxiliary loss of the block that is being run; the trunk averages it over the blocks."""
        self.noted_B[name] = loss_B

    def mix(self, name: str, part: Mixer | None, x: jax.Array) -> jax.Array:
        """Runs a mixer in the form this reading asks for; a part that the model does not have is the identity."""
        if part is None:
            return x
        if self.cache is None:
            return part.whole(x, self)
        y, self.cache[name] = part.extend(x, self, self.cache[name])
        return y
