"""Windows as a person reads them: what `prepare_data --show=N` prints."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from jaxlm.data.packing import Window
from jaxlm.data.tokenizer import Tokenizer
from jaxlm.data.windows import Windows

LONGEST = 600  # characters of one stretch of text; more are cut out of its middle


def show(windows: Windows, split: str, count: int) -> str:
    """The first `count` windows of a split: a line of numbers each, then a line for each document in it.

    What is not scored (a prompt) stands in `{not scored: ...}`, what cannot be printed as in Python's strings.
    """
    rows, sources = windows.split(split), windows.sources(split)
    lines = []
    for number in range(min(count, len(rows))):
        head = f"{split} window {number:,} of {len(rows):,}"
        if len(windows.source_names) > 1:
            head += f", from {windows.source_names[sources[number]]}"
        lines += [f"{head}: {_numbers(rows[number], windows.tokenizer)}", *_documents(rows[number], windows.tokenizer)]
    return "\n".join(lines)


def _numbers(window: Window, tokenizer: Tokenizer) -> str:
    scored = window["tokens"][1:][window["loss_mask"][1:]]
    documents = int(window["segment_ids"].max())
    return (
        f"{len(window['tokens']):,} tokens, {documents:,} {'document' if documents == 1 else 'documents'}; scored: "
        f"{len(scored):,} tokens, {len(tokenizer.decode_bytes(scored.tolist())):,} bytes"
    )


def _documents(window: Window, tokenizer: Tokenizer) -> Iterator[str]:
    segments = window["segment_ids"]
    scored = window["loss_mask"].copy()
    scored[0] = scored[1]  # the first token is never scored: shown as what follows it, lest every window begins oddly
    for document in range(1, int(segments.max()) + 1):
        inside = np.flatnonzero(segments == document)
        borders = 1 + np.flatnonzero(np.diff(scored[inside]))
        text = ""
        for run in np.split(inside, borders):
            part = _printable(tokenizer.decode(window["tokens"][run].tolist()))
            text += part if scored[run[0]] else f"{{not scored: {part}}}"
        yield f"  {document:>3} | {text}"
    if filling := int((segments == 0).sum()):
        yield f"      | {{filling: {filling:,} tokens}}"


def _printable(text: str) -> str:
    if (missing := len(text) - LONGEST) > 0:
        half = LONGEST // 2
        return f"{_printable(text[:half])} [... {missing:,} characters ...] {_printable(text[-half:])}"
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
