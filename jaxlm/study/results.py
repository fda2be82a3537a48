"""What a run left behind, read back: configuration, manifest, metrics, evaluation, generations, verification.

Beside what training writes, a workdir may hold the answers of other commands under these names; a report shows those
that are there and says which are not.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jaxlm.config import RunConfig
from jaxlm.errors import UserError
from jaxlm.training import workdir as workdirs
from jaxlm.training.metrics import read_lines
from jaxlm.training.schedule import Phase, phases

EVALUATION = "evaluation.json"
GENERATIONS = "generations.jsonl"
VERIFICATION = "verification.json"


@dataclass(frozen=True)
class Run:
    """One workdir. What it does not have is None, or empty (`generations`).

    `evaluation` is that record where it has a loss, `benchmarks` the same where it has tasks.
    """

    name: str
    config: RunConfig
    kind: str
    manifest: dict[str, Any]
    steps: tuple[dict[str, Any], ...]
    validations: tuple[dict[str, Any], ...]
    evaluation: dict[str, Any] | None
    benchmarks: dict[str, Any] | None
    generations: tuple[dict[str, Any], ...]
    verification: dict[str, Any] | None
    statistics: dict[str, Any] | None

    @property
    def is_diffusion(self) -> bool:
        """Whether its loss is a bound."""
        return self.config.objective.kind == "diffusion"

    @property
    def phases(self) -> Sequence[Phase]:
        """The block-size phases of a conversion; none for another run."""
        return phases(self.config.convert, self.config.train) if self.kind == "convert" else ()

    def tokens_at(self, step: int) -> int:
        """Tokens trained on after `step` optimizer steps of this run."""
        return step * self.config.train.batch_tokens

    def baseline(self, name: str, key: str) -> float | None:
        """A number of one baseline of its evaluation."""
        value = ((self.evaluation or {}).get("baselines") or {}).get(name, {}).get(key)
        return None if value is None else float(value)


def block_label(block_size: int, seq_len: int) -> str:
    """How a block size is written: its number, or the whole window."""
    return f"window ({seq_len})" if block_size in (0, seq_len) else str(block_size)


def read_all(directories: Sequence[str | Path]) -> list[Run]:
    """The runs of several workdirs, named by their directories, or by the paths where two names are the same."""
    runs = [read(directory) for directory in directories]
    names = [run.name for run in runs]
    if len(set(names)) < len(names):
        runs = [dataclasses.replace(run, name=str(path)) for run, path in zip(runs, directories, strict=True)]
    names = [run.name for run in runs]
    if len(set(names)) < len(names):
        raise UserError(f"--workdir names a directory twice ({', '.join(names)}), allowed: each once")
    return runs


def read(directory: str | Path) -> Run:
    """Everything a workdir says. Raises UserError where it is no workdir or one of its files cannot be read."""
    directory = Path(directory)
    config, kind = workdirs.read(directory)
    lines, evaluation = read_lines(directory), read_if_there(directory / EVALUATION)
    return Run(
        name=directory.name,
        config=config,
        kind=kind,
        manifest=read_if_there(directory / "manifest.json") or {},
        steps=_latest([line for line in lines if "eval" not in line]),
        validations=_latest([line for line in lines if line.get("eval") == "validation"]),
        evaluation=evaluation if evaluation and evaluation["loss"] is not None else None,
        benchmarks=evaluation if evaluation and evaluation.get("tasks") else None,
        generations=tuple(_json_lines(directory / GENERATIONS)),
        verification=read_if_there(directory / VERIFICATION),
        statistics=read_if_there(Path(config.data.dir) / "statistics.json"),
    )


def _latest(lines: list[dict[str, Any]]) -> tuple[dict[str, Any], ...]:
    # A run that was killed repeats the steps after its last checkpoint when it goes on; the last word on a step counts.
    by_step = {line["step"]: line for line in lines}
    return tuple(by_step[step] for step in sorted(by_step))


def read_if_there(path: Path) -> dict[str, Any] | None:
    """The JSON object in a file of a workdir; None where there is no file."""
    return workdirs.read_json(path) if path.is_file() else None


def _json_lines(path: Path) -> list[dict[str, Any]]:
    if not path.is_file():
        return []
    lines = path.read_text("utf-8").splitlines()
    try:
        return [dict(json.loads(line)) for line in lines if line.strip()]
    except ValueError as error:
        raise UserError(f"{path} is not one JSON object a line ({error})") from None
