"""Means of per-window sums, and how far they may be off.

Text is scored a window at a time, and tokens of one window are not independent of one another, so the window is the
unit that a standard error counts. N windows.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Estimate:
    """A mean and its standard error, None where a single observation leaves the error unknown."""

    value: float
    stderr: float | None


def ratio(numerator_N: Array, denominator_N: Array) -> Estimate:
    """sum(numerator) / sum(denominator) over N windows, with the linearised standard error of a ratio.

    With r the ratio, the error is sqrt(N / (N - 1) * sum((x_i - r y_i)^2)) / sum(y) (Cochran, Sampling Techniques,
    1977, section 6.3, without the finite-population factor). With equal denominators this is sd / sqrt(N).
    Windows whose numerator and denominator are both 0, such as rows that fill up a batch, must not be among the N.
    """
    total = float(denominator_N.sum())
    if total == 0:
        raise ValueError("a ratio over nothing: the denominators sum to 0")
    value = float(numerator_N.sum()) / total
    n = len(numerator_N)
    if n < 2:
        return Estimate(value, None)
    squares = float(np.square(numerator_N - value * denominator_N).sum())
    return Estimate(value, math.sqrt(n / (n - 1) * squares) / total)


@dataclass(frozen=True)
class Score:
    """What N windows cost: nats, scored tokens, and the UTF-8 bytes of exactly these tokens, all float64 [N]."""

    nats_N: Array
    tokens_N: Array
    bytes_N: Array

    @property
    def nats_per_token(self) -> Estimate:
        """Mean loss in nats a scored token."""
        return ratio(self.nats_N, self.tokens_N)

    @property
    def bits_per_byte(self) -> Estimate | None:
        """Nats of all scored tokens / ln 2 / their bytes; end-of-text adds nats and no bytes. None without bytes."""
        return ratio(self.nats_N / math.log(2), self.bytes_N) if self.bytes_N.sum() else None

    def of(self, chosen_N: npt.NDArray[np.bool_]) -> Score:
        """What some of the windows cost."""
        return Score(self.nats_N[chosen_N], self.tokens_N[chosen_N], self.bytes_N[chosen_N])

    def minus(self, other: Score) -> Estimate:
        """Nats a token by which this loss is above that of `other` on the same windows; below 0 where it is better.

        The error is that of the paired differences, much smaller than that of two independent losses.
        """
        if not np.array_equal(self.tokens_N, other.tokens_N):
            raise ValueError("two scores can only be paired on the same windows")
        return ratio(self.nats_N - other.nats_N, self.tokens_N)
