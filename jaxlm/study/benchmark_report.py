"""The report's section on benchmarks: every score beside chance and its controls, and a mark where it says nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from jaxlm.evaluation import averages
from jaxlm.evaluation.benchmark_table import CONTROLS, control_scores, is_apart
from jaxlm.study.results import Run
from jaxlm.study.tables import number, table

UNCLEAR = " ~"


def task_names(runs: Sequence[Run]) -> list[str]:
    """The tasks that any of the runs was given, in order."""
    return list(dict.fromkeys(name for run in runs if run.benchmarks for name in run.benchmarks["tasks"]))


def lines(runs: Sequence[Run]) -> list[str]:
    """What the numbers are, and the table: a row for each task and run, then the means, each with its name."""
    rows = []
    for name in task_names(runs):
        for run in runs:
            if run.benchmarks and (task := run.benchmarks["tasks"].get(name)) is not None:
                rows.append([name, run.name, *_cells(task)])
    for run in runs:
        for name, mean in averages.present(run.benchmarks or {}).items():
            scores = [number(mean["acc"], 4, mean["stderr"]), number(mean["acc_norm"], 4)]
            rows.append([f"**{name}**", run.name, *[""] * (2 + len(CONTROLS)), *scores])
    header = ("task", "run", "items", "chance", *CONTROLS.values(), "acc", "acc_norm")
    return [_note(runs), "", *table(header, rows, 2)]


def _cells(task: Mapping[str, Any]) -> list[str]:
    controls = [control_scores(task, control) for control in CONTROLS]
    scores = [
        number(task[metric], 4, task[f"{metric}_stderr"])
        + ("" if task[metric] is None or is_apart(task, metric) else UNCLEAR)
        for metric in ("acc", "acc_norm")
    ]
    return [f"{task['n']:,}", number(task["chance"], 4), *controls, *scores]


def _note(runs: Sequence[Run]) -> str:
    found = {name for run in runs for name in averages.present(run.benchmarks or {})}
    named = "".join(f" *{name}* is the {averages.LABELS[name]}." for name in averages.MEANS if name in found)
    text = (
        "± is one standard error over items. *Length only* gives every token the same likelihood: it knows how long an "
        "option is and nothing else. *Random init* is the same architecture with fresh parameters. Their acc_norm is "
        "behind the stroke. A score with ~ is not more than two standard errors above chance and above *length only*: "
        f"no evidence that the model knows anything.{named}"
    )
    if any(run.is_diffusion for run in runs if run.benchmarks):
        text += " A diffusion model's likelihoods are bounds, drawn with masks that the options of an item share."
    return text
