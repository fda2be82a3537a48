"""Who sees whom, against literal tables."""

import jax.numpy as jnp
import numpy as np

from jaxlm.layers.structure import Structure, document_positions


def table(structure: Structure, size: int, window: int = 0) -> list[str]:
    index = np.arange(size)
    seen = structure.visible(index[:, None], index[None, :], size // structure.streams, window)
    return ["".join(".x"[int(bit)] for bit in row) for row in np.broadcast_to(seen, (size, size))]


def test_causal_bidirectional_and_blocks() -> None:
    assert table(Structure(1), 3) == ["x..", "xx.", "xxx"]
    assert table(Structure(0), 3) == ["xxx", "xxx", "xxx"]
    # Blocks lie on the absolute grid, and the last one may be shorter.
    assert table(Structure(2), 5) == ["xx...", "xx...", "xxxx.", "xxxx.", "xxxxx"]


def test_a_window_of_4_sees_itself_and_3_back() -> None:
    assert table(Structure(1), 8, window=4)[5:] == ["..xxxx..", "...xxxx.", "....xxxx"]


def test_a_window_is_symmetric_where_attention_is_bidirectional() -> None:
    assert table(Structure(0), 5, window=2) == ["xx...", "xxx..", ".xxx.", "..xxx", "...xx"]


def test_two_streams_are_the_three_part_mask_of_block_diffusion() -> None:
    # Rows: four noisy positions, then four clean ones, in blocks of two.
    assert table(Structure(2, streams=2), 8) == [
        "xx......",  # a noisy position sees its own noisy block
        "xx......",
        "..xxxx..",  # and the clean blocks before it, never its own clean block
        "..xxxx..",
        "....xx..",  # a clean position sees clean blocks up to its own
        "....xx..",
        "....xxxx",
        "....xxxx",
    ]


def test_key_runs_are_just_the_keys_that_some_query_sees() -> None:
    assert Structure(1).key_runs(4, 6, 8, 0) == [(0, 6)]
    assert Structure(1).key_runs(4, 6, 8, 2) == [(3, 6)]
    assert Structure(2, streams=2).key_runs(2, 4, 8, 0) == [(2, 6)]
    assert Structure(2, streams=2).key_runs(4, 8, 16, 0) == [(4, 14)]


def test_document_positions_restart() -> None:
    segments = jnp.array([[1, 1, 2, 2, 2, 3], [1, 1, 1, 1, 1, 1]])
    assert document_positions(segments).tolist() == [[0, 1, 0, 1, 2, 0], [0, 1, 2, 3, 4, 5]]
