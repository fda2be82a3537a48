"""Somebody else's model as a workdir, which looks like that of a run that is complete at step 0."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from jaxlm.config import RunConfig, TrainConfig
from jaxlm.families import build_model
from jaxlm.release.directory import whole_or_nothing
from jaxlm.release.hub import directory_of
from jaxlm.release.importing import Imported, read_model
from jaxlm.training import checkpoint, workdir
from jaxlm.training.flops import parameter_counts

SEQ_LEN = 1024  # of windows to evaluate on, where the model takes as many
STEP = 0


def import_model(model: str, out: Path) -> tuple[Imported, dict[str, Any]]:
    """Writes the workdir `out`, whole or not at all; returns what was read, and its parameters by part.

    Args:
      model: a directory, a .gguf file, or a hub id OWNER/NAME.
      out: a new or empty directory.

    Raises UserError for what is no model that can be read, and for an `out` that holds something.
    """
    with whole_or_nothing(out, "--workdir") as directory:
        imported = read_model(directory_of(model))
        counts = parameter_counts(build_model(imported.config))
        workdir.create(directory, _run(imported), "train", _manifest(imported, model, counts), imported.tokenizer)
        checkpoint.write_params(directory, STEP, imported.params)
        workdir.mark_complete(directory, {"step": STEP})
    return imported, counts


def _run(imported: Imported) -> RunConfig:
    """The configuration of a run that has nothing left to do."""
    seq_len = max(min(SEQ_LEN, imported.config.max_positions), imported.objective.block_size or 0)
    train = TrainConfig(seq_len=seq_len, batch_tokens=seq_len, total_tokens=seq_len)
    return RunConfig(model=imported.config, objective=imported.objective, train=train)


def _manifest(imported: Imported, model: str, counts: dict[str, Any]) -> dict[str, Any]:
    return {
        **workdir.environment(),
        "parameters": counts,
        "data": {"data_sha256": None, "tokenizer_sha256": imported.tokenizer.sha256()},
        "init_from": None,
        "source": {"model": model, "class": imported.class_name, "weights_sha256": imported.source_sha256},
    }
