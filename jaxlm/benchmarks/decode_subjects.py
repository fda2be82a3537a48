"""The models that are compared: trained runs, or random weights read in three manners."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import numpy as np

from jaxlm import randomness
from jaxlm.benchmarks.decode_ways import AR, BLOCK, FULL, Subject
from jaxlm.config import ObjectiveConfig, RunConfig
from jaxlm.data.windows import Windows
from jaxlm.errors import UserError
from jaxlm.families import build_model
from jaxlm.release import tables
from jaxlm.release.directory import Release, rounded, write
from jaxlm.trained import Trained, load
from jaxlm.training.flops import parameter_counts


@dataclass(frozen=True)
class Subjects:
    """The models by their reading, `ar` always among them; `windows` are None with random weights."""

    by_reading: dict[str, Subject]
    block_size: int
    windows: Windows | None
    seed: int

    @classmethod
    def of(cls, config: RunConfig | None, workdirs: Sequence[str], twin: str, block_size: int, dtype: str) -> Subjects:
        """The runs `workdirs` (diffusion) beside `twin` (autoregressive), or the model of `config` at random.

        Raises UserError where these do not go together.
        """
        if workdirs:
            return _trained(workdirs, twin, block_size, dtype)
        assert config is not None  # the command has seen to it
        return _random(config, block_size, dtype)

    @property
    def ar(self) -> Subject:
        """The autoregressive one."""
        return self.by_reading[AR]

    @property
    def trained(self) -> bool:
        """Whether the weights mean anything."""
        return self.windows is not None

    @property
    def num_parameters(self) -> int:
        """Of one of them."""
        return int(parameter_counts(self.ar.model)["total"])

    def prompts(self, rows: int, prompt: int, new: int) -> tuple[list[list[int]], list[list[int]] | None]:
        """Prompts of one length, and what really follows them: of validation windows, or random ids and None."""
        if self.windows is None:
            ids = np.random.default_rng(self.seed).integers(0, self.ar.tokenizer_size, (rows, prompt))
            return ids.tolist(), None
        split = self.windows.split("validation")
        if len(split) < rows or self.windows.seq_len < prompt + new:
            raise UserError(
                f"{self.windows.directory} has {len(split)} validation windows of {self.windows.seq_len} tokens, "
                f"allowed: at least {rows} of {prompt + new}"
            )
        # Evenly over the split, so that one document does not decide.
        picked = np.stack([split[i * len(split) // rows]["tokens"][: prompt + new] for i in range(rows)])
        return picked[:, :prompt].tolist(), picked[:, prompt:].tolist()

    def theirs(self) -> dict[str, Any]:
        """What the worker of transformers has to know."""
        model = self.ar.model.config
        remote = tables.choose(model, ObjectiveConfig()).remote_code
        outside = range(self.ar.tokenizer_size, model.vocab_size)
        never = sorted({*outside, *([] if self.ar.mask_token_id is None else [self.ar.mask_token_id])})
        return {"remote_code": remote, "never": never}


@dataclass
class _NoText:
    """In place of a tokenizer: the benchmark hands on token ids."""

    vocab_size: int
    end_of_text_id: int = 0

    def save(self, directory: str | Path) -> None:
        """Nothing: no text is read."""


def exported(subject: Subject, directory: Path) -> str | None:
    """Writes the model for transformers; None, or why there is no class for it."""
    config = subject.model.config
    try:
        target = tables.choose(config, ObjectiveConfig())
    except UserError as error:
        return str(error)
    params = rounded(subject.params, "float32")
    write(Release(config, params, _NoText(subject.tokenizer_size), ObjectiveConfig(), target, "float32"), "", directory)
    return None


def _random(config: RunConfig, block_size: int, dtype: str) -> Subjects:
    execution = dataclasses.replace(config.execution, dtype=dtype, attention="auto", layers="auto")
    model = build_model(config.model, execution)
    params = jax.jit(model.init)(randomness.key(config.seed, "init"))
    mask = model.config.vocab_size - 1 if model.config.mask_token_id is None else model.config.mask_token_id
    by_reading = {
        reading: Subject(reading, model, params, mask, mask, block_size=size)
        for reading, size in ((AR, 1), (FULL, 0), (BLOCK, block_size))
    }
    return Subjects(by_reading, block_size, None, config.seed)


def _trained(workdirs: Sequence[str], twin: str, block_size: int, dtype: str) -> Subjects:
    if not twin:
        raise UserError("--workdir without --twin, allowed: with the autoregressive run that judges what is written")
    runs = {name: load(name, dtype=dtype) for name in (twin, *workdirs)}
    if (mode := runs[twin].mode) != "ar":
        raise UserError(f"--twin={twin} was trained for {mode}, allowed: an autoregressive run")
    by_reading = {AR: _subject(AR, runs[twin], 1)}
    for name in workdirs:
        run = runs[name]
        if run.mode != "diffusion" or run.tokenizer.sha256() != runs[twin].tokenizer.sha256():
            raise UserError(f"--workdir={name} is no diffusion run with the tokenizer of --twin={twin}")
        reading = BLOCK if run.structure.block_size else FULL
        if reading in by_reading:
            raise UserError(f"--workdir={name} reads like another one ({reading}), allowed: one of each")
        by_reading[reading] = _subject(reading, run, run.structure.block_size)
        block_size = run.structure.block_size or block_size
    return Subjects(by_reading, block_size, Windows.open(runs[twin].config.data.dir), runs[twin].config.seed)


def _subject(reading: str, run: Trained, block_size: int) -> Subject:
    mask, shift = run.config.model.mask_token_id, bool(run.config.objective.shift) and reading != AR
    return Subject(reading, run.model, run.params, run.tokenizer.vocab_size, mask, shift, block_size)
