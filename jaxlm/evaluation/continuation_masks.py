"""Which tokens of a continuation each forward hides, and how much the nats of each hidden token count.

The tokens of a block may be written in any order, and a diffusion model does not say which: averaged over all orders,
the chain rule gives a bound of the log-likelihood (arXiv 2110.02037). For a block of l tokens it equals

    the mean over k in 1..l, and over the sets m of k tokens, of l / k * (nats of the tokens of m when m is hidden)

(LLaDA, arXiv 2502.09992, `get_log_likelihood.py`; hiding exactly k tokens and not each with probability t keeps the
noise of their number out). Blocks follow one another, so a likelihood is a product over blocks; since a block sees
clean text before it and nothing behind it, each forward serves all blocks at once.

Legend: P passes, that is forwards, C tokens of the continuation, G of its blocks.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

from jaxlm import randomness
from jaxlm.errors import UserError
from jaxlm.evaluation.statistics import Array

Blocks = npt.NDArray[np.integer[Any]]
_GOLDEN = 0.6180339887498949
_ROUND = 64  # random numbers are drawn for so many tokens at once, so that few lengths are compiled


@dataclass(frozen=True)
class Passes:
    """P forwards over one continuation.

    Attributes:
      masked_PC: bool, the tokens that each forward hides.
      weight_PC: float64; the nats of the continuation are the sum of weight times nats over all passes and tokens.
      is_bound: that sum (its mean, if it is drawn) is at least the nats of the continuation, and not just these.
      drawn: passes 2s and 2s + 1 are independent draws of one kind; otherwise nothing is left to chance.
    """

    masked_PC: npt.NDArray[np.bool_]
    weight_PC: Array
    is_bound: bool = False
    drawn: bool = False

    def by_pass(self, nats_PC: Array) -> Array:
        """What each pass adds to the nats of the continuation, float64 [P], from those of each token in each pass."""
        return (self.weight_PC * nats_PC).sum(axis=1)

    def stderr(self, nats_P: Array) -> float:
        """The Monte-Carlo standard error of the sum of `by_pass`."""
        return paired_stderr(nats_P) if self.drawn else 0.0


def paired_stderr(nats_P: Array) -> float:
    """The standard error of the sum of P numbers of which 2s and 2s + 1 are independent draws of one kind.

    Half the squared difference of such two is an unbiased estimate of their variance.
    """
    return math.sqrt(np.square(nats_P[::2] - nats_P[1::2]).sum())


# From the block of each token, ascending [C], and the number of the question that the continuation answers.
Masks = Callable[[Blocks, int], Passes]


def nothing_hidden(block_C: Blocks, question: int) -> Passes:
    """One clean pass: what autoregression needs."""
    del question
    shape = (1, len(block_C))
    return Passes(np.zeros(shape, bool), np.ones(shape))


def chain_rule(block_C: Blocks, question: int) -> Passes:
    """Left to right, a token of each block a pass, with the rest of its block hidden: the likelihood in this order.

    SMDM's `nll_type=chain_rule` (`evaluate_diff.py`): exact for a decoder that writes from left to right.
    """
    del question
    runs = _runs(block_C)
    masked_PC, weight_PC = _blank(max(hi - lo for lo, hi in runs), len(block_C))
    for lo, hi in runs:
        for done in range(hi - lo):
            masked_PC[done, lo + done : hi] = True
            weight_PC[done, lo + done] = 1.0
    return Passes(masked_PC, weight_PC)


def every_mask(block_C: Blocks, question: int) -> Passes:
    """Each set of tokens of a block hidden once: the bound without noise, in 2^l - 1 passes for blocks of l tokens.

    Where no block has more than one token, that is one pass, and exact.
    """
    del question
    runs = _runs(block_C)
    longest = max(hi - lo for lo, hi in runs)
    masked_PC, weight_PC = _blank(2**longest - 1, len(block_C))
    for lo, hi in runs:
        size = hi - lo
        sets = np.arange(1, 2**size)
        hidden = (sets[:, None] >> np.arange(size) & 1).astype(bool)
        count = hidden.sum(axis=1, keepdims=True)
        alike = np.array([math.comb(size, k) for k in range(size + 1)])[count]  # sets of one size
        masked_PC[: len(sets), lo:hi] = hidden
        weight_PC[: len(sets), lo:hi] = hidden / (count * alike)
    return Passes(masked_PC, weight_PC, is_bound=longest > 1)


@dataclass(frozen=True)
class ExactCounts:
    """The bound by Monte Carlo, or without noise where `every_mask` takes no more than `draws` passes.

    The number of hidden tokens is stratified: u in [0, 1) is cut into draws / 2 equal parts, k = 1 + floor(u l), and
    each part is drawn twice, which makes the standard error unbiased (with one draw a part there is no such estimate).
    In another block the same draw takes another part, so that no pass hides much, or little, everywhere.

    Randomness is a function of (seed, question, draw), and of the place of a token in the continuation or of a block
    among its blocks. So all answers to one question that lie alike in their blocks are masked alike; of answers that
    differ in length, the same share is hidden, and of two places that both have, the same one is hidden first. What
    the rest of the batch holds changes nothing.

    Attributes:
      draws: P, even.
      seed: of the draws.
    """

    draws: int = 128
    seed: int = 0

    def __post_init__(self) -> None:
        if self.draws < 2 or self.draws % 2:
            raise UserError(f"draws is {self.draws}, allowed: an even number of at least 2 (each level is drawn twice)")

    def num_passes(self, block_C: Blocks) -> int:
        """How many forwards one continuation takes."""
        return min(2 ** max(hi - lo for lo, hi in _runs(block_C)) - 1, self.draws)

    def __call__(self, block_C: Blocks, question: int) -> Passes:
        """The passes of one continuation."""
        if self.num_passes(block_C) < self.draws:  # 2^l - 1 is odd, and draws are even
            return every_mask(block_C, question)
        runs = _runs(block_C)
        width = -(-len(block_C) // _ROUND) * _ROUND
        key = randomness.key(self.seed, "continuation", question)
        level_PG, order_PC = (np.asarray(x) for x in _uniforms(key, self.draws, width))
        masked_PC, weight_PC = _blank(self.draws, len(block_C))
        parts = self.draws // 2
        own_P = np.arange(self.draws) // 2
        for g, (lo, hi) in enumerate(runs):
            size = hi - lo
            part_P = (own_P + int(_GOLDEN * g * parts)) % parts
            count_P = 1 + ((part_P + level_PG[:, g]) * size / parts).astype(int)
            rank = order_PC[:, lo:hi].argsort(axis=1, kind="stable").argsort(axis=1)
            masked_PC[:, lo:hi] = rank < count_P[:, None]
            weight_PC[:, lo:hi] = masked_PC[:, lo:hi] * (size / count_P / self.draws)[:, None]
        return Passes(masked_PC, weight_PC, is_bound=True, drawn=True)


@functools.partial(jax.jit, static_argnames=("draws", "width"))
def _uniforms(key: jax.Array, draws: int, width: int) -> tuple[jax.Array, jax.Array]:
    """Two fp32 arrays [draws, width] in [0, 1), of which a number depends on its draw and place, not on the width."""

    def numbers(draw: jax.Array) -> tuple[jax.Array, jax.Array]:
        level, order = jax.random.split(jax.random.fold_in(key, draw))
        return jax.random.uniform(level, (width,)), jax.random.uniform(order, (width,))

    return jax.vmap(numbers)(jnp.arange(draws))


def _blank(passes: int, tokens: int) -> tuple[npt.NDArray[np.bool_], Array]:
    return np.zeros((passes, tokens), bool), np.zeros((passes, tokens))


def _runs(block_C: Blocks) -> list[tuple[int, int]]:
    """The places [lo, hi) of each block."""
    edges = np.flatnonzero(np.diff(block_C)) + 1
    return list(zip([0, *edges.tolist()], [*edges.tolist(), len(block_C)], strict=True))
