"""Benchmark scores as `evaluate` prints them: each beside chance, its controls and its error."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from jaxlm.evaluation import averages
from jaxlm.evaluation.scores import apart

CONTROLS = {"length_only": "length only", "random_init": "random init"}
NOTE = "~ not more than two standard errors above {}: no evidence that it knows anything"


def table(record: Mapping[str, Any]) -> str:
    """The tasks and the means of a record of `evaluate`; empty without tasks."""
    if not record["tasks"]:
        return ""
    rows = [["", "items", "chance", *CONTROLS.values(), "acc", "acc_norm"]]
    notes = []
    for name, task in record["tasks"].items():
        controls = [control_scores(task, control) for control in CONTROLS]
        scores = [
            _number(task[metric], task[f"{metric}_stderr"], "  " if is_apart(task, metric) else " ~")
            for metric in ("acc", "acc_norm")
        ]
        rows.append([name, f"{task['n']:,}", _number(task["chance"]), *controls, *scores])
        notes += _notes(name, task)
    for name, mean in averages.present(record).items():
        scores = [_number(mean["acc"], mean["stderr"], "  "), _number(mean["acc_norm"], None, "  ")]
        rows.append([name, "", "", *[""] * len(CONTROLS), *scores])
        stand_in = ", ".join(mean["acc_stands_in"])
        notes.append(f"{name}: {averages.LABELS[name]}" + (stand_in and f"; acc stands in for acc_norm of {stand_in}"))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [
        "  ".join([row[0].ljust(widths[0]), *(cell.rjust(w) for cell, w in zip(row[1:], widths[1:], strict=True))])
        for row in rows
    ]
    compared = any("length_only" in task["controls"] for task in record["tasks"].values())
    note = NOTE.format("chance and the length-only baseline" if compared else "chance")
    return "\n".join([*(line.rstrip() for line in lines), note, *notes])


def control_scores(task: Mapping[str, Any], control: str) -> str:
    """What a control scores on a task: `acc`, and behind a stroke `acc_norm` where there is one."""
    scores = task["controls"].get(control) or {"acc": None, "acc_norm": None}
    return " / ".join(
        _number(scores[metric]) for metric in ("acc", "acc_norm") if metric == "acc" or scores[metric] is not None
    )


def is_apart(task: Mapping[str, Any], metric: str) -> bool:
    """Whether a task's `acc` or `acc_norm` stands out from chance and from the length-only baseline."""
    baseline = task["controls"].get("length_only") or {}
    return apart(task[metric], task[f"{metric}_stderr"], task["chance"], baseline.get(metric))


def _notes(name: str, task: Mapping[str, Any]) -> list[str]:
    out = []
    if task["metric"] != "acc":
        out.append(f"{name}: acc is {task['metric']}")
    out += [f"{name}: {metric} {part['value']:.4f}" for metric, part in task["other"].items()]
    if any(task["truncated"].values()):
        counts = ", ".join(f"{key} {value:,}" for key, value in task["truncated"].items())
        out.append(f"{name}: cut on the left to fit the context: {counts}")
    if task["mc_stderr"] is not None:
        out.append(f"{name}: log-likelihoods are bounds, Monte-Carlo standard error {task['mc_stderr']:.3g} nats each")
    return out


def _number(value: float | None, error: float | None = None, mark: str = "") -> str:
    if value is None:
        return "-" + " " * len(mark)
    return f"{value:.4f}" + ("" if error is None else f" ± {error:.4f}") + mark
