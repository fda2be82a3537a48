"""Sizes as a picture: parameters and training memory by part, a bar a configuration."""

from __future__ import annotations

import io
import itertools
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from jaxlm.errors import UserError
from jaxlm.sizing.tables import MEMORY

FORMATS = (".png", ".svg", ".pdf")


def check(path: Path) -> None:
    """Raises UserError for a file that no picture can be written to."""
    if path.suffix.lower() not in FORMATS:
        raise UserError(f"--plot is {str(path)!r}, allowed: a file that ends in {', '.join(FORMATS)}")
    if path.is_dir() or not path.parent.is_dir() or not os.access(path.parent, os.W_OK):
        raise UserError(f"--plot is {str(path)!r}, allowed: a file in a directory that exists and can be written to")


def draw(sizes: Sequence[tuple[str, dict[str, Any]]], path: Path) -> None:
    """Writes the picture of what `describe` says of each configuration, with its name; all of it or nothing.

    Raises UserError as `check` does.
    """
    check(path)
    # Matplotlib takes a second to import, and only a picture needs it.
    from matplotlib import colormaps
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    names, each = [name for name, _ in sizes], [size for _, size in sizes]
    counts = [size["by_part"] for size in each]
    parts = sorted(
        {part for by_part in counts for part in by_part}, key=lambda part: -max(c.get(part, 0) for c in counts)
    )
    memory = [{text: size["training_memory"][name] for name, text in MEMORY.items()} for size in each]
    panels = (
        ("parameters by part (millions)", parts, counts, 1e6),
        ("training memory at its peak (GB)", list(MEMORY.values()), memory, 1e9),
    )
    colours = colormaps["tab10"].colors  # type: ignore[attr-defined]
    # Drawn without pyplot: no window system is asked for, and no global state is left behind.
    figure = Figure(figsize=(12, 2.8 + 0.5 * len(names)), layout="constrained", dpi=160)
    FigureCanvasAgg(figure)
    for ax, (title, keys, values, unit) in zip(figure.subplots(1, 2, sharey=True), panels, strict=True):
        left = [0.0] * len(names)
        for key, colour in zip(keys, itertools.cycle(colours), strict=False):
            widths = [value.get(key, 0) / unit for value in values]
            ax.barh(range(len(names)), widths, 0.6, left=left, color=colour, label=key)
            left = [start + width for start, width in zip(left, widths, strict=True)]
        for i, end in enumerate(left):
            ax.text(end, i, f"  {end:,.1f}", va="center", fontsize=9)
        ax.set_xlim(0, 1.2 * max(left))
        ax.set_title(title, loc="left", fontsize=11, fontweight="bold")
        ax.set_axisbelow(True)
        ax.grid(axis="x", color="#E6E6E6")
        ax.spines[["top", "right"]].set_visible(False)
        ax.legend(loc="upper center", bbox_to_anchor=(0.5, -0.12), ncols=2, fontsize=8.5, frameon=False)
    ax.set_yticks(range(len(names)), names)
    ax.invert_yaxis()
    picture = io.BytesIO()
    figure.savefig(picture, format=path.suffix[1:].lower())
    temporary = path.with_name(f".{path.stem}.tmp-{os.getpid()}{path.suffix}")
    try:
        temporary.write_bytes(picture.getvalue())
        os.replace(temporary, path)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise UserError(f"--plot is {str(path)!r}, allowed: a file that can be written ({error.strerror})") from error
