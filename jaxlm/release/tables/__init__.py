"""Which tensor of a Hugging Face directory is which parameter of ours: one table a family, read in both directions.

A family is added by adding a file with `table(config)` and one line here.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable

from jaxlm.config import ModelConfig
from jaxlm.errors import UserError
from jaxlm.release.mapping import Entry

TABLES = ("llama3", "llama3_canon")


def table(config: ModelConfig) -> tuple[Entry, ...]:
    """The entries of a model: each of its parameters stands in exactly one.

    Raises UserError for a family without a table; there is no nearest thing to export it as.
    """
    if config.family not in TABLES:
        raise UserError(f"model.family is {config.family!r}, which has no export, allowed: {', '.join(TABLES)}")
    build: Callable[[ModelConfig], tuple[Entry, ...]] = importlib.import_module(f"{__name__}.{config.family}").table
    return build(config)
