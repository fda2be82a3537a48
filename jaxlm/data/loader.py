"""Batches of windows in an order that only the seed decides.

Legend: B rows of the global batch, P processes, T positions.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import grain
import numpy as np
import numpy.typing as npt

from jaxlm.data.windows import Windows
from jaxlm.errors import UserError

Batch = dict[str, npt.NDArray[Any]]

THREADS = 2
PREFETCHED_BATCHES = 8


def train_batches(
    windows: Windows, batch_size: int, seed: int, process_index: int = 0, process_count: int = 1
) -> grain.DatasetIterator:
    """Batches of `batch_size` training windows without end: every window once an epoch, each epoch shuffled anew.

    Process p of P gets rows [p*B/P, (p+1)*B/P) of every global batch. The rows depend on the seed and the step only:
    not on P, threads or where a run was resumed. Epochs follow one another without a gap; a batch may hold the end of
    one and the start of the next. The iterator has `get_state` and `set_state`; its state is the number of the next
    batch, so it stands for this seed and this batch size only.

    Yields dicts of `tokens` int32 [B/P, T+1], `segment_ids` int32 [B/P, T+1], `loss_mask` bool [B/P, T+1].
    """
    if batch_size % process_count:
        raise UserError(f"a batch has {batch_size} windows, allowed: a multiple of the {process_count} processes")
    rows = grain.MapDataset.source(windows.split("train")).seed(seed).shuffle().repeat()
    batches = rows.batch(batch_size // process_count, drop_remainder=True)[process_index::process_count]
    options = grain.ReadOptions(num_threads=THREADS, prefetch_buffer_size=PREFETCHED_BATCHES)
    return iter(batches.to_iter_dataset(options))


def chosen_windows(available: int, limit: int = 0) -> list[int]:
    """The numbers of `limit` windows spread evenly over those that are `available`, in order; 0: of all of them."""
    count = min(limit, available) if limit else available
    return [k * available // count for k in range(count)]


def validation_batches(windows: Windows, batch_size: int, limit: int = 0, split: str = "validation") -> Iterator[Batch]:
    """Batches of the windows of a split, once, in order; `limit` > 0 takes that many, spread evenly over the split.

    The last batch is filled up with rows whose `loss_mask` is False everywhere, so that all have one shape.

    Yields dicts of `tokens` int32 [B, T+1], `segment_ids` int32 [B, T+1], `loss_mask` bool [B, T+1].
    """
    source = windows.split(split)
    chosen = chosen_windows(len(source), limit)
    for start in range(0, len(chosen), batch_size):
        rows = [source[i] for i in chosen[start : start + batch_size]]
        batch: Batch = {name: np.stack([row[name] for row in rows]) for name in ("tokens", "segment_ids", "loss_mask")}
        missing = batch_size - len(rows)
        yield {name: np.pad(value, ((0, missing), (0, 0))) for name, value in batch.items()}
