"""Every schedule writes the whole canvas, and never nothing."""

import pytest

from jaxlm.errors import UserError
from jaxlm.generation.schedule import block_by_block, blocks, plan, shares


@pytest.mark.parametrize(("block_size", "grid"), [(0, 0), (7, 0), (0, 4)])
def test_transfers_sum_to_the_canvas_for_every_length_and_number_of_steps(block_size: int, grid: int) -> None:
    for n in range(1, 41):
        canvas = range(3, 3 + n)
        for steps in (0, *range(len(blocks(canvas, block_size, grid)), 61)):
            passes = plan([canvas], steps, block_size, grid)
            assert passes.count.sum() == n
            assert (passes.count > 0).all()
            assert len(passes.count) == min(n, steps or n)
            if steps == 0 or steps >= n:
                assert (passes.count == 1).all()


def test_passes_are_shared_by_the_sizes_of_the_blocks() -> None:
    assert shares(6, [8, 4]) == [4, 2]
    assert shares(5, [1, 8, 1]) == [1, 3, 1]
    assert shares(11, [4, 4, 4]) == [4, 4, 3]
    assert shares(3, [2, 40, 2]) == [1, 1, 1]
    for sizes in ([1, 4, 4, 3], [7, 7, 6], [2, 1, 1, 30], [1, 1, 1]):
        for steps in range(len(sizes), 61):
            share = shares(steps, sizes)
            assert sum(share) == min(steps, sum(sizes))
            assert all(1 <= passes <= size for passes, size in zip(share, sizes, strict=True))
            left = sum(sizes) - len(sizes)
            for passes, size in zip(share, sizes, strict=True):
                assert abs(passes - 1 - (sum(share) - len(sizes)) * (size - 1) / max(left, 1)) < 1


def test_blocks_are_filled_in_order_and_completely() -> None:
    for n in range(1, 20):
        for size in range(1, n + 2):
            passes = plan([range(n)], n, size, 0)
            written = {}
            for start, stop, count in zip(passes.start[:, 0], passes.stop[:, 0], passes.count[:, 0], strict=True):
                written[start, stop] = written.get((start, stop), 0) + count
            assert list(written) == sorted(written)
            assert all(stop - start == count for (start, stop), count in written.items())
            assert sum(written.values()) == n


def test_a_models_own_blocks_lie_on_the_grid_of_the_row() -> None:
    assert blocks(range(3, 13), block_size=0, grid=4) == [(0, 1), (1, 5), (5, 9), (9, 10)]
    assert blocks(range(4, 12), block_size=0, grid=4) == [(0, 4), (4, 8)]
    assert blocks(range(3), block_size=0, grid=4) == [(0, 3)]


def test_a_canvas_with_gaps_is_cut_by_place_or_on_the_grid_of_the_row() -> None:
    assert blocks([1, 2, 9, 10, 11], block_size=2, grid=0) == [(0, 2), (2, 4), (4, 5)]
    assert blocks([1, 2, 9, 10, 12], block_size=0, grid=4) == [(0, 2), (2, 4), (4, 5)]


def test_rows_of_one_batch_have_schedules_of_their_own() -> None:
    passes = plan([range(3, 11), range(4, 12), [2, 5, 6]], 0, 0, 4)
    assert passes.count.sum(axis=0).tolist() == [8, 8, 3]
    assert passes.per_row.tolist() == [8, 8, 3]  # one a token, however uneven the blocks
    assert (passes.start[0, 0], passes.stop[0, 0]) == (0, 1)
    assert (passes.start[0, 1], passes.stop[0, 1]) == (0, 4)
    assert (passes.start[1, 2], passes.stop[1, 2]) == (1, 3)
    short = plan([range(3, 11), range(4, 12)], 4, 0, 4)  # blocks of 1, 4 and 3; of 4 and 4
    assert short.stop.T.tolist() == [[1, 5, 5, 8], [4, 4, 8, 8]]
    assert short.count.T.tolist() == [[1, 2, 2, 3], [2, 2, 2, 2]]


@pytest.mark.parametrize("rate", [0.0, 0.1, 0.5, 1.0])
def test_a_pass_revises_a_share_of_what_is_written_and_never_more_than_is_written_again(rate: float) -> None:
    for n in range(1, 41):
        for steps in range(1, 61):
            passes = plan([range(n)], steps, 0, 0, rate)
            done = 0
            for count, revise in zip(passes.count[:, 0], passes.revise[:, 0], strict=True):
                assert 0 <= revise <= rate * done
                assert count + revise <= n - done  # what is masked before the pass
                done += count
            assert done == n
            assert passes.revise[-1, 0] == 0
    assert plan([range(8)], 0, 0, 0, 0.5).revise[:, 0].tolist() == [0, 0, 1, 1, 2, 2, 1, 0]


def test_blocks_alone_are_an_entry_each() -> None:
    passes = block_by_block([range(5), range(3)], 2, 0)
    assert passes.count.T.tolist() == [[2, 2, 1], [2, 1, 0]]
    assert (passes.stop - passes.start).tolist() == passes.count.tolist()


@pytest.mark.parametrize(
    ("steps", "block_size", "grid", "message"),
    [
        (-1, 0, 0, "--steps is -1, allowed: at least 1, or 0 for one a token"),
        (4, -1, 0, "--block_size is -1, allowed: at least 0"),
        (2, 2, 0, "--steps is 2, allowed: at least 4, one for each block"),
        (8, 3, 4, "--block_size is 3, allowed: 4, the block size that the model was trained with"),
    ],
)
def test_refusals(steps, block_size, grid, message) -> None:
    with pytest.raises(UserError, match=message):
        plan([range(8)], steps, block_size, grid)
