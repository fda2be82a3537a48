"""Where windows begin and end, and which document each token belongs to."""

from __future__ import annotations

import numpy as np

from jaxlm.data.packing import Packer, Window

END = 9


def packed(documents: list[list[int]], seq_len: int) -> list[Window]:
    packer = Packer(seq_len, END)
    return [window for ids in documents for window in packer.add(ids)]


def test_windows_overlap_by_one_token_and_count_their_documents_from_one() -> None:
    windows = packed([[1, 2, 3], [4], [5, 6, 7, 8], [1, 1]], seq_len=4)
    assert [w["tokens"].tolist() for w in windows] == [[1, 2, 3, END, 4], [4, END, 5, 6, 7], [7, 8, END, 1, 1]]
    assert [w["segment_ids"].tolist() for w in windows] == [[1, 1, 1, 1, 2], [1, 1, 2, 2, 2], [1, 1, 1, 2, 2]]
    assert all(w["loss_mask"].all() for w in windows)


def test_every_token_but_the_first_is_scored_once() -> None:
    documents = [[i % 7 + 1] * (i % 11) for i in range(50)]
    stream = [token for ids in documents for token in [*ids, END]]
    packer = Packer(5, END)
    windows = [w for ids in documents for w in packer.add(ids)] + list(packer.finish())
    scored = np.concatenate([w["tokens"][1:][w["loss_mask"][1:]] for w in windows])
    assert scored.tolist() == stream[1:]
    assert (packer.num_tokens, packer.num_windows) == (len(stream), len(windows))


def test_the_last_window_is_filled_up_outside_the_loss() -> None:
    packer = Packer(4, END)
    assert not list(packer.add([1, 2]))
    (window,) = packer.finish()
    assert window["tokens"].tolist() == [1, 2, END, END, END]
    assert window["segment_ids"].tolist() == [1, 1, 1, 0, 0]
    assert window["loss_mask"].tolist() == [True, True, True, False, False]


def test_a_token_that_was_scored_already_makes_no_window_of_its_own() -> None:
    packer = Packer(4, END)
    assert len(list(packer.add([1, 2, 3, 4]))) == 1
    assert not list(packer.finish())


def test_a_prompt_is_read_and_not_scored_and_its_answer_is_up_to_the_end_of_text() -> None:
    packer = Packer(4, END)
    windows = [*packer.add([1, 2, 3, 4, 5], num_prompt=3), *packer.add([6, 7], num_prompt=1), *packer.finish()]
    assert [w["tokens"].tolist() for w in windows] == [[1, 2, 3, 4, 5], [5, END, 6, 7, END]]
    assert [w["loss_mask"].tolist() for w in windows] == [
        [False, False, False, True, True],
        [True, True, False, True, True],
    ]


def test_a_window_of_nothing_but_prompt_is_dropped_and_counted() -> None:
    packer = Packer(4, END)
    windows = [*packer.add([1] * 11 + [2, 3, 4], num_prompt=11), *packer.add([5] * 2), *packer.finish()]
    assert [w["tokens"].tolist() for w in windows] == [[1, 1, 1, 2, 3], [3, 4, END, 5, 5], [5, END, END, END, END]]
    assert (packer.num_dropped, packer.num_windows) == (2, 3)
    assert [*Packer(8, END).add([1, 2], num_prompt=2)] == []
    last = Packer(4, END)
    assert [*last.add([1, 2, 3, 4, 5, 6], num_prompt=6), *last.finish()][-1]["loss_mask"].tolist() == [
        False, False, True, False, False,
    ]  # fmt: skip
