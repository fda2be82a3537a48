"""Scores of benchmark tasks from the harness's own verdict on each item, and what a coin would score.

Legend: N items.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Any

import numpy as np

from jaxlm.errors import UserError
from jaxlm.evaluation.statistics import Estimate, ratio
from jaxlm.evaluation.tasks import MULTIPLE_CHOICE

MAIN = ("acc", "exact_match")  # what counts as a task's accuracy, the first that it has
SCORES = ("acc", "acc_stderr", "acc_norm", "acc_norm_stderr")
_UNLIKELY = -1e3  # nats: e to this is 0 in float64


@dataclass(frozen=True)
class Items:
    """What the harness says of every item of one task under one model.

    Attributes:
      task: its name.
      values: by metric, N numbers in the order of the items, 0 or 1 or a share. A metric of another filter than the
        task's first is called `METRIC,FILTER`.
      main: the metric that counts.
    """

    task: str
    values: Mapping[str, Sequence[float]]
    main: str

    @classmethod
    def read(cls, task: str, samples: Iterable[Mapping[str, Any]]) -> Items:
        """From the samples that the harness logs. Raises UserError for a task without a number for each item."""
        values: dict[str, list[float]] = {}
        first = ""
        for sample in samples:
            first = first or sample["filter"]
            for metric in sample["metrics"]:
                if isinstance(sample[metric], Real):
                    name = metric if sample["filter"] == first else f"{metric},{sample['filter']}"
                    values.setdefault(name, []).append(float(sample[metric]))
        if not values:
            raise UserError(f"task {task!r} has no score by item, allowed: `python -m jaxlm.lm_eval` runs it")
        main = next((metric for metric in MAIN if metric in values), next(iter(values)))
        return cls(task, values, main)

    def record(self) -> dict[str, Any]:
        """`acc` (the main metric), `acc_norm` (None where the task has none), their errors, `n`, and what else it has.

        Errors are standard errors over items, sd / sqrt(N), as the harness's.
        """
        means = {name: mean(values) for name, values in self.values.items()}
        norm = means.get("acc_norm")
        others = {name: m for name, m in means.items() if name not in (self.main, "acc_norm")}
        return {
            "acc": means[self.main].value,
            "acc_stderr": means[self.main].stderr,
            "acc_norm": None if norm is None else norm.value,
            "acc_norm_stderr": None if norm is None else norm.stderr,
            "metric": self.main,
            "stderr": means[self.main].stderr,
            "n": len(self.values[self.main]),
            "other": {name: {"value": m.value, "stderr": m.stderr} for name, m in others.items()},
        }

    def compact(self) -> dict[str, str]:
        """The numbers of each metric in one string, in order, for comparisons by pairs: `1 0 0.4132`."""
        return {name: " ".join(f"{value:.6g}" for value in values) for name, values in self.values.items()}


def mean(values: Sequence[float]) -> Estimate:
    """Mean and standard error of N numbers."""
    return ratio(np.asarray(values, np.float64), np.ones(len(values)))


def chance(task: Any, items: Iterable[Mapping[str, Any]], metric: str) -> float:
    """What choosing an option at random scores on average: the task judges every choice of every item.

    For one right option of k this is 1 / k, and for the probability mass on true options (`truthfulqa_mc2`) their
    share. 0 for a task whose answer is written, not chosen.

    Args:
      task: the harness's object.
      items: samples of it that the harness logged, one an item.
      metric: the one that counts.
    """
    if task.OUTPUT_TYPE != MULTIPLE_CHOICE:
        return 0.0
    scores = []
    for item in items:
        options, asked = len(task.doc_to_choice(item["doc"])), len(item["arguments"])
        chosen = ([(0.0 if i == k else _UNLIKELY, i == k) for i in range(asked)] for k in range(options))
        scores.append(math.fsum(task.process_results(item["doc"], results)[metric] for results in chosen) / options)
    return math.fsum(scores) / len(scores)


def short(record: Mapping[str, Any]) -> dict[str, Any]:
    """Scores and errors of a record and nothing else, as they stand for a control."""
    return {key: record[key] for key in SCORES}


def over(records: Sequence[Mapping[str, Any]], sizes: Sequence[int]) -> dict[str, Any]:
    """Scores of a group from those of its tasks of `sizes` items: every item counts once, as the harness weighs MMLU.

    Errors are pooled as the harness does: the differences between the tasks are no part of them.
    """
    has_norm = all(record["acc_norm"] is not None for record in records)
    return {
        "acc": weighted([record["acc"] for record in records], sizes),
        "acc_stderr": _pooled([record["acc_stderr"] for record in records], sizes),
        "acc_norm": weighted([record["acc_norm"] for record in records], sizes) if has_norm else None,
        "acc_norm_stderr": _pooled([r["acc_norm_stderr"] for r in records], sizes) if has_norm else None,
    }


def weighted(values: Sequence[float], sizes: Sequence[int]) -> float:
    """The mean over items of tasks with these means and sizes."""
    return math.fsum(value * size for value, size in zip(values, sizes, strict=True)) / sum(sizes)


def _pooled(errors: Sequence[float | None], sizes: Sequence[int]) -> float | None:
    """None where a task of a single item leaves it unknown."""
    known = [error for error in errors if error is not None]
    if len(known) < len(errors):
        return None
    squares = math.fsum((size - 1) * size * error**2 for error, size in zip(known, sizes, strict=True))
    return math.sqrt(squares / (sum(sizes) - len(sizes)) / sum(sizes))


def apart(score: float | None, stderr: float | None, *references: float | None) -> bool:
    """Whether a score is more than two of its standard errors above everything that knows nothing.

    Args:
      score: of a model, None where there is none.
      stderr: its standard error; None says nothing, and nothing follows from it.
      references: chance and the length-only baseline; None where one was not asked for.
    """
    if score is None or stderr is None:
        return False
    return all(score - 2 * stderr > reference for reference in references if reference is not None)
