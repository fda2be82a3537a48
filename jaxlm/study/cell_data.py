"""One cell as the report shows it: plain values, read from what its workdir says."""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from dataclasses import dataclass
from statistics import median
from typing import Any

import numpy as np

from jaxlm.study.cells import Result
from jaxlm.study.results import EVALUATION, Run
from jaxlm.study.rows import READ
from jaxlm.study.tables import condition

CURVE_POINTS = 100
_OF_LOSS = ("loss", "stderr", "bits_per_byte", "bits_per_byte_stderr", "is_bound", "num_windows")
_OF_TASK = ("acc", "acc_stderr", "acc_norm", "acc_norm_stderr", "metric", "n", "chance", "num_fewshot", "controls")


@dataclass(frozen=True)
class CellData:
    """A row under a seed.

    Attributes:
      name: as people read it.
      row: the name of its row, with the learning rate where that is not the row's own.
      seed: its own.
      status: `finished`, `begun`, `failed`, `missing` or `empty`.
      error: why it failed, one line, or "".
      evaluated_at: UTC, ISO 8601; None where it was not.
      parameters: all of them; None before training began.
      active_parameters: those that one token uses.
      tokens: that it was trained on by itself, without what it started from.
      train_tokens_per_sec: median over logged steps, compilation apart.
      seconds: by step of the study.
      decode: what `decode.json` says.
      loss: on held-out text; `is_bound` of a diffusion model.
      tasks: scores, errors, chance and controls by task.
      items: by task and metric, the score of every item as numbers with spaces.
      windows: nats, tokens and bytes of every validation window, as numbers with spaces.
      training: (tokens, loss) of logged steps, means over stretches where there are many.
      validation: (tokens, loss, standard error).
      samples: prompts and what was written behind them.
      conditions: device, versions, code, data, by name.
    """

    name: str
    row: str
    seed: int
    status: str
    error: str
    evaluated_at: str | None
    parameters: int | None
    active_parameters: int | None
    tokens: int | None
    train_tokens_per_sec: float | None
    seconds: Mapping[str, float]
    decode: Mapping[str, Any] | None
    loss: Mapping[str, Any] | None
    tasks: Mapping[str, Mapping[str, Any]]
    items: Mapping[str, Mapping[str, str]]
    windows: Mapping[str, str] | None
    training: tuple[tuple[float, float], ...]
    validation: tuple[tuple[int, float, float | None], ...]
    samples: tuple[Mapping[str, str], ...]
    conditions: Mapping[str, str]


def cell_data(result: Result, row: str) -> CellData:
    """What is there of one cell; `row` is what its row is called in the report."""
    run, evaluation = result.run, result.run.evaluation if result.run else None
    benchmarks = (result.run.benchmarks if result.run else None) or {}
    trained = run if result.cell.row.kind != READ else None  # training and samples are those of the row it reads
    counts = run.manifest.get("parameters", {}) if run else {}
    speeds = [line["tokens_per_sec"] for line in trained.steps if line.get("tokens_per_sec")] if trained else []
    file = result.directory / EVALUATION
    return CellData(
        name=result.cell.name,
        row=row,
        seed=result.cell.seed,
        status=result.status,
        error=result.error,
        evaluated_at=_time(file.stat().st_mtime) if file.is_file() else None,
        parameters=counts.get("total"),
        active_parameters=counts.get("active"),
        tokens=trained.steps[-1]["tokens"] if trained and trained.steps else None,
        train_tokens_per_sec=median(speeds) if speeds else None,
        seconds=dict(result.seconds),
        decode=result.decode,
        loss={key: evaluation[key] for key in _OF_LOSS} if evaluation else None,
        tasks={name: {key: task.get(key) for key in _OF_TASK} for name, task in result.tasks.items()},
        items=benchmarks.get("items", {}),
        windows=evaluation.get("windows") if evaluation else None,
        training=_training(trained) if trained else (),
        validation=_validation(trained) if trained else (),
        samples=tuple({key: line[key] for key in ("prompt", "text")} for line in trained.generations)
        if trained
        else (),
        conditions=condition(run) if run else {},
    )


def _time(seconds: float) -> str:
    return datetime.datetime.fromtimestamp(seconds, datetime.UTC).isoformat(timespec="minutes")


def _training(run: Run) -> tuple[tuple[float, float], ...]:
    """At most `CURVE_POINTS` points, each the mean of a stretch of steps."""
    if not run.steps:
        return ()
    points = np.array([(line["tokens"], line["loss"]) for line in run.steps], np.float64)
    parts = np.array_split(points, min(CURVE_POINTS, len(points)))
    return tuple((float(x), float(y)) for x, y in (part.mean(axis=0) for part in parts))


def _validation(run: Run) -> tuple[tuple[int, float, float | None], ...]:
    return tuple((run.tokens_at(line["step"]), line["loss"], line["stderr"]) for line in run.validations)
