"""What the key of a step is split into: one number a purpose, so that no two of them share random bits."""

from __future__ import annotations

import enum


class Draw(enum.IntEnum):
    """The numbers are part of a run's reproducibility: they never change, and none is used twice."""

    START = 0  # of the noise levels that are spread over the batch
    MASKS = 1
    LEVELS = 2  # independent noise levels
    CROPS = 3
    ATTENTION = 4
    EMBEDDINGS = 5
