"""Means over several tasks, each with a name that says over which: one over six tasks and one over seven differ by five
points for the same model, because chance on GSM8K is 0.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from jaxlm.evaluation.tasks import MOBILELLM_8, STUDY, STUDY_6, shots

MEANS = {"mean_6": STUDY_6, "mean_7": STUDY, "mean_8": MOBILELLM_8}
LABELS = {
    "mean_6": "mean of the study's six, without GSM8K",
    "mean_7": "mean of the study's seven",
    "mean_8": "mean of MobileLLM's eight",
}


def means(tasks: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """Every mean of `MEANS` over scored tasks (`acc`, `acc_norm`, `acc_stderr`, `num_fewshot` of each).

    `stderr` is that of the mean of `acc`, with tasks taken as independent. A task without `acc_norm` enters that mean
    with its `acc`, and is named under `acc_stands_in`. All are None where a task is missing, or was asked with other
    examples than in the study.
    """
    return {name: _mean(tasks, names) for name, names in MEANS.items()}


def _mean(tasks: Mapping[str, Mapping[str, Any]], names: Sequence[str]) -> dict[str, Any]:
    if any(name not in tasks or tasks[name]["num_fewshot"] != (shots(name) or 0) for name in names):
        return {"acc": None, "acc_norm": None, "stderr": None}
    chosen = [tasks[name] for name in names]
    norm = [part["acc"] if part["acc_norm"] is None else part["acc_norm"] for part in chosen]
    errors = [part["acc_stderr"] for part in chosen]
    known = [error for error in errors if error is not None]
    return {
        "acc": math.fsum(part["acc"] for part in chosen) / len(chosen),
        "acc_norm": math.fsum(norm) / len(norm),
        "stderr": math.sqrt(sum(e * e for e in known)) / len(chosen) if len(known) == len(errors) else None,
        "acc_stands_in": [name for name in names if tasks[name]["acc_norm"] is None],
    }


def present(record: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """The means of a record of `evaluate` that have all their tasks, by name."""
    return {name: record[name] for name in MEANS if record.get(name, {}).get("acc") is not None}
