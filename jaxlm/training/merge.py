"""Several checkpoints of one run as one model: the mean of the parameters of the best.

LLaDA2.0 (arXiv 2512.15745) merges so after block-diffusion training, in place of more decay of the learning rate (WSM).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import numpy as np

from jaxlm.config import RunConfig
from jaxlm.data.tokenizer import Tokenizer
from jaxlm.errors import UserError
from jaxlm.evaluation.record import block_label
from jaxlm.families import Model, build_model
from jaxlm.training import checkpoint, workdir
from jaxlm.training.metrics import read_lines
from jaxlm.training.schedule import phase_at, phases_of


@dataclass(frozen=True)
class Validated:
    """A checkpoint that is still there, and its validation loss in nats a token."""

    step: int
    loss: float


def merge(source: Path, top_k: int, out: Path) -> list[Validated]:
    """Writes the mean of the `top_k` best checkpoints of the workdir `source` as a workdir `out`; returns them.

    `out`, new or empty, becomes a workdir of the same run that is complete at the newest of the merged steps: training
    into it says so, and it holds parameters alone. Its manifest says what was merged. Raises UserError where `source`
    is no workdir or has fewer such checkpoints.
    """
    config, kind = workdir.read(source)
    chosen = best(source, config, kind, top_k)
    params = mean(source, [found.step for found in chosen], build_model(config.model, config.execution))
    merged = {"workdir": str(source), "checkpoints": [{"step": found.step, "loss": found.loss} for found in chosen]}
    manifest = {**workdir.read_json(source / workdir.MANIFEST), **workdir.environment(), "merged": merged}
    workdir.create(out, config, kind, manifest, Tokenizer.load(source / workdir.TOKENIZER))
    step = max(found.step for found in chosen)
    checkpoint.write_params(out, step, params)
    workdir.mark_complete(out, {"step": step})
    return chosen


def best(source: Path, config: RunConfig, kind: str, top_k: int) -> list[Validated]:
    """The `top_k` checkpoints of a run with the least validation loss, best first; of equal ones the newer.

    Only those of the last phase count, whose losses are of one objective, and only those that were validated on as many
    windows as the last one.
    """
    phases = phases_of(config, kind)
    last = phases[-1]
    lines = [line for line in read_lines(source) if line.get("eval") == "validation"]
    lines = [line for line in lines if line["num_windows"] == lines[-1]["num_windows"]]
    there = checkpoint.steps(source)
    found = {
        line["step"]: Validated(line["step"], line["loss"])
        for line in lines
        if line["step"] in there and phase_at(phases, line["step"] - 1) == last
    }
    if len(found) < top_k:
        block = "" if kind != "convert" else f" of the last phase ({block_label(last.block_size)})"
        raise UserError(
            f"--top_k is {top_k}, allowed: at most {len(found)}, the checkpoints{block} in {source} that are kept and "
            "validated (for more, train with train.keep as large and train.eval_every equal to train.save_every)"
        )
    return sorted(found.values(), key=lambda one: (one.loss, -one.step))[:top_k]


def mean(source: Path, steps: Sequence[int], model: Model) -> Any:
    """The mean over the checkpoints `steps` of each parameter, summed in float64, as float32 NumPy arrays."""
    total: Any = None
    for step in steps:
        params = jax.device_get(checkpoint.load_params(source, step, model=model)[0])
        exact = jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), params)
        total = exact if total is None else jax.tree.map(np.add, total, exact)
    return jax.tree.map(lambda leaf: (leaf / len(steps)).astype(np.float32), total)
