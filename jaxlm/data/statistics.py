"""What went into a data directory, counted while it is written: `statistics.json`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from jaxlm.data.cleaning import SPLITS, TRAIN
from jaxlm.data.document import Document

COUNTED = ("documents", "bytes", "tokens")


class Counts:
    """Documents, bytes of UTF-8, and tokens (one end-of-text for each document included) by split and source."""

    def __init__(self) -> None:
        self._by_split = {split: Counter[str]() for split in SPLITS}
        self._by_source: dict[str, Counter[str]] = {}
        self._lengths: dict[str, Counter[int]] = {}

    def add(self, split: str, document: Document, num_tokens: int) -> None:
        """Counts a document whose encoding, end-of-text included, has `num_tokens` tokens."""
        counted = Counter(documents=1, bytes=len(document.text.encode()), tokens=num_tokens)
        self._by_split[split] += counted
        self._by_source.setdefault(document.source, Counter()).update(counted)
        self._lengths.setdefault(document.source, Counter())[num_tokens.bit_length() - 1] += 1

    def tokens(self, split: str) -> int:
        """Tokens of one split so far."""
        return self._by_split[split]["tokens"]

    def result(self, windows: Mapping[str, int], removed: Mapping[str, int]) -> dict[str, Any]:
        """The contents of `statistics.json`; `windows` by split, `removed` documents by reason.

        `lengths` has a histogram for each source: number i counts the documents of 2^i to 2^(i+1) - 1 tokens.
        """
        total = sum(self._by_split.values(), Counter[str]())
        all_tokens = max(total["tokens"], 1)
        return {
            **{name: total[name] for name in COUNTED},
            "bytes_per_token": total["bytes"] / all_tokens,
            "by_split": {
                split: {name: counts[name] for name in COUNTED} | {"windows": windows[split]}
                for split, counts in self._by_split.items()
            },
            "by_source": {
                source: {name: counts[name] for name in COUNTED} | {"token_share": counts["tokens"] / all_tokens}
                for source, counts in sorted(self._by_source.items())
            },
            "lengths": {
                source: [counts[i] for i in range(max(counts) + 1)] for source, counts in sorted(self._lengths.items())
            },
            "removed": dict(removed),
        }


def of_mix(
    statistics: Mapping[str, Any],
    weights: Mapping[str, float],
    windows: Mapping[str, Sequence[int]],
    removed: Mapping[str, Mapping[str, int]],
    ended_by: str | None,
) -> dict[str, Any]:
    """The statistics of a mix: `token_share` is what was promised, a source's share of the training windows.

    `weights` and `removed` are by source, `windows` of each split in the order of the weights. `ended_by` is the source
    that ran out, None where there are as many tokens as were asked for.
    """
    by_source = {}
    for index, name in enumerate(weights):
        own = {split: counts[index] for split, counts in windows.items()}
        share = own[TRAIN] / max(sum(windows[TRAIN]), 1)
        counts = statistics["by_source"].get(name, dict.fromkeys(COUNTED, 0))
        by_source[name] = counts | {"token_share": share, "windows": own, "removed": dict(removed[name])}
    return {**statistics, "by_source": by_source, "ended_by": ended_by}


def table(statistics: Mapping[str, Any]) -> str:
    """The statistics as lines for a person."""
    rows = [("", "documents", "bytes", "tokens", "share of the windows" if "ended_by" in statistics else "share")]
    total = max(statistics["tokens"], 1)
    parts = [*statistics["by_source"].items(), *statistics["by_split"].items(), ("all", statistics)]
    for name, counts in parts:
        # Of a mix the share is one of windows, which were promised; more documents may have been read for them.
        share = counts.get("token_share", counts["tokens"] / total)
        rows.append((name, *(f"{counts[key]:,}" for key in COUNTED), f"{share:.1%}"))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    cells = [[row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])] for row in rows]
    removed = ", ".join(f"{count:,} {reason.replace('_', ' ')}" for reason, count in statistics["removed"].items())
    windows = ", ".join(f"{counts['windows']:,} for {split}" for split, counts in statistics["by_split"].items())
    summary = f"{statistics['bytes_per_token']:.3f} bytes per token; windows: {windows}; removed: {removed}"
    return "\n".join([*map("  ".join, cells), summary])
