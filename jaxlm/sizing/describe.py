"""The size of a configuration as one JSON object."""

from __future__ import annotations

from typing import Any

from jaxlm.config import RunConfig
from jaxlm.families import build_model
from jaxlm.sizing.advice import warnings
from jaxlm.sizing.budget import step_flops
from jaxlm.sizing.memory import cache_bytes, checkpoint_bytes, training_memory
from jaxlm.training import flops
from jaxlm.training.run import check_reading, with_parts


def describe(config: RunConfig) -> dict[str, Any]:
    """The object that `size --json` prints.

    Parameters: `total`, `non_embedding`, `active`, `by_part`; `embedding_share`, of the tables of tokens and positions
    in `total`; `tied`, and `tying_saves`: V x D, what a head of its own has, saved if it is tied, else still to save.
    `flops_per_token`: of training, in three conventions; `flops_per_step_token`: of a step as its objective reads the
    row (block diffusion reads it twice), and the name of the convention.

    Bytes: `training_memory` with the configuration's `execution.remat`, and by each of the three (see
    `memory.training_memory`); `kv_cache_bytes_per_token` for each position of a row that is decoded, and
    `cache_bytes_fixed` for the row whatever its length; `checkpoint_bytes`.

    Raises UserError for a family and an objective that make no sense together, as training does.
    """
    check_reading(with_parts(config))
    step, convention = step_flops(config)
    counts = flops.parameter_counts(build_model(config.model, config.execution))
    by_remat = training_memory(config)
    per_position, fixed = cache_bytes(config)
    return {
        "family": config.model.family,
        **counts,
        "embedding_share": 1 - counts["non_embedding"] / counts["total"],
        "tied": config.model.tie_embeddings,
        "tying_saves": config.model.vocab_size * config.model.hidden_size,
        "flops_per_token": flops.flops_per_token(config.model, config.train.seq_len),
        "flops_per_step_token": {"flops": step, "convention": convention},
        "training_memory": by_remat[config.execution.remat],
        "training_memory_by_remat": by_remat,
        "kv_cache_bytes_per_token": per_position,
        "cache_bytes_fixed": fixed,
        "checkpoint_bytes": checkpoint_bytes(config),
        "warnings": warnings(config.model, counts["total"]),
    }
