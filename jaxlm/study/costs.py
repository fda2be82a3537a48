"""What the runs of a study cost before they are made: tokens, FLOPs, hours, dollars; evaluation is an estimate.

Training is counted as MFU counts it (`training.flops`), a conversion phase by phase. A forward pass is a third of a
training step. How many items a benchmark has is that of its test split in lm-evaluation-harness; how long they are, in
GPT-2's tokens, is estimated.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from jaxlm.config import RunConfig
from jaxlm.evaluation import bigbench_tasks, held_out_tasks, tasks
from jaxlm.objectives import Objective
from jaxlm.study.cells import cells
from jaxlm.study.rows import CONVERT, READ, TRAIN, Row
from jaxlm.study.texts import Texts
from jaxlm.study_config import StudyConfig, listed, name_of, named
from jaxlm.training import flops
from jaxlm.training.schedule import phases_of

MFU = 0.3  # of training; a fair aim at this size on one GPU
EVALUATION_MFU = 0.1  # short rows in small batches
GPUS = {"a40": flops.PEAK_FLOPS["NVIDIA A40"], "h200": flops.PEAK_FLOPS["NVIDIA H200"]}
_SECONDS = 3600


@dataclass(frozen=True)
class Benchmark:
    """Items of a task, rows of a forward for each, tokens of a row; `written`: new tokens, where an answer is text."""

    items: int
    rows: float
    tokens: int
    written: int = 0


# MMLU's four letters are read off one row. TruthfulQA-MC2 has 7.2 answers a question, behind a primer of six.
BENCHMARKS: Mapping[str, Benchmark] = {
    "hellaswag": Benchmark(10_042, 4, 100),
    "piqa": Benchmark(1_838, 2, 45),
    "winogrande": Benchmark(1_267, 2, 30),
    "arc_challenge": Benchmark(1_172, 4, 45),
    "mmlu": Benchmark(14_042, 1, 700),
    "truthfulqa_mc2": Benchmark(817, 7.2, 250),
    "gsm8k": Benchmark(1_319, 1, 900, written=256),
    "arc_easy": Benchmark(2_376, 4, 40),
    "boolq": Benchmark(3_270, 2, 150),
    "social_iqa": Benchmark(1_954, 3, 40),
    "openbookqa": Benchmark(500, 4, 25),
}
_OFFLINE_TOKENS = 80
_ONE_TOKEN = ("mmlu", "boolq")  # whose answers take one forward whatever the masks


@dataclass(frozen=True)
class Cost:
    """One run of a row, FLOPs and hours of it alone; None where a row has no shape of its own.

    Attributes:
      row: which.
      groups: that it is compared in.
      runs: seeds times rates.
      parameters, active: counts; `is_in_range` whether the total is within the study's marks.
      tokens: trained on, what it started from not counted.
      training, evaluation: FLOPs.
      uncounted: tasks that no table here has, which cost nothing in these figures.
    """

    row: Row
    groups: tuple[str, ...]
    runs: int
    parameters: int | None
    active: int | None
    is_in_range: bool | None
    tokens: int
    training: float
    evaluation: float
    uncounted: tuple[str, ...]

    def hours(self, gpu: str) -> float:
        """Of one run on one of `GPUS`, evaluation included."""
        return (self.training / MFU + self.evaluation / EVALUATION_MFU) / GPUS[gpu] / _SECONDS


def of_rows(config: StudyConfig, rows: Mapping[str, Row], names: Sequence[str]) -> list[Cost]:
    """The costs of the named rows, in order; a row stands once, in however many groups it is."""
    groups = {name: members.split() for name, members in named(config.groups).items()}
    held_back = _held_back(config)
    return [
        _cost(config, rows, rows[name], tuple(group for group in groups if name in groups[group]), held_back)
        for name in names
    ]


def with_source(cost: Cost, costs: Mapping[str, Cost]) -> Cost:
    """A conversion together with the run that it starts from, which the study leaves out; any other row as it is."""
    if cost.row.kind != CONVERT or cost.row.source not in costs:
        return cost
    source = costs[cost.row.source]
    return dataclasses.replace(cost, tokens=cost.tokens + source.tokens, training=cost.training + source.training)


def _cost(config: StudyConfig, rows: Mapping[str, Row], row: Row, groups: tuple[str, ...], held_back: float) -> Cost:
    runs = len(cells(config, rows, [row.name])) if row.kind else 0
    of = rows[row.source] if row.kind == READ else row
    if of.config is None:
        return Cost(row, groups, runs, None, None, None, 0, 0.0, 0.0, ())
    run, trained = of.config, row.kind in (TRAIN, CONVERT)
    counts = flops.parameter_counts(flops.described(run.model))
    steps = run.train.num_steps
    evaluation, uncounted = _evaluation(config, run, held_back)
    return Cost(
        row=row,
        groups=groups,
        runs=runs,
        parameters=counts["total"],
        active=counts["active"],
        is_in_range=config.smallest <= counts["total"] <= config.largest,
        tokens=steps * run.train.batch_tokens if trained else 0,
        training=_training(run, row.kind) if trained else 0.0,
        evaluation=evaluation,
        uncounted=uncounted,
    )


def _training(run: RunConfig, kind: str) -> float:
    return sum(
        (phase.stop - phase.start) * run.train.batch_tokens * _per_token(run, phase.block_size)
        for phase in phases_of(run, kind)
    )


@functools.cache
def _per_token(run: RunConfig, block_size: int) -> float:
    """FLOPs of training a token, with the objective at a block size."""
    objective = dataclasses.replace(run.objective, block_size=block_size or None)
    return flops.training_flops(Objective(objective, flops.described(run.model)), run.train.seq_len)[0]


def _evaluation(config: StudyConfig, run: RunConfig, held_back: float) -> tuple[float, tuple[str, ...]]:
    """FLOPs of the loss and of the tasks, and the tasks that are not known here."""
    asked, diffusion = config.evaluate, run.objective.kind == "diffusion"
    models = 1 + ("random_init" in asked.controls)
    names = tasks.expand(listed(asked.tasks)) if asked.tasks else ()
    known = {name: found for name in names if (found := _benchmark(name)) is not None}
    if asked.held_out_items:
        known |= {name: Benchmark(asked.held_out_items, 4, run.train.seq_len // 2) for name in held_out_tasks.TASKS}
    tokens = 0.0
    for name, task in known.items():
        items = min(asked.limit or task.items, task.items)
        row = task.tokens + task.written
        passes = 1.0
        if diffusion:
            # A canvas is written a token a pass, and each pass reads all of it.
            passes = task.written or (1 if name in _ONE_TOKEN else asked.mc_samples)
        tokens += models * items * task.rows * row * passes
    scored = config.evaluate.windows * run.train.seq_len or held_back
    tokens += scored * (asked.draws if diffusion else 1)
    forward = _per_token(run, run.objective.block_size or 0) / 3
    return tokens * forward, tuple(name for name in names if name not in known)


def _benchmark(name: str) -> Benchmark | None:
    offline = bigbench_tasks.TASKS.get(name)
    if offline is not None:
        return Benchmark(offline.num_items, float(offline.choices.rpartition("-")[2]), _OFFLINE_TOKENS)
    return BENCHMARKS.get(name)


def _held_back(config: StudyConfig) -> float:
    """Tokens of the validation text: the share of the first data where these are of a stated size."""
    if not config.data:
        return 0.0
    data = Texts(config, Path()).configs[name_of(config.data[0])]
    return (data.total_tokens or 0) * data.validation_share / (1 - data.validation_share)
