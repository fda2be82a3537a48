"""What a row scores over its seeds, with an interval that counts items and seeds.

Legend: N items, S seeds.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import ndtri, stdtrit

from jaxlm.evaluation import averages
from jaxlm.study.cells import Result
from jaxlm.study.measures import BITS, bits_of, tasks_of

LEVEL = 0.95


@dataclass(frozen=True)
class Measured:
    """A mean over seeds.

    Attributes:
      value: in points (100 is every item right), or bits per byte.
      half_width: of the 95 % interval around it; None where a single item or window leaves it unknown.
      seeds: that it is over.
      items: of one seed, or windows.
    """

    value: float
    half_width: float | None
    seeds: int
    items: int


@dataclass(frozen=True)
class _Observed:
    """One row: the value of each seed, and the variance that the choice of items gives to their mean."""

    values: tuple[float, ...]
    items_variance: float | None
    items: int


def of_rows(rows: Mapping[str, Sequence[Result]], measure: str) -> dict[str, Measured]:
    """The rows that have a measure: a mean (see `measures`), a task, or bits per byte.

    The variance of seeds is that of the seeds of a row around their mean, pooled over all `rows`: two or three seeds of
    one row say next to nothing about it. Where every row has one seed the interval counts items alone. Seeds without
    all the tasks of a mean are left out: a mean over fewer tasks is another quantity.
    """
    found = {name: _observed(results, measure) for name, results in rows.items()}
    observed = {name: row for name, row in found.items() if row is not None}
    degrees = sum(len(row.values) - 1 for row in observed.values())
    squares = sum(len(row.values) * float(np.var(row.values)) for row in observed.values())
    seed_variance = squares / degrees if degrees else 0.0
    return {name: _measured(row, seed_variance, degrees) for name, row in observed.items()}


def _measured(row: _Observed, seed_variance: float, degrees: int) -> Measured:
    of_seeds = seed_variance / len(row.values)
    half_width = None
    if row.items_variance is not None:
        total = row.items_variance + of_seeds
        half_width = _quantile(total, of_seeds, degrees) * math.sqrt(total)
    return Measured(float(np.mean(row.values)), half_width, len(row.values), row.items)


def _quantile(total: float, of_seeds: float, degrees: int) -> float:
    """Of Student's t with the degrees of Welch and Satterthwaite: those of the items are as good as infinite."""
    if of_seeds == 0:
        return float(ndtri((1 + LEVEL) / 2))
    return float(stdtrit(degrees * (total / of_seeds) ** 2, (1 + LEVEL) / 2))


def _observed(results: Sequence[Result], measure: str) -> _Observed | None:
    return _bits(results) if measure == BITS else _accuracy(results, measure)


def _bits(results: Sequence[Result]) -> _Observed | None:
    losses = [r.run.evaluation for r in results if r.run is not None and r.run.evaluation is not None]
    losses = [loss for loss in losses if loss["bits_per_byte"] is not None]
    if not losses:
        return None
    parts = [found[0] for r in results if not isinstance(found := bits_of(r), str)]
    variance = float(np.mean([part.items_variance for part in parts])) if len(parts) == len(losses) else None
    return _Observed(tuple(loss["bits_per_byte"] for loss in losses), variance, losses[0]["num_windows"])


def _accuracy(results: Sequence[Result], measure: str) -> _Observed | None:
    tasks = tasks_of(measure)
    complete = [result for result in results if _has(result, measure, tasks)]
    if not complete:
        return None
    values = [100 * float(np.mean([result.tasks[task]["acc"] for task in tasks])) for result in complete]
    variances = [_variance(complete, task) for task in tasks]
    known = [variance for variance in variances if variance is not None]
    variance = sum(known) / len(tasks) ** 2 if len(known) == len(variances) else None
    return _Observed(tuple(values), variance, sum(complete[0].tasks[task]["n"] for task in tasks))


def _has(result: Result, measure: str, tasks: Sequence[str]) -> bool:
    if measure in averages.MEANS:  # its tasks count only with the study's number of examples
        return result.run is not None and measure in averages.present(result.run.benchmarks or {})
    return all(task in result.tasks for task in tasks)


def _variance(results: Sequence[Result], task: str) -> float | None:
    """Of the mean over items of one task, in points: of the items' means over seeds where every seed has them all."""
    items = [found for result in results if (found := result.items(task)) is not None]
    if len(items) == len(results) and len({len(scores_N) for scores_N in items}) == 1:
        means_N = np.mean(items, axis=0)
        return None if len(means_N) < 2 else 100**2 * float(np.var(means_N, ddof=1)) / len(means_N)
    errors = [result.tasks[task]["acc_stderr"] for result in results]
    known = [error for error in errors if error is not None]
    return 100**2 * float(np.mean(np.square(known))) if len(known) == len(errors) else None
