"""The order of training windows is a function of the seed and the step alone."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from jaxlm.data.loader import train_batches, validation_batches
from jaxlm.data.windows import Windows
from jaxlm.errors import UserError

STEPS = 7


def take(iterator: Any, count: int = STEPS) -> list[dict[str, np.ndarray]]:
    return list(itertools.islice(iterator, count))


def rows(batches: list[dict[str, np.ndarray]]) -> list[bytes]:
    return [row.tobytes() for batch in batches for row in batch["tokens"]]


@pytest.mark.parametrize("processes", [2, 4])
def test_processes_share_the_global_batches_of_one(windows: Windows, processes: int) -> None:
    whole = take(train_batches(windows, 8, seed=3))
    parts = [take(train_batches(windows, 8, 3, process, processes)) for process in range(processes)]
    for step, batch in enumerate(whole):
        for name in ("tokens", "segment_ids", "loss_mask"):
            joined = np.concatenate([part[step][name] for part in parts])
            assert joined.dtype == batch[name].dtype
            assert (joined == batch[name]).all()


def test_an_epoch_has_every_window_once_and_the_next_another_order(windows: Windows) -> None:
    count = len(windows.split("train"))
    everything = sorted(windows.split("train")[i]["tokens"].tobytes() for i in range(count))
    seen = rows(take(train_batches(windows, 4, seed=0), count // 2))
    assert count % 4, "an epoch that ends inside a batch"
    assert sorted(seen[:count]) == everything
    assert seen[:count] != seen[count : 2 * count]
    assert sorted(seen[: 4 * (count // 4)] + seen[4 * (count // 4) : count]) == everything


def test_the_order_is_the_seeds(windows: Windows) -> None:
    one, again, other = (rows(take(train_batches(windows, 4, seed))) for seed in (0, 0, 1))
    assert one == again != other


@pytest.mark.parametrize("step", [0, 1, 5])
def test_the_state_resumes_at_the_next_batch(windows: Windows, step: int) -> None:
    uninterrupted = take(train_batches(windows, 4, seed=0))
    first = train_batches(windows, 4, seed=0)
    take(first, step)
    resumed = train_batches(windows, 4, seed=0)
    resumed.set_state(first.get_state())
    assert rows(take(resumed, STEPS - step)) == rows(uninterrupted[step:])


def test_a_state_of_one_process_resumes_in_two(windows: Windows) -> None:
    one = train_batches(windows, 4, seed=0)
    take(one, 3)
    halves = [train_batches(windows, 4, 0, process, 2) for process in range(2)]
    for half in halves:
        half.set_state(one.get_state())
    assert rows([next(half) for half in halves]) == rows([next(one)])


def test_a_batch_that_processes_cannot_share_is_refused(windows: Windows) -> None:
    with pytest.raises(UserError, match="a batch has 6 windows, allowed: a multiple of the 4 processes"):
        train_batches(windows, 6, 0, 0, 4)


def test_validation_is_read_in_order_and_filled_up_outside_the_loss(windows: Windows) -> None:
    split = windows.split("validation")
    batches = list(validation_batches(windows, 7))
    assert len(split) % 7 and all(batch["tokens"].shape == (7, 17) for batch in batches)
    read = np.concatenate([batch["tokens"] for batch in batches])
    assert (read[: len(split)] == np.stack([split[i]["tokens"] for i in range(len(split))])).all()
    missing = 7 - len(split) % 7
    assert not batches[-1]["loss_mask"][-missing:].any()
    scored = sum(int(batch["loss_mask"][:, 1:].sum()) for batch in batches)
    assert scored == windows.statistics["by_split"]["validation"]["tokens"] - 1


def test_another_split_is_read_the_same_way(windows: Windows) -> None:
    first = next(validation_batches(windows, 3, split="train"))
    assert first["tokens"].tolist() == [windows.split("train")[i]["tokens"].tolist() for i in range(3)]


def test_a_limit_spreads_over_the_split(windows: Windows) -> None:
    split = windows.split("validation")
    (batch,) = validation_batches(windows, 4, limit=4)
    expected = [split[k * len(split) // 4]["tokens"].tolist() for k in range(4)]
    assert batch["tokens"].tolist() == expected
