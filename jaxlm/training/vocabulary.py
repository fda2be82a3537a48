"""Room for a mask token in a vocabulary that has none."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from jaxlm.layers.parameters import Tree, from_paths, paths

MULTIPLE = 128
TABLES = ("embedding/table", "head/table")


def grown(vocab_size: int) -> int:
    """Rows of a full vocabulary when it has got a free one: the next multiple of 128."""
    return -(-(vocab_size + 1) // MULTIPLE) * MULTIPLE


def lengthened(params: Tree, rows: int) -> Tree:
    """The parameters with tables of `rows` rows, the new ones the mean of the others.

    So the mask starts as no token in particular, and the rows that nothing uses change no softmax by much.
    """
    return from_paths({path: _longer(leaf, rows) if path in TABLES else leaf for path, leaf in paths(params)})


def _longer(table: Any, rows: int) -> np.ndarray:
    table_VD = np.asarray(jax.device_get(table))
    mean_D = table_VD.mean(axis=0, dtype=np.float64).astype(table_VD.dtype)
    return np.concatenate([table_VD, np.broadcast_to(mean_D, (rows - len(table_VD), len(mean_D)))])
