"""How many tokens of which positions each denoising pass writes. It is known before anything runs."""


def split(total, parts):
    """`total` in `parts` whole shares as equal as possible, the larger ones first."""
    return [total // parts + (i < total % parts) for i in range(parts)]


def shares(steps, sizes):
    """The passes of each block, from 1 to its size, in proportion to it, of at least as many steps as blocks.

    Each has its first; the others go by largest remainder, in proportion to the tokens left, to the first of equals.
    So a token gets a pass of its own wherever there are steps enough, however uneven the blocks.
    """
    total = sum(sizes)
    left, further = total - len(sizes), min(steps, total) - len(sizes)
    quotas = [divmod(further * (size - 1), max(left, 1)) for size in sizes]
    largest = sorted(range(len(sizes)), key=lambda i: -quotas[i][1])[: further - sum(whole for whole, _ in quotas)]
    return [1 + whole + (i in largest) for i, (whole, _) in enumerate(quotas)]


def cut(first, new, block_size, grid):
    """The blocks of one row's canvas, (start, stop) in canvas positions.

    Args:
        first: position in the row at which the first new token's logits are read.
        new: tokens of the canvas.
        block_size: blocks counted from the start of the canvas.
        grid: if not 0, blocks end on multiples of it in the row instead: what a block-causal model was trained on.
    """
    if grid:
        edges = [0, *(edge - first for edge in range((first // grid + 1) * grid, first + new, grid)), new]
    else:
        edges = [*range(0, new, block_size), new]
    return list(zip(edges[:-1], edges[1:], strict=True))


def schedule(blocks, steps, revise_rate=0.0):
    """One row's passes, each an entry (start, stop, count, revise): of canvas positions [start, stop), the pass leaves
    `count` more written. With revision it masks `revise` written ones again, and writes `count + revise`.

    The passes are divided over the blocks as in `shares`, and the tokens of a block evenly over its passes; none writes
    nothing. What is masked again is never more than later passes can write, so the last of a block revises nothing.
    """
    if steps < len(blocks):
        raise ValueError(f"steps is {steps}, allowed: at least the number of blocks, {len(blocks)}")
    row = []
    for (start, stop), share in zip(blocks, shares(steps, [stop - start for start, stop in blocks]), strict=True):
        done, size = 0, stop - start
        for count in split(size, share):
            row.append((start, stop, count, min(int(revise_rate * done), size - done - count)))
            done += count
    return row


def block_by_block(blocks):
    """One row's blocks, an entry each, for a decoder that finds out by itself how many passes one takes."""
    return [(start, stop, stop - start, 0) for start, stop in blocks]
