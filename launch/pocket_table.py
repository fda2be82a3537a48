"""The pocket families beside one another, as Markdown: `python launch/pocket_table.py WORKDIR ...`.

Every workdir holds a finished run of configs/pocket/family.py (or configs/pocket/dhara.py) and its evaluation.json.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from statistics import median

from jaxlm import command_line
from jaxlm.errors import UserError
from jaxlm.study import results, tables
from jaxlm.study.results import Run

HEADER = ("family", "parameters", "tokens", "nats per token", "below token frequencies", "bits per byte", "tokens/s")


def main(argv: Sequence[str]) -> None:
    """Prints the table and the conditions of the numbers in it."""
    if not argv:
        raise UserError("no workdir is named, allowed: python launch/pocket_table.py WORKDIR ...")
    runs = results.read_all(argv)
    for run in runs:
        if not (run.steps and run.evaluation and run.evaluation.get("below_token_frequency")):
            raise UserError(f"{run.name} is not trained and evaluated, allowed: a run with {results.EVALUATION}")
    print("\n".join(tables.table(HEADER, [row(run) for run in runs]) + conditions(runs)))


def row(run: Run) -> list[str]:
    """The cells of one run."""
    found, counts = run.evaluation or {}, run.manifest["parameters"]
    total, active, tokens = counts["total"], counts["active"], run.steps[-1]["tokens"]
    source, below = run.manifest["init_from"], found["below_token_frequency"]
    speeds = [line["tokens_per_sec"] for line in run.steps if line["tokens_per_sec"]]
    return [
        f"`{run.config.model.family}`",
        f"{total:,}" if active == total else f"{total:,} ({active:,} active)",
        f"{tokens:,}" if source is None else f"{Path(source['source']).name} + {tokens:,}",
        ("≤ " if found["is_bound"] else "") + tables.number(found["loss"], 3, found["stderr"]),
        tables.number(below["nats_per_token"], 3, below["stderr"]),
        ("≤ " if found["is_bound"] else "") + tables.number(found["bits_per_byte"], 3),
        tables.number(median(speeds), 0),
    ]


def conditions(runs: Sequence[Run]) -> list[str]:
    """What the numbers are, and what all runs share; a value that is not the same in all is named with the others."""
    evaluations = [run.evaluation or {} for run in runs]
    shared = {
        "device": [run.manifest["devices"]["kind"] for run in runs],
        "arithmetic": [run.manifest["execution"]["dtype"] for run in runs],
        "seed": [run.config.seed for run in runs],
        "batch": [f"{run.config.train.batch_size} x {run.config.train.seq_len}" for run in runs],
        "peak rate": [run.config.train.learning_rate for run in runs],
        "jax": [run.manifest["versions"]["jax"] for run in runs],
        "data": [run.manifest["data"]["data_sha256"][:12] for run in runs],
        "validation windows": [found["num_windows"] for found in evaluations],
    }
    values = (f"{name} {' or '.join(dict.fromkeys(map(str, column)))}" for name, column in shared.items())
    frequency = evaluations[0]["baselines"]["token_frequency"]
    return [
        f"Loss of the token frequencies: {tables.number(frequency['loss'], 3, frequency['stderr'])} nats. ± is one "
        "standard error over windows, of the difference (by pairs) where it is one; ≤ is a bound (ELBO). Tokens/s is "
        "the median over the lines of metrics.jsonl, compilation apart.",
        "",
        f"Conditions: {', '.join(values)}.",
    ]


if __name__ == "__main__":
    command_line.run(main)
