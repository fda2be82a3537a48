"""The ways to decode that are compared: from left to right, and a canvas filled in several manners."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from jaxlm.families import Model
from jaxlm.generation import Decoded, Sampling, Selection, autoregressive, diffusion
from jaxlm.generation.schedule import blocks

AR, FULL, BLOCK = "ar", "full", "block"
# The study names no number of passes. 100 tokens at 183.5 a second, with 21 to 35 ms a pass, are 4 to 6 tokens a pass.
STUDY_TOKENS_PER_PASS = 5


@dataclass(frozen=True)
class Subject:
    """A model with parameters that reads in one manner: `ar`, `full` (sees everything) or `block` (block-causal)."""

    reading: str
    model: Model
    params: dict[str, Any]
    tokenizer_size: int
    mask_token_id: int | None
    shift: bool = False
    block_size: int = 0


@dataclass(frozen=True)
class Way:
    """One row of the table.

    Attributes:
      name: what people read.
      reading: of the subject that decodes.
      tokens_per_pass: forced; None: one a step (`ar`), or what the selection decides.
      block_size: of the decoder, where the model sees everything; 0: the whole canvas.
      selection: None: low confidence.
      cache: as in `generate --cache`.
      batches: only with these rows; empty: with any.
      trained_only: it says nothing about random weights, for they decide how many tokens a pass writes.
      uncached: the same way without its cache, whose tokens its own are compared with; empty: none.
    """

    name: str
    reading: str
    tokens_per_pass: int | None = None
    block_size: int = 0
    selection: Selection | None = None
    cache: str | None = None
    batches: tuple[int, ...] = ()
    trained_only: bool = False
    uncached: str = ""

    def decode(self, subject: Subject, prompts: Sequence[Sequence[int]], new_tokens: int, seed: int) -> list[Decoded]:
        """Continues the prompts, which are of one length, greedily, and does not stop at the end of a text."""
        common: dict[str, Any] = dict(sampling=Sampling(), tokenizer_size=subject.tokenizer_size, seed=seed)
        if self.reading == AR:
            return autoregressive.decode(
                subject.model,
                subject.params,
                prompts,
                max_new_tokens=new_tokens,
                end_of_text_id=None,
                mask_token_id=subject.mask_token_id,
                **common,
            )
        assert subject.mask_token_id is not None  # of a diffusion model
        positions = range(len(prompts[0]) - subject.shift, len(prompts[0]) - subject.shift + new_tokens)
        steps = 0
        if self.tokens_per_pass is not None:
            cut = blocks(positions, self.block_size, subject.block_size)
            steps = sum(math.ceil((stop - start) / self.tokens_per_pass) for start, stop in cut)
        return diffusion.decode(
            subject.model,
            subject.params,
            diffusion.canvas(prompts, new_tokens, subject.model.config.max_positions),
            mask_token_id=subject.mask_token_id,
            shift=subject.shift,
            selection=self.selection,
            trained_block_size=subject.block_size,
            steps=steps,
            block_size=self.block_size,
            cache=self.cache,
            **common,
        )


def ways(block_size: int) -> list[Way]:
    """All of them; `block_size` is that of the block-causal model, and of the blocks that others are filled in."""
    size = f"block-causal {block_size}"
    sure, bounded, revise = Selection(threshold=0.9), Selection(entropy_bound=0.5), Selection("revise", revise_rate=0.1)
    blockwise, causal = f"full canvas by blocks of {block_size}, 8 a pass", f"{size}, 8 a pass"
    return [
        Way("AR, cache", AR),
        Way("full canvas, the study's protocol", FULL, STUDY_TOKENS_PER_PASS, cache="none", batches=(1,)),
        Way("full canvas, 1 a pass", FULL, 1, cache="none", batches=(1,)),
        Way("full canvas, 8 a pass", FULL, 8, cache="none"),
        Way("full canvas, 8 a pass, revise 0.1", FULL, 8, selection=revise, cache="none", trained_only=True),
        Way("full canvas, threshold 0.9", FULL, selection=sure, cache="none", trained_only=True),
        Way("full canvas, entropy bound 0.5", FULL, selection=bounded, cache="none", trained_only=True),
        Way(blockwise, FULL, 8, block_size, cache="none"),
        Way(f"{blockwise}, prefix cache", FULL, 8, block_size, cache="prefix", uncached=blockwise),
        Way(f"{size}, 1 a pass, cache", BLOCK, 1, cache="block", batches=(1,)),
        Way(f"{size}, 4 a pass, cache", BLOCK, 4, cache="block"),
        Way(causal, BLOCK, 8, cache="none"),
        Way(f"{causal}, cache", BLOCK, 8, cache="block", uncached=causal),
        Way(f"{size}, threshold 0.9, cache", BLOCK, selection=sure, cache="block", trained_only=True),
        Way(f"{size}, entropy bound 0.5, cache", BLOCK, selection=bounded, cache="block", trained_only=True),
    ]


def agreement(tokens: Sequence[Sequence[int]], others: Sequence[Sequence[int]]) -> float:
    """The share of places with the same token."""
    return float(np.mean(np.array(tokens) == np.array(others)))
