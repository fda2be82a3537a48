"""Which documents stay, and in which split: one pass, without holding the text."""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
import math
from collections import Counter
from collections.abc import Iterable, Iterator

from jaxlm.data.document import Document

TRAIN, VALIDATION = "train", "validation"
SPLITS = (TRAIN, VALIDATION)


class Cleaner:
    """Normalises documents and drops short ones and exact repetitions; `removed` counts those of the last pass.

    Two documents are the same if they differ in white space only. A pass keeps 16 bytes for each document it has seen;
    passes over several sources that are given one set of them drop what another source has handed on already.
    """

    def __init__(self, min_bytes: int, deduplicate: bool) -> None:
        self._min_bytes, self._deduplicate = min_bytes, deduplicate
        self.removed: Counter[str] = Counter()

    def __call__(self, documents: Iterable[Document], seen: set[bytes] | None = None) -> Iterator[Document]:
        self.removed = Counter(too_short=0, duplicates=0)
        seen = set() if seen is None else seen
        for document in documents:
            document = _normalised(document)
            if len(document.text.encode()) < max(self._min_bytes, 1):
                self.removed["too_short"] += 1
                continue
            if self._deduplicate:
                digest = hashlib.sha256(" ".join(document.text.split()).encode()).digest()[:16]
                if digest in seen:
                    self.removed["duplicates"] += 1
                    continue
                seen.add(digest)
            yield document


def normalise(text: str) -> str:
    r"""The text with `\n` as the end of every line, without a byte order mark and without white space around it."""
    return _lines(text).strip()


def _lines(text: str) -> str:
    return text.replace("\r\n", "\n").replace("\r", "\n").removeprefix("\ufeff")


def _normalised(document: Document) -> Document:
    """White space between a prompt and its answer stays where it was: what follows `The sum is` is ` 4`, not `4`."""
    if not document.prompt_chars:
        return dataclasses.replace(document, text=normalise(document.text))
    prompt, answer = map(_lines, document.parts)
    prompt = prompt.lstrip()
    return dataclasses.replace(document, text=prompt + answer.rstrip(), prompt_chars=len(prompt))


def split_documents(documents: Iterable[Document], share: float) -> Iterator[tuple[str, Document]]:
    """Yields (split, document): every 1/share-th document, the first among them, is for validation.

    Spreading them evenly needs no random numbers and gives the share exactly. Where there are fewer than 1/share
    documents, validation is the last `share` of the text instead, and the document at the border is cut in two,
    unless it begins with a prompt: then all of it is for validation.
    """
    stream = iter(documents)
    few = list(itertools.islice(stream, math.ceil(1 / share)))
    if len(few) * share < 1:
        yield from _split_by_length(few, share)
        return
    for index, document in enumerate(itertools.chain(few, stream)):
        # Counts the validation documents among the first `index + 1`, rounded up: it steps at index 0 first.
        takes = math.ceil((index + 1) * share) > math.ceil(index * share)
        yield VALIDATION if takes else TRAIN, document


def _split_by_length(documents: list[Document], share: float) -> Iterator[tuple[str, Document]]:
    left = sum(len(d.text) for d in documents) * (1 - share)  # characters that are still for training
    for document in documents:
        if len(document.text) <= left:
            yield TRAIN, document
        elif left < 1 or document.prompt_chars:
            yield VALIDATION, document
        else:
            head, tail = _cut(document.text, int(left))
            for split, text in ((TRAIN, head), (VALIDATION, tail)):
                if text:
                    yield split, Document(text, document.source)
        left = max(left - len(document.text), 0)


def _cut(text: str, place: int) -> tuple[str, str]:
    """Two parts of the text, cut at the last end of a paragraph, line or word before `place`, if there is one."""
    for mark in ("\n\n", "\n", " "):
        end = text.rfind(mark, 0, place)
        if end > 0:
            return text[:end].rstrip(), text[end:].lstrip()
    return text[:place], text[place:]
