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
    by one end-of-text token that belongs to it. A window within one long prompt has nothing to score: it is
    dropped, and counted in `num_dropped`.
    """

    def __init__(self, seq_len: int, end_of_text_id: int) -> None:
        self._seq_len, self._end = seq_len, end_of_text_id
        self._tokens: list[IntArray] = []
        self._documents: list[npt.NDArray[np.int64]] = []
        self._scored: list[npt.NDArray[np.bool_]] = []
        self._held = 0
        self._num_documents = 0
        self.num_tokens = 0
        self.num_windows = 0
        self.num_dropped = 0

    def add(self, ids: Sequence[int] | IntArray, num_prompt: int = 0) -> Iterator[Window]:
        """Takes the tokens of one document, the first `num_prompt` not scored; yields the windows that it completes."""
        tokens = np.append(np.asarray(ids, np.int32), np.int32(self._end))
        self._tokens.append(tokens)
        self._documents.append(np.full(len(tokens), self._num_documents, np.int64))
        self._scored.append(np.arange(len(tokens)) >= num_prompt)
        self._num_documents += 1
        self._held += len(tokens)
        self.num_tokens += len(tokens)
        if self._held > self._seq_len:
            yield from self._whole_windows()

    def finish(self) -> Iterator[Window]:
        """Yields one more window with what is left and not scored yet, filled up with end-of-text outside the loss."""
        tokens, documents, scored = self._joined()
        if len(tokens) < 2:
            return
        missing = self._seq_len + 1 - len(tokens)
        segments = np.pad(documents - documents[0] + 1, (0, missing)).astype(np.int32)
        tokens = np.pad(tokens, (0, missing), constant_values=self._end)
        yield from self._with_something_to_score(tokens, segments, np.pad(scored, (0, missing)))

    def _whole_windows(self) -> Iterator[Window]:
        tokens, documents, scored = self._joined()
        done = 0
        while done + self._seq_len < len(tokens):
            part = slice(done, done + self._seq_len + 1)
            segments = (documents[part] - documents[done] + 1).astype(np.int32)
            done += self._seq_len
            yield from self._with_something_to_score(tokens[part], segments, scored[part].copy())
        self._tokens, self._documents = [tokens[done:].copy()], [documents[done:].copy()]
        self._scored = [scored[done:].copy()]
        self._held = len(tokens) - done

    def _with_something_to_score(
        self, tokens: IntArray, segments: IntArray, loss_mask: npt.NDArray[np.bool_]
    ) -> Iterator[Window]:
        if loss_mask[1:].any():
            self.num_windows += 1
            yield {"tokens": tokens, "segment_ids": segments, "loss_mask": loss_mask}
        else:
            self.num_dropped += 1

    def _joined(self) -> tuple[IntArray, npt.NDArray[np.int64], npt.NDArray[np.bool_]]:
        if not self._tokens:
            return np.zeros(0, np.int32), np.zeros(0, np.int64), np.zeros(0, np.bool_)
        return np.concatenate(self._tokens), np.concatenate(self._documents), np.concatenate(self._scored)
