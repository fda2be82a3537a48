"""What rows are compared by, read from their cells: the score of every item, or the bits of every validation window.

A measure is the mean of some tasks (`mean_6`, or names by commas), one task, its `TASK:acc_norm`, or `BITS`.

Legend: S seeds, N items of a task or stretches of validation windows.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from jaxlm.evaluation import averages
from jaxlm.evaluation.statistics import Array
from jaxlm.evaluation.tasks import shots
from jaxlm.study.cells import Result, Study

BITS = "bits_per_byte"
NORM = ":acc_norm"
POINTS, BITS_UNIT = "points", "bits per byte"
_STRETCHES = 64


@dataclass(frozen=True)
class Part:
    """One task, or the validation text: `scale` * sum(numerators) / sum(denominators) of each seed.

    Attributes:
      numerators_SN: scores of the items, or bits of stretches of windows, float64.
      denominators_N: 1 for each item, or the bytes of the stretches, float64.
      scale: 100 for points.
      items: a digest of the items; "" where nobody kept one, as of windows, whose bytes tell.
    """

    numerators_SN: Array
    denominators_N: Array
    scale: float
    items: str = ""

    @property
    def values_S(self) -> Array:
        """The value of each seed, float64 [S]."""
        return self.scale * self.numerators_SN.sum(1) / self.denominators_N.sum()

    @property
    def items_variance(self) -> float:
        """Of the mean over seeds, between draws of the items (or stretches), to first order; N > 1."""
        mean_N, total, count = self.numerators_SN.mean(0), self.denominators_N.sum(), len(self.denominators_N)
        influence_N = self.scale * (mean_N - mean_N.sum() / total * self.denominators_N) / total
        return float(np.square(influence_N).sum()) * count / (count - 1)

    def is_paired_with(self, other: Part) -> bool:
        """Whether both are over the same items."""
        same = self.items == other.items or not (self.items and other.items)
        return same and np.array_equal(self.denominators_N, other.denominators_N)

    def minus(self, other: Part) -> Part:
        """The differences item by item and seed by seed, of two parts over the same items and as many seeds."""
        return dataclasses.replace(self, numerators_SN=self.numerators_SN - other.numerators_SN)


@dataclass(frozen=True)
class Sample:
    """What one row scored of one measure: the mean over its parts, with equal weights.

    `is_bound` says whether the bits are an upper bound, as those of diffusion are.
    """

    parts: tuple[Part, ...]
    seeds: tuple[int, ...]
    is_bound: bool = False

    @property
    def values_S(self) -> Array:
        """The value of each seed, float64 [S]."""
        return np.mean([part.values_S for part in self.parts], axis=0)

    def seeds_with(self, other: Sample) -> tuple[int, ...]:
        """Those that both have."""
        return tuple(seed for seed in self.seeds if seed in other.seeds)

    def of(self, seeds: Sequence[int]) -> Sample:
        """The same of these seeds alone."""
        at = [self.seeds.index(seed) for seed in seeds]
        parts = (dataclasses.replace(part, numerators_SN=part.numerators_SN[at]) for part in self.parts)
        return dataclasses.replace(self, parts=tuple(parts), seeds=tuple(seeds))

    @property
    def items(self) -> int:
        """Items of one seed, or stretches of windows that stand for them."""
        return sum(len(part.denominators_N) for part in self.parts)


def tasks_of(measure: str) -> tuple[str, ...]:
    """The tasks that a measure is over; none for bits per byte."""
    return () if measure == BITS else tuple(averages.MEANS.get(measure, measure.removesuffix(NORM).split(",")))


def label_of(measure: str) -> str:
    """As a person says it."""
    return f"mean of {', '.join(tasks_of(measure))}" if "," in measure else measure


def unit_of(measure: str) -> str:
    """What a difference is counted in."""
    return BITS_UNIT if measure == BITS else POINTS


def measures_of(study: Study) -> list[str]:
    """The study's mean, every task that a row was asked (with `acc_norm` where it has one), bits per byte."""
    records = {task: record for result in study.results for task, record in result.tasks.items()}
    each = [
        name
        for task, record in records.items()
        for name in (task, f"{task}{NORM}")
        if name == task or record["acc_norm"] is not None
    ]
    return list(dict.fromkeys([study.config.evaluate.mean, *each, BITS]))


def sample(study: Study, name: str, measure: str) -> Sample | str:
    """What a row scored, over the seeds that have all of it; or, in words, what it lacks.

    A seed without one of the tasks of a mean is left out: a mean over fewer tasks is another quantity. `name` is of a
    row, or of one at another learning rate (`Study.rated`).
    """
    row, rate = study.rated.get(name, (name, None))
    results = study.of(row, rate)
    if not results:
        return f"{name} is no row of this study"
    found = [(result, bits_of(result) if measure == BITS else _answers(result, measure)) for result in results]
    whole = [(result, parts) for result, parts in found if not isinstance(parts, str)]
    if not whole:
        return f"{name} {next(reason for _, reason in found if isinstance(reason, str))}"
    # Seeds of other items than the first have are of another evaluation.
    first = whole[0][1]
    whole = [(result, parts) for result, parts in whole if _same(parts, first)]
    parts = tuple(
        dataclasses.replace(part, numerators_SN=np.concatenate([parts[k].numerators_SN for _, parts in whole]))
        for k, part in enumerate(first)
    )
    loss: Any = whole[0][0].run and whole[0][0].run.evaluation
    seeds = tuple(result.cell.seed for result, _ in whole)
    return Sample(parts, seeds, measure == BITS and bool(loss["is_bound"]))


def _answers(result: Result, measure: str) -> list[Part] | str:
    parts = []
    for task in tasks_of(measure):
        items_N = result.items(task, "acc_norm" if measure.endswith(NORM) else "")
        if items_N is None:
            return _lacks(result, f"{task}{NORM}" if measure.endswith(NORM) else task)
        if measure in averages.MEANS and result.tasks[task]["num_fewshot"] != (shots(task) or 0):
            return f"was asked {task} with {result.tasks[task]['num_fewshot']} examples, other than in {measure}"
        if len(items_N) < 2:
            return f"has a single item of {task}"
        parts.append(Part(items_N[None], np.ones(len(items_N)), 100.0, result.asked(task)))
    return parts


def bits_of(result: Result) -> list[Part] | str:
    """The bits of the validation text, one seed; or what it lacks."""
    score = result.windows
    if score is None or not score.bytes_N.sum():
        return _lacks(result, "the loss of each validation window")
    if len(score.bytes_N) < 2:
        return "has a single validation window"
    # Windows of one document are alike, and neighbours: what is drawn are stretches of text.
    starts = np.linspace(0, len(score.bytes_N), min(len(score.bytes_N), _STRETCHES), endpoint=False).astype(int)
    bits_N, bytes_N = (np.add.reduceat(values, starts) for values in (score.nats_N / math.log(2), score.bytes_N))
    return [Part(bits_N[None], bytes_N, 1.0)]


def _lacks(result: Result, what: str) -> str:
    return f"lacks {what}" if result.run is not None else f"has not been evaluated ({result.status})"


def _same(parts: Sequence[Part], others: Sequence[Part]) -> bool:
    return all(part.is_paired_with(other) for part, other in zip(parts, others, strict=True))
