"""How far a difference between two rows may be off: another draw of items, and another seed.

Items are resampled, the same ones in both rows (paired bootstrap; Efron and Tibshirani, An Introduction to the
Bootstrap, 1993). Two or three seeds of one row say next to nothing about their spread, so it is pooled over all rows. A
seed's mean also scatters because its answers to single items do, which the resampled items contain already: that part
is subtracted, as in the analysis of variance with crossed random effects (Searle, Casella and McCulloch, Variance
Components, 1992, section 4.5).

Legend: S seeds, N items of a part, R resamples, U values that differ.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import stdtr, stdtrit

from jaxlm.evaluation.statistics import Array
from jaxlm.study.measures import Part, Sample

RESAMPLES = 1_000
_FEW = 64  # values that differ: then how often each is drawn is drawn, not item by item
LEVEL, POWER = 0.05, 0.8
MANY = 1e6  # degrees of freedom as good as infinite, for which JSON has no number


@dataclass(frozen=True)
class SeedVariance:
    """The variance of a row's value between seeds.

    Attributes:
      observed: mean square of seeds around their row's mean.
      from_items: what of it the answers to single items explain.
      degrees: seeds beyond the first, over all rows; 0: every row has one seed, and nothing is known.
    """

    observed: float = 0.0
    from_items: float = 0.0
    degrees: int = 0

    @property
    def value(self) -> float:
        """Of the seed itself; never below 0."""
        return max(0.0, self.observed - self.from_items)


@dataclass(frozen=True)
class Error:
    """The standard error of a difference, and the degrees of freedom of Student's t that it is divided by."""

    stderr: float
    degrees: float

    def p(self, value: float) -> float:
        """Two-sided, of no difference."""
        if self.stderr == 0:
            return float(value == 0)
        return float(2 * stdtr(self.degrees, -abs(value) / self.stderr))

    def half_width(self, level: float = LEVEL) -> float:
        """Of the interval that misses the true difference at most at this rate."""
        return self.stderr * float(stdtrit(self.degrees, 1 - level / 2))

    def smallest(self, comparisons: int) -> float:
        """The true difference that is found 4 times in 5, when it has to be the clearest of so many comparisons."""
        return self.half_width(LEVEL / comparisons) + self.stderr * float(stdtrit(self.degrees, POWER))


def seed_variance(samples: Iterable[Sample]) -> SeedVariance:
    """Pooled over rows; those of one seed have no part in it."""
    observed, from_items, degrees = 0.0, 0.0, 0
    for sample in samples:
        beyond = len(sample.seeds) - 1
        if beyond:
            observed += beyond * float(np.var(sample.values_S, ddof=1))
            from_items += beyond * sum(_of_items(part) for part in sample.parts) / len(sample.parts) ** 2
            degrees += beyond
    return SeedVariance(observed / degrees, from_items / degrees, degrees) if degrees else SeedVariance()


def error(first: Sample, second: Sample, seeds: SeedVariance, is_same_weights: bool, name: str) -> Error:
    """Of the mean of `second` over seeds minus that of `first`.

    Args:
      first: a row.
      second: another, over the same tasks.
      seeds: of rows; with `is_same_weights`, of the differences between two readings of the same weights.
      is_same_weights: whether both rows have the same weights under a seed, so that a seed's own effect cancels.
      name: the draws of items depend on it and on nothing else.
    """
    parts = len(first.parts)
    of_items = sum(
        _resampled(a, b, f"{name} {k}") for k, (a, b) in enumerate(zip(first.parts, second.parts, strict=True))
    )
    share = 1 / len(first.seeds) if is_same_weights else 1 / len(first.seeds) + 1 / len(second.seeds)
    total = of_items / parts**2 + share * seeds.value
    return Error(math.sqrt(total), _degrees(total, share, seeds))


def _degrees(total: float, share: float, seeds: SeedVariance) -> float:
    """Of Welch and Satterthwaite; the items are so many that theirs are as good as infinite.

    Where the seeds' own variance comes out as 0 it is not known to be 0, so what was observed counts, not what was left
    of it: the t that this gives errs on the side of no difference.
    """
    uncertain = share * seeds.observed
    return min(max(seeds.degrees * (total / uncertain) ** 2, 1.0), MANY) if uncertain else MANY


def _of_items(part: Part) -> float:
    """The variance that single answers of one seed give to its value, from what they are beside item and seed."""
    num_seeds, num_items = part.numerators_SN.shape
    ratio_S1 = (part.values_S / part.scale)[:, None]
    influence_SN = part.scale * (part.numerators_SN - ratio_S1 * part.denominators_N) / part.denominators_N.sum()
    rest_SN = influence_SN - influence_SN.mean(0)  # the mean of a seed's influences is 0
    return float(np.square(rest_SN).sum()) / (num_seeds - 1) * num_items / (num_items - 1)


def _resampled(first: Part, second: Part, name: str) -> float:
    """The variance of the difference of two parts over draws of their items; in pairs where they have the same.

    Of pairs it is at least that of one answer in all that is judged otherwise: two rows that answer N items alike may
    still differ in 3 / N of all items (the rule of three), where resampling N ties says that nothing is left open.
    """
    rng = np.random.default_rng(zlib.crc32(name.encode()))
    means = [part.numerators_SN.mean(0) for part in (first, second)]
    if first.is_paired_with(second):
        drawn = float(np.var(_draws(rng, means[1] - means[0], first.denominators_N), ddof=1))
        return first.scale**2 * max(drawn, 1 / first.denominators_N.sum() ** 2)
    both = zip(means, (first.denominators_N, second.denominators_N), strict=True)
    return first.scale**2 * sum(
        float(np.var(_draws(rng, mean_N, denominators_N), ddof=1)) for mean_N, denominators_N in both
    )


def _draws(rng: np.random.Generator, numerators_N: Array, denominators_N: Array) -> Array:
    """sum(numerators) / sum(denominators) of N items drawn with replacement, R times: float64 [R]."""
    num_items = len(numerators_N)
    if np.all(denominators_N == denominators_N[0]):
        values_U, counts_U = np.unique(numerators_N, return_counts=True)
        if len(values_U) <= _FEW:
            drawn_RU = rng.multinomial(num_items, counts_U / num_items, size=RESAMPLES)
            return drawn_RU @ values_U / denominators_N.sum()
    chosen_RN = rng.integers(num_items, size=(RESAMPLES, num_items), dtype=np.int32)
    return numerators_N[chosen_RN].sum(1) / denominators_N[chosen_RN].sum(1)


def holm(p: Sequence[float]) -> list[float]:
    """P values corrected for their number by Holm's procedure (Scandinavian Journal of Statistics 6, 1979)."""
    out, highest = [0.0] * len(p), 0.0
    for rank, index in enumerate(sorted(range(len(p)), key=p.__getitem__)):
        highest = max(highest, min(1.0, (len(p) - rank) * p[index]))
        out[index] = highest
    return out
