"""The statistics of a data directory as a picture: how long documents are, how dense tokens, what is from where."""

from __future__ import annotations

import io
import itertools
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from jaxlm.data.windows import FINGERPRINT, STATISTICS

PICTURE = "statistics.png"
# Okabe and Ito's palette: distinguishable with every kind of colour vision, and in grey.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00")
ASKED_FOR = "#222222"
LABELS = 6  # at most, below the lengths


def draw_missing(data: Path) -> None:
    """Draws the picture of a data directory that has none: an interruption may come between the windows and it."""
    statistics, made_from = (json.loads((data / name).read_text()) for name in (STATISTICS, FINGERPRINT))
    if not (data / PICTURE).is_file() and "lengths" in statistics:  # which older directories do not have
        draw(statistics, made_from["config"].get("weights") or {}, data / PICTURE)


def draw(statistics: Mapping[str, Any], weights: Mapping[str, float], path: Path) -> None:
    """Writes a PNG of what `statistics.json` holds, a row a source, whole or not at all.

    `weights` are the shares of the tokens that a mix was asked for, by source; empty without a mix.
    """
    # Matplotlib takes a second to import.
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    by_source, lengths = statistics["by_source"], statistics["lengths"]
    bins = max(map(len, lengths.values()))
    first = min(next(i for i, count in enumerate(counts) if count) for counts in lengths.values())
    # Drawn without pyplot: no window system is asked for, and no global state is left behind.
    figure = Figure(figsize=(12, 1.4 + 0.42 * len(by_source)), layout="constrained", dpi=110)
    FigureCanvasAgg(figure)
    histograms, density, share = axes = figure.subplots(1, 3, sharey=True)
    for row, (name, colour) in enumerate(zip(by_source, itertools.cycle(COLOURS), strict=False)):
        counts, counted = lengths.get(name, [0]), by_source[name]
        heights = [-0.8 * count / max(*counts, 1) for count in counts]
        histograms.bar(range(len(counts)), heights, 0.95, row + 0.4, align="edge", color=colour)
        for ax, value in ((density, counted["bytes"] / max(counted["tokens"], 1)), (share, counted["token_share"])):
            ax.barh(row, value, 0.6, color=colour)
            ax.text(max(value, weights.get(name, 0) if ax is share else 0), row, f"  {value:.3f}", va="center")
        if name in weights:
            share.plot([weights[name]] * 2, [row - 0.4, row + 0.4], color=ASKED_FOR, linestyle="--")
    ticks = range(first, bins + 1, -(-(bins - first) // LABELS))
    histograms.set_xticks(ticks, [f"{2**i:,}" for i in ticks], fontsize=9)
    histograms.set_xlim(first, bins)
    histograms.set_yticks(range(len(by_source)), list(by_source))
    histograms.invert_yaxis()
    titles = ("documents by tokens, end of text included", "bytes per token", "share of the tokens")
    for ax, title in zip(axes, titles, strict=True):
        ax.set_title(title + (" (dashed: asked for)" if weights and ax is share else ""), loc="left", fontsize=11)
        ax.spines[["top", "right"]].set_visible(False)
        ax.set_axisbelow(True)
        ax.grid(axis="x", color="#E6E6E6")
        if ax is not histograms:
            ax.set_xlim(0, 1.2 * ax.get_xlim()[1])
    picture = io.BytesIO()
    figure.savefig(picture, format="png")
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.write_bytes(picture.getvalue())
    os.replace(temporary, path)
