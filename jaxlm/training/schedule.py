"""The block-size schedule of a conversion from autoregression to diffusion.

LLaDA2.0 (arXiv 2512.15745, section 2): warmup through growing blocks, a stable phase in which the whole window is one
block, and an optional decay to small blocks again. How many steps each took is not published; here the shares are
fields and the phases of one group take equal parts.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from jaxlm.config import ConvertConfig

WHOLE_WINDOW = 0


@dataclass(frozen=True)
class Phase:
    """Updates start+1..stop of a run use `block_size`: 1, b, or 0 for the whole window."""

    start: int
    stop: int
    block_size: int


def phases(config: ConvertConfig, num_steps: int) -> list[Phase]:
    """The phases of `num_steps` updates, in order and without gaps; one that has no step left is dropped.

    Warmup and decay get the floor of their share, so that they never exceed it.
    """
    warmup = math.floor(config.warmup_share * num_steps) if config.block_sizes else 0
    decay = math.floor(config.decay_share * num_steps)
    out = _equal_parts(config.block_sizes, 0, warmup)
    out.append(Phase(warmup, num_steps - decay, WHOLE_WINDOW))
    out += _equal_parts(config.decay_block_sizes, num_steps - decay, num_steps)
    return [phase for phase in out if phase.start < phase.stop]


def phase_at(all_phases: Sequence[Phase], step: int) -> Phase:
    """The phase of the update that follows `step` updates."""
    return next(phase for phase in all_phases if phase.start <= step < phase.stop)


def _equal_parts(block_sizes: Sequence[int], start: int, stop: int) -> list[Phase]:
    edges = [start + (stop - start) * i // max(len(block_sizes), 1) for i in range(len(block_sizes) + 1)]
    return [Phase(a, b, size) for a, b, size in zip(edges, edges[1:], block_sizes, strict=False)]
