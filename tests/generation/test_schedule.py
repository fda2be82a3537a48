"""Every schedule writes the whole canvas, and never nothing."""

import pytest

from jaxlm.errors import UserError
from jaxlm.generation.schedule import blocks, plan


def test_transfers_sum_to_the_canvas_for_every_length_and_number_of_steps() -> None:
    for n in range(1, 41):
        for steps in range(1, 61):
            passes = plan([3], n, steps, 0, 0)
            assert passes.count.sum() == n
            assert (passes.count > 0).all()
            assert len(passes.count) == min(n, steps)


def test_blocks_are_filled_in_order_and_completely() -> None:
    for n in range(1, 20):
        for size in range(1, n + 2):
            passes = plan([0], n, n, size, 0)
            written = {}
            for start, stop, count in zip(passes.start[:, 0], passes.stop[:, 0], passes.count[:, 0], strict=True):
                written[start, stop] = written.get((start, stop), 0) + count
            assert list(written) == sorted(written)
            assert all(stop - start == count for (start, stop), count in written.items())
            assert sum(written.values()) == n


def test_a_models_own_blocks_lie_on_the_grid_of_the_row() -> None:
    assert blocks(first=3, length=10, block_size=0, grid=4) == [(0, 1), (1, 5), (5, 9), (9, 10)]
    assert blocks(first=4, length=8, block_size=0, grid=4) == [(0, 4), (4, 8)]
    assert blocks(first=0, length=3, block_size=0, grid=4) == [(0, 3)]


def test_rows_of_one_batch_have_schedules_of_their_own() -> None:
    passes = plan([3, 4], 8, 8, 0, 4)
    assert passes.count.sum(axis=0).tolist() == [8, 8]
    assert (passes.start[0, 0], passes.stop[0, 0]) == (0, 1)
    assert (passes.start[0, 1], passes.stop[0, 1]) == (0, 4)


@pytest.mark.parametrize(
    ("steps", "block_size", "grid", "message"),
    [
        (0, 0, 0, "--steps is 0, allowed: at least 1"),
        (4, -1, 0, "--block_size is -1, allowed: at least 0"),
        (2, 2, 0, "--steps is 2, allowed: at least 4, one for each block"),
        (8, 3, 4, "--block_size is 3, allowed: 4, the block size that the model was trained with"),
    ],
)
def test_refusals(steps, block_size, grid, message) -> None:
    with pytest.raises(UserError, match=message):
        plan([0], 8, steps, block_size, grid)
