"""One workdir evaluated: its model and its windows opened, scored, and put into a record."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import numpy as np
import numpy.typing as npt

import jaxlm
from jaxlm.config import RunConfig
from jaxlm.data.loader import Batch, chosen_windows, validation_batches
from jaxlm.data.windows import Windows, read_fingerprint
from jaxlm.errors import UserError
from jaxlm.evaluation import averages, baselines, record
from jaxlm.evaluation.likelihood import Likelihood, Result, scored_tokens
from jaxlm.evaluation.statistics import Score
from jaxlm.objectives import Objective, build_objective
from jaxlm.progress import Progress
from jaxlm.study import readings
from jaxlm.trained import Trained, load
from jaxlm.training import workdir
from jaxlm.training.fingerprints import params_sha256
from jaxlm.training.schedule import phases_of

FORWARD_TOKENS = 4096  # of one forward, where the batch size is left open
DIFFUSION_DRAWS = 4
COUNTED_TOGETHER = 256  # windows in memory while tokens are counted


@dataclass(frozen=True)
class Settings:
    """What `evaluate` may be told. 0 leaves a choice open: all windows; 4,096 tokens a forward; 4 draws, or 1.

    A `reading` other than the model's own is one of `study.readings`. `in_order` is one of answers: it has no loss.

    Without a `dtype` it computes in float32 on a CPU, else as the run did; without `data_dir` on the run's own windows.
    Where these are not `windows_needed` (for there is something else to evaluate) and not there, the loss is None.
    """

    what: Collection[str] = ("loss", "baselines")
    step: int | None = None
    split: str = "validation"
    limit: int = 0
    batch_size: int = 0
    draws: int = 0
    seed: int = 0
    dtype: str | None = None
    data_dir: str = ""
    windows_needed: bool = True
    reading: str = ""


def evaluate(directory: str | Path, settings: Settings) -> dict[str, Any]:
    """The record of one checkpoint of a workdir, as `evaluate` writes it.

    Raises UserError for a directory that is no workdir, a checkpoint or windows that are not there, or data that were
    made with another tokenizer than the model's.
    """
    trained = readings.applied(load(directory, settings.step, settings.dtype), settings.reading)
    if settings.what and settings.reading == readings.IN_ORDER:
        raise UserError("what is not empty, allowed: nothing with reading=in_order, which windows have no loss in")
    draws = _draws(trained.config, settings.draws)
    here = read_fingerprint(Path(trained.config.data.dir)) is not None
    if settings.what and (settings.data_dir or settings.windows_needed or here):
        windows = _windows(Path(directory), trained.config, settings.data_dir)
        found, data = _on_text(trained, windows, settings, draws), windows.fingerprint
    else:
        if settings.what:
            print(f"{directory}: no windows at {trained.config.data.dir!r}, so no loss (--data_dir names others)")
        found, data = {**record.losses({}, trained.kind, None), "baselines": None}, {}
    return {
        "step": trained.step,
        "parameter_hash": params_sha256(trained.params),
        "kind": trained.kind,
        "split": settings.split,
        "seed": settings.seed,
        "dtype": trained.model.execution.dtype,
        "reading": settings.reading,
        **found,
        "tasks": {},
        **averages.means({}),
        "conditions": {
            "jaxlm": jaxlm.__version__,
            "jax": jax.__version__,
            "device_kind": jax.devices()[0].device_kind,
            **{name: data.get(name) for name in ("data_sha256", "tokenizer_sha256")},
        },
    }


def _on_text(trained: Trained, windows: Windows, settings: Settings, draws: int) -> dict[str, Any]:
    """Losses and baselines on windows."""
    config = trained.config
    num_windows = len(windows.split(settings.split))
    if num_windows == 0:
        raise UserError(f"--split={settings.split} of {windows.directory} has no windows, allowed: one that has")
    num_windows = min(settings.limit or num_windows, num_windows)
    objectives = {
        size: build_objective(
            dataclasses.replace(config.objective, block_size=size),
            trained.model,
            mask_token_id=config.model.mask_token_id,
            isolate_documents=config.data.isolate_documents,
            loss_chunk=config.execution.loss_chunk,
        )
        for size in block_sizes(config, trained.kind)
    }
    rows = min(settings.batch_size or max(1, FORWARD_TOKENS // windows.seq_len), num_windows)

    def batches() -> Iterator[Batch]:
        return validation_batches(windows, rows, num_windows, settings.split)

    results: dict[int, Result] = {}
    token_bytes_V = windows.tokenizer.token_bytes()
    for size, objective in objectives.items() if "loss" in settings.what else ():
        label = f"loss, {record.block_label(size)}" if objective.corrupts else "loss"
        with Progress(num_windows, label, unit="window", rate_unit="tok", per_unit=windows.seq_len * draws) as progress:
            likelihood = Likelihood(objective, token_bytes_V)
            results[size] = likelihood.validate(
                trained.params, batches(), num_windows, settings.seed, draws, progress.update
            )
    found, frequency = None, None
    if "baselines" in settings.what:
        # All block sizes score the same tokens.
        found, frequency = _baselines(windows, next(iter(objectives.values())), batches(), num_windows)
    return {
        **record.losses(results, trained.kind, frequency),
        **_by_source(windows, settings.split, num_windows, results),
        "baselines": found,
    }


def block_sizes(config: RunConfig, kind: str) -> list[int]:
    """The block sizes that a run is evaluated at: its own; after a conversion that of the last phase and the window."""
    last = phases_of(config, kind)[-1].block_size
    return list(dict.fromkeys([last, record.WHOLE_WINDOW])) if kind == "convert" else [last]


def _draws(config: RunConfig, draws: int) -> int:
    if config.objective.kind == "diffusion":
        return draws or DIFFUSION_DRAWS
    if draws > 1:
        raise UserError(f"--draws is {draws}, allowed: 1 for an autoregressive model, whose loss is exact")
    return 1


def _windows(directory: Path, config: RunConfig, data_dir: str) -> Windows:
    windows = Windows.open(data_dir or config.data.dir)
    tokenizer = workdir.read_json(directory / workdir.MANIFEST)["data"]["tokenizer_sha256"]
    if windows.fingerprint["tokenizer_sha256"] != tokenizer:
        raise UserError(f"{windows.directory} was made with another tokenizer than that of the model in {directory}")
    if windows.seq_len > config.model.max_positions:
        raise UserError(
            f"{windows.directory} has windows of {windows.seq_len} tokens, allowed: at most model.max_positions = "
            f"{config.model.max_positions}"
        )
    return windows


def _by_source(windows: Windows, split: str, num_windows: int, results: dict[int, Result]) -> dict[str, Any]:
    """The loss that counts, on the windows of each source; nothing where there is one source, or no loss."""
    if len(windows.source_names) == 1 or not results:
        return {}
    sources_N = windows.sources(split)[chosen_windows(len(windows.split(split)), num_windows)]
    first = next(iter(results.values()))
    return {"loss_by_source": record.by_source(first.score, sources_N, windows.source_names)}


def _baselines(
    windows: Windows, objective: Objective, batches: Iterable[Batch], num_windows: int
) -> tuple[dict[str, Any], Score]:
    def scored(batches: Iterable[Batch]) -> Iterator[npt.NDArray[np.int32]]:
        for batch in batches:
            yield from scored_tokens(objective, batch)

    counts_V = baselines.count_tokens(
        scored(validation_batches(windows, COUNTED_TOGETHER, split="train")), windows.tokenizer.vocab_size
    )
    held_out = list(itertools.islice(scored(batches), num_windows))
    frequency = baselines.token_frequency(counts_V, held_out, windows.tokenizer.token_bytes())
    return baselines.summary(frequency, windows.tokenizer.decode_bytes(np.concatenate(held_out).tolist())), frequency
