"""Studies that were never run: rows with made-up answers, as `jaxlm.study.cells` would read them from a directory."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from jaxlm.config import RunConfig
from jaxlm.evaluation.statistics import Score
from jaxlm.families import resolve
from jaxlm.fields import build
from jaxlm.study.cells import FINISHED, LEFT_EMPTY, MISSING, Cell, Result, Study
from jaxlm.study.results import Run
from jaxlm.study.rows import CONVERT, EMPTY, TRAIN, Row
from jaxlm.study_config import EvaluateConfig, StudyConfig

STEP = 128  # tokens of an update
MODEL = {
    "family": "llama3",
    "vocab_size": 384,
    "num_layers": 2,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_heads": 2,
    "num_kv_heads": 1,
    "head_dim": 16,
    "max_positions": 16,
    "mask_token_id": 300,
}
CARD = 60_000_000  # parameters of a row that is no pocket row


@dataclass(frozen=True)
class Made:
    """What one row answers, a seed each.

    Attributes:
      items: by task and metric, [S, N]; a plain [S, N] is `acc`.
      windows: nats, tokens and bytes of each validation window, a seed each.
      losses: validation loss by update, a seed each: the row's curve, whose last update is its last.
      asked: a digest of the items.
    """

    items: Mapping[str, npt.ArrayLike | Mapping[str, npt.ArrayLike]] = field(default_factory=dict)
    windows: Sequence[Score] = ()
    is_diffusion: bool = False
    kind: str = TRAIN
    source: str = ""
    decode: Sequence[Mapping[str, Any]] = ()
    losses: Sequence[Mapping[int, float]] = ()
    parameters: int = CARD
    num_fewshot: Mapping[str, int] = field(default_factory=dict)
    asked: str = ""


def study(
    rows: Mapping[str, Made | None],
    *,
    seeds: Sequence[int] = (0, 1),
    mean: str = "one,two",
    truth: str = "truth",
    groups: Sequence[str] = (),
) -> Study:
    """A study of these rows; None is a row that has not run, and a name without a `Made` is none of its rows."""
    config = StudyConfig(
        title="made up",
        data=("base: --config=none",),
        rows=tuple(f"{name}:" for name in rows),
        groups=tuple(groups),
        seeds=tuple(seeds),
        evaluate=EvaluateConfig(mean=mean, truth=truth),
    )
    made = {name: Row(name, "", one.kind if one else TRAIN, None, "base", one.source if one else "", "")
            for name, one in rows.items()}  # fmt: skip
    results = [_result(made[name], seed, index, one) for name, one in rows.items() for index, seed in enumerate(seeds)]
    return Study(Path("made-up"), config, made, tuple(results))


def _result(row: Row, seed: int, index: int, made: Made | None) -> Result:
    cell = Cell(row, seed)
    if made is None or row.kind == EMPTY:
        status = LEFT_EMPTY if made and row.kind == EMPTY else MISSING
        return Result(cell, Path(cell.name), status, "", None, None, {})
    decode = made.decode[index] if made.decode else None
    return Result(cell, Path(cell.name), FINISHED, "", run(cell, index, made), decode, {"train": 1.0})


def run(cell: Cell, index: int, made: Made) -> Run:
    """The run of a cell; `index` counts its seed."""
    record = _record(made, index)
    losses = made.losses[index] if made.losses else {10: 5.0}
    validations = tuple({"step": step, "loss": loss, "stderr": 0.1, "num_windows": 16} for step, loss in losses.items())
    init_from = {"source": "nowhere", "step": 10} if cell.row.kind == CONVERT else None
    return Run(
        name=cell.name,
        config=_config(made.is_diffusion, cell.seed, max(losses)),
        kind="convert" if cell.row.kind == CONVERT else "train",
        manifest={
            "data": {"data_sha256": "d", "tokenizer_sha256": "t"},
            "init_from": init_from,
            "parameters": {"total": made.parameters, "non_embedding": made.parameters // 2},
        },
        steps=tuple({"step": step, "tokens": step * STEP, "loss": loss} for step, loss in losses.items()),
        validations=validations,
        evaluation=record if record["loss"] is not None else None,
        benchmarks=record if record["tasks"] else None,
        generations=(),
        verification=None,
        statistics=None,
    )


@cache
def _config(is_diffusion: bool, seed: int, num_steps: int) -> RunConfig:
    train = {"total_tokens": STEP * num_steps, "batch_tokens": STEP, "seq_len": 16}
    kind: dict[str, Any] = {"objective": {"kind": "diffusion"}} if is_diffusion else {}
    config: RunConfig = build(RunConfig, {"seed": seed, "model": MODEL, "train": train, **kind})
    return dataclasses.replace(config, model=resolve(config.model))


def _record(made: Made, index: int) -> dict[str, Any]:
    tasks: dict[str, Any] = {}
    items: dict[str, Any] = {}
    for task, given in made.items.items():
        values = {"acc": given} if not isinstance(given, Mapping) else given
        of_seed = {metric: np.asarray(value, np.float64)[index] for metric, value in values.items()}
        main = next(iter(of_seed))
        norm = of_seed.get("acc_norm")
        tasks[task] = {
            "acc": float(of_seed[main].mean()),
            "acc_stderr": float(of_seed[main].std(ddof=1) / len(of_seed[main]) ** 0.5),
            "acc_norm": None if norm is None else float(norm.mean()),
            "acc_norm_stderr": None if norm is None else float(norm.std(ddof=1) / len(norm) ** 0.5),
            "stderr": None,
            "metric": main,
            "n": len(of_seed[main]),
            "chance": 0.25,
            "num_fewshot": made.num_fewshot.get(task, 0),
            "items_sha256": made.asked,
            "controls": {},
        }
        items[task] = {metric: " ".join(f"{v:.6g}" for v in value) for metric, value in of_seed.items()}
    out: dict[str, Any] = {"tasks": tasks, "items": items, "loss": None, "is_bound": None}
    if made.windows:
        score = made.windows[index]
        bits = score.bits_per_byte
        out |= {
            "loss": score.nats_per_token.value,
            "stderr": score.nats_per_token.stderr,
            "bits_per_byte": bits.value if bits else None,
            "bits_per_byte_stderr": bits.stderr if bits else None,
            "is_bound": made.is_diffusion,
            "windows": {
                "nats": " ".join(f"{v:.9g}" for v in score.nats_N),
                "tokens": " ".join(f"{v:.0f}" for v in score.tokens_N),
                "bytes": " ".join(f"{v:.0f}" for v in score.bytes_N),
            },
        }
    return out


def answers(
    rng: np.random.Generator,
    quality: float,
    difficulty_N: npt.NDArray[np.float64],
    num_seeds: int,
    seed_effect: float = 0.0,
) -> npt.NDArray[np.float64]:
    """0 or 1 [S, N]: right with probability quality - difficulty, each seed's quality off by a normal `seed_effect`."""
    chance_SN = quality + seed_effect * rng.standard_normal((num_seeds, 1)) - difficulty_N
    return (rng.random(chance_SN.shape) < chance_SN).astype(np.float64)
