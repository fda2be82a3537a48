"""Documents in a row, cut into windows of T+1 tokens that start T apart. Legend: T positions, W windows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypedDict

import numpy as np
import numpy.typing as npt

IntArray = npt.NDArray[np.int32]


class Window(TypedDict):
    """`tokens` int32 [T+1], `segment_ids` int32 [T+1], `loss_mask` bool [T+1].

    Segments are the documents in the window, counted from 1; padding is segment 0 and outside the loss.
    """

    tokens: IntArray
    segment_ids: IntArray
    loss_mask: npt.NDArray[np.bool_]


class Packer:
    """Turns documents into windows: token k*T of the stream begins window k and ends window k-1.

    So tokens 1..T of all windows are the stream without its first token, each exactly once. Every document is followed
    by one end-of-text token that belongs to it.
    """

    def __init__(self, seq_len: int, end_of_text_id: int) -> None:
        self._seq_len, self._end = seq_len, end_of_text_id
        self._tokens: list[IntArray] = []
        self._documents: list[npt.NDArray[np.int64]] = []
        self._held = 0
        self._num_documents = 0
        self.num_tokens = 0
        self.num_windows = 0

    def add(self, ids: Sequence[int] | IntArray) -> Iterator[Window]:
        """Takes the tokens of one document and yields the windows that it completes."""
        tokens = np.append(np.asarray(ids, np.int32), np.int32(self._end))
        self._tokens.append(tokens)
        self._documents.append(np.full(len(tokens), self._num_documents, np.int64))
        self._num_documents += 1
        self._held += len(tokens)
        self.num_tokens += len(tokens)
        if self._held > self._seq_len:
            yield from self._whole_windows()

    def finish(self) -> Iterator[Window]:
        """Yields one more window with what is left and not scored yet, filled up with end-of-text outside the loss."""
        tokens, documents = self._joined()
        if len(tokens) < 2:
            return
        missing = self._seq_len + 1 - len(tokens)
        self.num_windows += 1
        segments = np.pad(documents - documents[0] + 1, (0, missing)).astype(np.int32)
        yield {
            "tokens": np.pad(tokens, (0, missing), constant_values=self._end),
            "segment_ids": segments,
            "loss_mask": segments > 0,
        }

    def _whole_windows(self) -> Iterator[Window]:
        tokens, documents = self._joined()
        count = (len(tokens) - 1) // self._seq_len
        for k in range(count):
            part = slice(k * self._seq_len, (k + 1) * self._seq_len + 1)
            self.num_windows += 1
            yield {
                "tokens": tokens[part],
                "segment_ids": (documents[part] - documents[part.start] + 1).astype(np.int32),
                "loss_mask": np.ones(self._seq_len + 1, np.bool_),
            }
        rest = count * self._seq_len
        self._tokens, self._documents = [tokens[rest:].copy()], [documents[rest:].copy()]
        self._held = len(tokens) - rest

    def _joined(self) -> tuple[IntArray, npt.NDArray[np.int64]]:
        if not self._tokens:
            return np.zeros(0, np.int32), np.zeros(0, np.int64)
        return np.concatenate(self._tokens), np.concatenate(self._documents)
