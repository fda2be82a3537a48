"""How many tokens of which positions each denoising pass writes. Plain NumPy: it is known before anything runs."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from jaxlm.errors import UserError


@dataclass(frozen=True)
class Passes:
    """Arrays [passes, B]: pass i writes `count` tokens of row r, chosen from canvas positions [start, stop)."""

    start: np.ndarray
    stop: np.ndarray
    count: np.ndarray

    @property
    def per_row(self) -> np.ndarray:
        """Passes that each row takes part in: int [B]."""
        return (self.count > 0).sum(axis=0)


def split(total: int, parts: int) -> list[int]:
    """`total` in `parts` whole shares, the first ones larger by one where it does not go evenly."""
    return [total // parts + (i < total % parts) for i in range(parts)]


def blocks(first: int, length: int, block_size: int, grid: int) -> list[tuple[int, int]]:
    """Cuts canvas positions [0, length) into blocks.

    Args:
      first: position of the canvas in its row.
      block_size: blocks counted from the canvas's start; 0: one block.
      grid: if not 0, blocks end on multiples of it *in the row*: what a block-causal model was trained on.
    """
    if grid:
        edges = [0, *(e - first for e in range((first // grid + 1) * grid, first + length, grid)), length]
    else:
        edges = [*range(0, length, block_size or length), length]
    return list(zip(edges[:-1], edges[1:], strict=True))


def plan(lengths: list[int], max_new_tokens: int, steps: int, block_size: int, grid: int) -> Passes:
    """Divides `steps` passes over the blocks of each row and the tokens of a block over its passes.

    A block gets at least one pass and no more passes than it has tokens, so every pass writes something.

    Raises:
      UserError: fewer steps than blocks, or block_size against a model's own grid.
    """
    if steps < 1:
        raise UserError(f"--steps is {steps}, allowed: at least 1, or 0 for one a token")
    if block_size < 0:
        raise UserError(f"--block_size is {block_size}, allowed: at least 0 (0: the whole canvas)")
    if grid and block_size not in (0, grid):
        raise UserError(
            f"--block_size is {block_size}, allowed: {grid}, the block size that the model was trained with"
        )
    rows = []
    for first in lengths:
        cut = blocks(first, max_new_tokens, block_size, grid)
        if steps < len(cut):
            raise UserError(f"--steps is {steps}, allowed: at least {len(cut)}, one for each block")
        rows.append(
            [
                (lo, hi, n)
                for (lo, hi), share in zip(cut, split(steps, len(cut)), strict=True)
                for n in split(hi - lo, min(share, hi - lo))
            ]
        )
    longest = max(map(len, rows))
    table = np.array([row + [(0, 0, 0)] * (longest - len(row)) for row in rows], np.int32)
    start, stop, count = table.transpose(2, 1, 0)
    return Passes(start, stop, count)
