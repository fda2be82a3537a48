"""From sources to mixed windows: each source is read ahead, encoded and packed; windows wait for their turn."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future
from dataclasses import dataclass

import numpy as np

from jaxlm.data import encoding
from jaxlm.data.cleaning import SPLITS, TRAIN, VALIDATION, Cleaner
from jaxlm.data.document import Document
from jaxlm.data.encoding import READ_AHEAD, Encoded, Encoder
from jaxlm.data.mixture import Mixture
from jaxlm.data.packing import IntArray, Packer, Window
from jaxlm.data.statistics import Counts
from jaxlm.data.storage import WindowWriter

SplitDocuments = Iterable[tuple[str, Document]]


@dataclass(frozen=True)
class Batch:
    """Documents that are encoded together, and what the cleaner had removed when they were read."""

    documents: list[tuple[str, Document]]
    removed: Mapping[str, int]
    encoded: Future[Encoded]


class SourceReader:
    """The documents of one source with their tokens, in order.

    Read ahead by a number of batches that is always the same: which of two equal documents of different sources comes
    first must not depend on who encodes. `removed` is what the cleaner left out before the last document handed on.
    """

    def __init__(self, documents: SplitDocuments, cleaner: Cleaner, encoder: Encoder) -> None:
        self._documents, self._cleaner, self._encoder = documents, cleaner, encoder
        self.removed: Mapping[str, int] = {}

    def __iter__(self) -> Iterator[tuple[str, Document, IntArray, int]]:
        """Yields (split, document, its tokens, how many of them are its prompt's)."""
        ahead: deque[Batch] = deque()
        for batch in self._batches():
            ahead.append(batch)
            if len(ahead) > READ_AHEAD:
                yield from self._unpacked(ahead.popleft())
        while ahead:
            yield from self._unpacked(ahead.popleft())

    def _batches(self) -> Iterator[Batch]:
        batch: list[tuple[str, Document]] = []
        size = 0
        for item in self._documents:
            batch.append(item)
            size += len(item[1].text)
            if size >= encoding.BATCH_BYTES:
                yield self._batch(batch)
                batch, size = [], 0
        yield self._batch(batch)  # also without documents: it has the last count of what was removed

    def _batch(self, documents: list[tuple[str, Document]]) -> Batch:
        encoded = self._encoder.submit([part for _, document in documents for part in document.parts])
        return Batch(documents, dict(self._cleaner.removed), encoded)

    def _unpacked(self, batch: Batch) -> Iterator[tuple[str, Document, IntArray, int]]:
        encoded = batch.encoded.result()
        self.removed = batch.removed
        parts = iter(np.split(encoded.ids.astype(np.int32), np.cumsum(encoded.lengths)[:-1]))
        for split, document in batch.documents:
            ids = [next(parts) for _ in document.parts]
            yield split, document, np.concatenate(ids), sum(map(len, ids[:-1]))


class SplitWindows:
    """The windows of one split on their way to the writer, in the mixture's order.

    They are held back until their shares are within 0.1 %, so that those of what is written always are. Windows whose
    turn has not come wait in memory: of the training split no more than a document's, of the others as many as one
    source is ahead of another.
    """

    def __init__(self, mixture: Mixture, write: Callable[[Iterator[Window]], None], limit: int | None = None) -> None:
        self._mixture, self._write, self._limit = mixture, write, limit
        self._order = mixture.order()
        self._waiting: list[deque[Window]] = [deque() for _ in mixture.names]
        self._held: list[Window] = []
        self._taken = [0] * len(mixture.names)
        self.due = next(self._order)  # the source whose window comes next
        self.written = [0] * len(mixture.names)  # windows of each source

    @property
    def num_written(self) -> int:
        """Windows of all sources."""
        return sum(self.written)

    @property
    def full(self) -> bool:
        """Whether all of the windows that were asked for are written."""
        return self._limit is not None and self.num_written >= self._limit

    def add(self, source: int, windows: Iterator[Window]) -> None:
        """Takes windows of a source and writes those whose turn it is."""
        self._waiting[source].extend(windows)
        while self._waiting[self.due] and not self.full:
            self._held.append(self._waiting[self.due].popleft())
            self._taken[self.due] += 1
            self.due = next(self._order)
            if self._mixture.is_balanced(self._taken):
                self._write(iter(self._held))
                self._held.clear()
                self.written = list(self._taken)


class Mixer:
    """Writes a mix. After `run`, `written` has the windows by split and source, `ended_by` the source that ran out.

    `limit` is the number of training windows; None: until a source ends. A training document beyond it is not counted.
    """

    def __init__(
        self, mixture: Mixture, writer: WindowWriter, seq_len: int, end_of_text_id: int, limit: int | None
    ) -> None:
        def write(split: str) -> Callable[[Iterator[Window]], None]:
            return lambda windows: writer.add(split, windows)

        self._mixture = mixture
        self._windows = {
            TRAIN: SplitWindows(mixture, write(TRAIN), limit),
            VALIDATION: SplitWindows(mixture, write(VALIDATION)),
        }
        self._packers = [{split: Packer(seq_len, end_of_text_id) for split in SPLITS} for _ in mixture.names]
        self.counts = Counts()
        self.ended_by: str | None = None

    @property
    def written(self) -> dict[str, list[int]]:
        """Windows by split, of each source."""
        return {split: windows.written for split, windows in self._windows.items()}

    @property
    def num_dropped(self) -> int:
        """Windows of nothing but prompt."""
        return sum(packer.num_dropped for packers in self._packers for packer in packers.values())

    def run(self, readers: list[SourceReader], progress: Callable[[int], None]) -> None:
        """Reads and writes until the budget is full or a source has ended; tells `progress` the training windows."""
        documents = [iter(reader) for reader in readers]
        while not self._is_done():
            # Few documents have their validation text at the end (`split_documents`), so it may be yet to come.
            wanting = self._windows[VALIDATION if self._windows[TRAIN].full else TRAIN].due
            found = next(documents[wanting], None)
            if found is None:
                self.ended_by = self._mixture.names[wanting]
                break
            before = self._windows[TRAIN].num_written
            self._take(wanting, *found)
            if self._windows[TRAIN].num_written > before:
                progress(self._windows[TRAIN].num_written)
        if len(readers) == 1:
            # The rest of the training text is less than a window; validation is scored to its end. The last window of a
            # mix would have fewer tokens than its share.
            self._windows[VALIDATION].add(0, self._packers[0][VALIDATION].finish())

    def _take(self, source: int, split: str, document: Document, ids: IntArray, num_prompt: int) -> None:
        if self._windows[split].full:
            return
        self._windows[split].add(source, self._packers[source][split].add(ids, num_prompt))
        self.counts.add(split, document, len(ids) + 1)

    def _is_done(self) -> bool:
        if not self._windows[TRAIN].full:
            return False
        if len(self._packers) == 1:
            return self.counts.tokens(VALIDATION) > 0
        return self._windows[VALIDATION].num_written > 0
