"""How many tokens of which positions each denoising pass writes. Plain NumPy: it is known before anything runs."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from jaxlm.errors import UserError


@dataclass(frozen=True)
class Passes:
    """Int arrays [passes, B]: pass i leaves `count` more tokens of row r written, of canvas positions [start, stop).

    With revision it masks `revise` written ones again and writes `count + revise`, so that the plan stays what it is.
    """

    start: np.ndarray
    stop: np.ndarray
    count: np.ndarray
    revise: np.ndarray

    @property
    def per_row(self) -> np.ndarray:
        """Passes that each row takes part in: int [B]."""
        return (self.count > 0).sum(axis=0)


@dataclass(frozen=True)
class Round:
    """The next block of every row: canvas places [start, stop), int [B], both 0 in a row that has no more blocks.

    `count` and `revise`, int [P, B], are those of `Passes` for the passes of this block.
    """

    start: np.ndarray
    stop: np.ndarray
    count: np.ndarray
    revise: np.ndarray


def rounds(passes: Passes) -> list[Round]:
    """The passes block by block, so that the rows of a batch can begin their blocks together."""
    entries = np.stack([passes.start, passes.stop, passes.count, passes.revise], axis=-1)  # [passes, B, 4]
    rows = []
    for row, number in enumerate(passes.per_row):
        groups = itertools.groupby(entries[:number, row], key=lambda entry: entry[0])
        rows.append([np.stack(list(group)) for _, group in groups])
    longest = max(len(block) for blocks_of_row in rows for block in blocks_of_row)
    table = np.zeros((max(map(len, rows)), 4, longest, len(rows)), np.int32)
    for row, blocks_of_row in enumerate(rows):
        for number, block in enumerate(blocks_of_row):
            table[number, :, : len(block), row] = block.T
    return [Round(start[0], stop[0], count, revise) for start, stop, count, revise in table]


def split(total: int, parts: int) -> list[int]:
    """`total` in `parts` whole shares, the first ones larger by one where it does not go evenly."""
    return [total // parts + (i < total % parts) for i in range(parts)]


def shares(steps: int, sizes: Sequence[int]) -> list[int]:
    """The passes of each block, from 1 to its size, in proportion to it, of at least as many steps as blocks.

    Each has its first; the others go by largest remainder, in proportion to the tokens left, to the first of equals.
    So a token gets a pass of its own wherever there are steps enough, however uneven the blocks.
    """
    total = sum(sizes)
    left, further = total - len(sizes), min(steps, total) - len(sizes)
    quotas = [divmod(further * (size - 1), max(left, 1)) for size in sizes]
    largest = sorted(range(len(sizes)), key=lambda i: -quotas[i][1])[: further - sum(whole for whole, _ in quotas)]
    return [1 + whole + (i in largest) for i, (whole, _) in enumerate(quotas)]


def blocks(positions: Sequence[int], block_size: int, grid: int) -> list[tuple[int, int]]:
    """Cuts a canvas, whose places lie at these rising positions of the row, into blocks of places [start, stop).

    Args:
      positions: at least one; of a model that reads each logit one position before, those where it reads them.
      block_size: places of a block, counted from the canvas's start; 0: one block.
      grid: if not 0, blocks end on multiples of it *in the row*: what a block-causal model was trained on.
    """
    size = block_size or len(positions)
    of = [at // grid if grid else place // size for place, at in enumerate(positions)]
    edges = [0, *(i for i in range(1, len(of)) if of[i] != of[i - 1]), len(of)]
    return list(itertools.pairwise(edges))


def plan(canvases: Sequence[Sequence[int]], steps: int, block_size: int, grid: int, revise_rate: float = 0.0) -> Passes:
    """Divides `steps` passes over the blocks of each row and the tokens of a block over its passes.

    A block gets at least one pass and no more passes than it has tokens, so every pass writes something.

    Args:
      canvases: of each row, the positions that are to be written, as in `blocks`.
      steps: passes a row; 0: one a token.
      block_size: see `blocks`.
      grid: see `blocks`.
      revise_rate: share of the written tokens of a block that a pass masks again. Never more than later passes can
        write, so the last pass of a block revises nothing.

    Raises:
      UserError: fewer steps than blocks, or block_size against a model's own grid.
    """
    if steps < 0:
        raise UserError(f"--steps is {steps}, allowed: at least 1, or 0 for one a token")
    rows = []
    for positions in canvases:
        cut = _cut(positions, block_size, grid)
        own = steps or len(positions)
        if own < len(cut):
            raise UserError(f"--steps is {own}, allowed: at least {len(cut)}, one for each block")
        row = []
        for (start, stop), share in zip(cut, shares(own, [stop - start for start, stop in cut]), strict=True):
            done, size = 0, stop - start
            for count in split(size, share):
                row.append((start, stop, count, min(int(revise_rate * done), size - done - count)))
                done += count
        rows.append(row)
    return _table(rows)


def block_by_block(canvases: Sequence[Sequence[int]], block_size: int, grid: int) -> Passes:
    """The blocks of each row, an entry each, for a decoder that finds out by itself how many passes one takes."""
    return _table([[(lo, hi, hi - lo, 0) for lo, hi in _cut(positions, block_size, grid)] for positions in canvases])


def _cut(positions: Sequence[int], block_size: int, grid: int) -> list[tuple[int, int]]:
    if block_size < 0:
        raise UserError(f"--block_size is {block_size}, allowed: at least 0 (0: the whole canvas)")
    if grid and block_size not in (0, grid):
        raise UserError(
            f"--block_size is {block_size}, allowed: {grid}, the block size that the model was trained with"
        )
    return blocks(positions, block_size, grid)


def _table(rows: list[list[tuple[int, int, int, int]]]) -> Passes:
    longest = max(map(len, rows))
    table = np.array([row + [(0, 0, 0, 0)] * (longest - len(row)) for row in rows], np.int32)
    return Passes(*table.transpose(2, 1, 0))
