"""The cells of a study, a row under one seed (and one learning rate), and where each is on disk.

    WORKDIR/study.json                      the resolved configuration
    WORKDIR/data/NAME/                      prepared text
    WORKDIR/tasks/                          tasks made from its held-out part
    WORKDIR/runs/ROW/seed_0/                a workdir of `train` or `convert`, with evaluation.json, generations.jsonl,
    WORKDIR/runs/ROW/lr_0.001/seed_0/       decode.json, cell.json (seconds of each step), failed.json (why it stopped)
    WORKDIR/runs/ROW/seed_0.log             what the steps said, where it was not to a terminal
    WORKDIR/report/                         index.html, report.md, data.json
    WORKDIR/cache/jax/                      compiled programs, so that the next seed compiles nothing

A cell is finished when all of its files are there. Beside each place that processes could make at the same time is a
lock.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from jaxlm import fields
from jaxlm.data.windows import read_fingerprint
from jaxlm.errors import UserError
from jaxlm.evaluation import record
from jaxlm.evaluation.statistics import Score
from jaxlm.study import rows as study_rows
from jaxlm.study.results import EVALUATION, Run, read_if_there
from jaxlm.study.results import read as read_run
from jaxlm.study.rows import EMPTY, IMPORT, READ, TRAIN, Row
from jaxlm.study_config import StudyConfig, name_of, named
from jaxlm.training import workdir as workdirs

STUDY = "study.json"
DATA = "data"
DECODE, CELL, FAILED = "decode.json", "cell.json", "failed.json"
FINISHED, BEGUN, BROKEN, MISSING, LEFT_EMPTY = "finished", "begun", "failed", "missing", "empty"
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Cell:
    """A row under a seed. `learning_rate` is None where the row's own is used."""

    row: Row
    seed: int
    learning_rate: float | None = None

    @property
    def name(self) -> str:
        """As people read it."""
        rate = "" if self.learning_rate is None else f", rate {self.learning_rate:g}"
        return f"{self.row.name}{rate}, seed {self.seed}"

    def directory(self, workdir: Path) -> Path:
        """The run's own workdir."""
        rate = () if self.learning_rate is None else (f"lr_{self.learning_rate:g}",)
        return workdir.joinpath("runs", self.row.name, *rate, f"seed_{self.seed}")


@dataclass(frozen=True)
class Result:
    """What is there of a cell.

    Attributes:
      cell: which.
      directory: where; it need not exist.
      status: `finished`, `begun`, `failed`, `missing`, or `empty` for a row without a command.
      error: of a failed cell, one line: the step and what went wrong; else "".
      run: everything its workdir says; None where there is none yet. Of a `read` row the run that it reads, with
        evaluation and benchmarks of its own.
      decode: how fast it writes; None where it was not measured.
      seconds: by step, what it took.
    """

    cell: Cell
    directory: Path
    status: str
    error: str
    run: Run | None
    decode: Mapping[str, Any] | None
    seconds: Mapping[str, float]

    @property
    def tasks(self) -> Mapping[str, Mapping[str, Any]]:
        """The records of its tasks by name, as `evaluate` writes them; empty without any."""
        return (self.run.benchmarks or {}).get("tasks", {}) if self.run else {}

    def items(self, task: str, metric: str = "") -> Floats | None:
        """The score of every item of a task in order, float64 [N]; None where it was not asked.

        Of a group (mmlu) all of its tasks behind one another. Without a `metric` the one that counts.
        """
        asked = self.tasks.get(task)
        if asked is None or self.run is None or self.run.benchmarks is None:
            return None
        kept = self.run.benchmarks.get("items", {})
        parts = list(asked.get("subtasks", {})) or [task]
        if any(part not in kept or (metric or asked["metric"]) not in kept[part] for part in parts):
            return None
        return np.concatenate([np.array(kept[p][metric or asked["metric"]].split(), np.float64) for p in parts])

    def asked(self, task: str) -> str:
        """A digest of the items of a task, which two rows have in common or not; "" where none was kept."""
        record = self.tasks[task]
        return "".join(part.get("items_sha256", "") for part in record.get("subtasks", {task: record}).values())

    @property
    def windows(self) -> Score | None:
        """Nats, tokens and bytes of each validation window; None where no loss was measured."""
        return record.score(self.run.evaluation or {}) if self.run else None


@dataclass(frozen=True)
class Study:
    """A study and what there is of it. `results` are in the order of rows, then rates, then seeds."""

    workdir: Path
    config: StudyConfig
    rows: Mapping[str, Row]
    results: tuple[Result, ...]

    def of(self, row: str, learning_rate: float | None = None) -> tuple[Result, ...]:
        """The results of a row, a seed each; none for a row that is not there."""
        wanted = (row, learning_rate)
        return tuple(r for r in self.results if (r.cell.row.name, r.cell.learning_rate) == wanted)

    @property
    def rated(self) -> dict[str, tuple[str, float]]:
        """Row and rate of each row at a learning rate that is not its own, by the name that reports give it."""
        cells = dict.fromkeys((r.cell.row.name, r.cell.learning_rate) for r in self.results)
        return {f"{row}, rate {rate:g}": (row, rate) for row, rate in cells if rate is not None}

    @property
    def groups(self) -> dict[str, tuple[str, ...]]:
        """The rows of each group, the reference first."""
        return {name: tuple(members.split()) for name, members in named(self.config.groups).items()}


def cells(config: StudyConfig, rows: Mapping[str, Row], names: Sequence[str]) -> list[Cell]:
    """The cells of the named rows: rates of rows that train, seeds of all that depend on one."""
    out = []
    for name in names:
        row = rows[name]
        rates = (None, *config.learning_rates) if row.kind == TRAIN else (None,)
        out += [Cell(row, seed, rate) for rate in rates for seed in (config.seeds if _is_seeded(row, rows) else (0,))]
    return out


def _is_seeded(row: Row, rows: Mapping[str, Row]) -> bool:
    """An imported model, and what reads it, has no seed of ours; an empty row has no run."""
    return row.kind not in (IMPORT, EMPTY) and not (row.kind == READ and rows[row.source].kind == IMPORT)


def source(cell: Cell, rows: Mapping[str, Row]) -> Cell:
    """The cell whose weights a `convert` or `read` cell starts from: under the same seed, at the row's own rate."""
    row = rows[cell.row.source]
    return Cell(row, cell.seed if _is_seeded(row, rows) else 0)


def read(workdir: Path) -> Study:
    """A study that has been begun. Raises UserError where the directory is none."""
    if not (workdir / STUDY).is_file():
        raise UserError(f"{workdir} is no study, allowed: a directory made by `study --config=FILE --workdir=DIR`")
    config: StudyConfig = fields.build(StudyConfig, workdirs.read_json(workdir / STUDY))
    rows = study_rows.read(config)
    found = tuple(result(workdir, cell, rows, config) for cell in cells(config, rows, list(rows)))
    return Study(workdir, config, rows, found)


def data_directory(workdir: Path, name: str) -> Path:
    """Where prepared text is, or will be."""
    return workdir / DATA / name


def text_of(workdir: Path, config: StudyConfig, row: Row, home: Path) -> Path | None:
    """The data whose held-out text the model in `home` is asked about: the study's first, or those of its row.

    They were made with its tokenizer, in windows that it can take; None where there are no such data.
    """
    run_config, _ = workdirs.read(home)
    tokenizer = workdirs.read_json(home / workdirs.MANIFEST)["data"]["tokenizer_sha256"]
    for name in filter(None, (*(name_of(line) for line in config.data[:1]), row.data)):
        there = read_fingerprint(data_directory(workdir, name))
        if (
            there is not None
            and there["tokenizer_sha256"] == tokenizer
            and there["config"]["seq_len"] <= run_config.model.max_positions
        ):
            return data_directory(workdir, name)
    return None


def writes(workdir: Path, config: StudyConfig, cell: Cell) -> bool:
    """Whether a cell has samples and a speed: one with weights of its own, and text for prompts."""
    if cell.row.kind != IMPORT:
        return cell.row.kind not in (READ, EMPTY)
    home = cell.directory(workdir)
    return workdirs.is_complete(home) and text_of(workdir, config, cell.row, home) is not None


def result(workdir: Path, cell: Cell, rows: Mapping[str, Row], config: StudyConfig) -> Result:
    """What is there of one cell."""
    directory = cell.directory(workdir)
    if cell.row.kind == EMPTY:
        return Result(cell, directory, LEFT_EMPTY, "", None, None, {})
    error = read_if_there(directory / FAILED)
    home = source(cell, rows).directory(workdir) if cell.row.kind == READ else directory
    run = _run(cell, home, directory)
    is_timed = config.decode.rounds and writes(workdir, config, cell)
    files = [directory / EVALUATION, *([directory / DECODE] if is_timed else [])]
    done = run is not None and all(file.is_file() for file in files)
    status = FINISHED if done else BROKEN if error else BEGUN if directory.is_dir() else MISSING
    return Result(
        cell,
        directory,
        status,
        "" if error is None or done else f"{error['step']}: {error['error']}",
        run,
        read_if_there(directory / DECODE),
        (read_if_there(directory / CELL) or {}).get("seconds", {}),
    )


def _run(cell: Cell, home: Path, directory: Path) -> Run | None:
    """The run in `home`, with the evaluation in `directory`, named as the cell."""
    if not (home / workdirs.CONFIG).is_file():  # of what failed before it began there is failed.json alone
        return None
    run = read_run(home)
    if home != directory:
        own = read_if_there(directory / EVALUATION)
        if own is None:
            return None
        has_loss = own["loss"] is not None
        run = dataclasses.replace(run, evaluation=own if has_loss else None, benchmarks=own if own["tasks"] else None)
    return dataclasses.replace(run, name=cell.name)
