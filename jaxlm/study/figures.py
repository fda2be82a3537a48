"""The report's pictures, drawn with matplotlib's file backend; each function writes one PNG."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import mean
from typing import Any, TypeVar

import numpy as np
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from jaxlm.evaluation.benchmark_table import CONTROLS
from jaxlm.study.benchmark_report import task_names
from jaxlm.study.conversion_cost import Comparison, validation_curve
from jaxlm.study.results import Run, block_label

# Okabe and Ito's palette: distinguishable with every kind of colour vision, and in grey.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00")
BASELINE = "#A6A6A6"
PANELS_A_ROW = 4
T = TypeVar("T")
STYLE = {
    "font.size": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#E6E6E6",
    "axes.axisbelow": True,
    "axes.titlesize": 11,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "legend.frameon": False,
    "savefig.dpi": 160,
}


def new_figure(
    width: float, height: float, columns: int = 1, rows: int = 1, **options: Any
) -> tuple[Figure, list[Axes]]:
    """A figure of `rows` x `columns` panels, in inches, and its panels."""
    # Drawn without pyplot: no window system is asked for, and no global state is left behind.
    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure, list(figure.subplots(rows, columns, squeeze=False, **options).flat)


def _in_style(draw: Callable[[Sequence[T]], Figure]) -> Callable[[Sequence[T], Path], None]:
    """A function of (what is shown, path) that draws in the report's style and saves."""

    @functools.wraps(draw)
    def drawn(shown: Sequence[T], path: Path) -> None:
        with rc_context(STYLE):  # type: ignore[arg-type]
            draw(shown).savefig(path)

    return drawn


def _running_mean(y: np.ndarray, width: int) -> np.ndarray:
    """The mean of `y` over a centred stretch of `width` values, shorter at the ends."""
    sums = np.concatenate([[0.0], np.cumsum(y)])
    centre = np.arange(len(y))
    low, high = np.maximum(centre - width // 2, 0), np.minimum(centre + width // 2 + 1, len(y))
    return (sums[high] - sums[low]) / (high - low)


@_in_style
def loss(runs: Sequence[Run]) -> Figure:
    """Loss over training tokens, a panel a run, with validation, conversion phases and the token-frequency level."""
    columns = min(len(runs), PANELS_A_ROW)
    rows = -(-len(runs) // columns)
    figure, axes = new_figure(max(5.0, 4.6 * columns), 3.9 * rows, columns, rows, sharey=True)
    for ax, run, colour in zip(axes, runs, itertools.cycle(COLOURS), strict=False):
        _loss_panel(ax, run, colour)
    for ax in axes[len(runs) :]:
        ax.set_visible(False)
    for ax in axes[::columns]:
        ax.set_ylabel("loss (nats per token)")
    return figure


def _loss_panel(ax: Axes, run: Run, colour: str) -> None:
    for i, phase in enumerate(run.phases):
        start, stop = (run.tokens_at(step) / 1e6 for step in (phase.start, phase.stop))
        ax.axvspan(start, stop, color=colour, alpha=(0.05, 0.13)[i % 2], linewidth=0)
        ax.text(
            (start + stop) / 2, 1.01, block_label(phase.block_size, run.config.train.seq_len), ha="center", va="bottom",
            fontsize=8, color="#444444", transform=ax.get_xaxis_transform(),
        )  # fmt: skip
    x, y = np.asarray([(line["tokens"] / 1e6, line["loss"]) for line in run.steps]).reshape(-1, 2).T
    ax.plot(x, y, color=colour, alpha=0.3, linewidth=0.8)
    ax.plot(x, _running_mean(y, max(1, len(y) // 25)), color=colour, linewidth=1.8, label="training (running mean)")
    if run.validations:
        points = [(run.tokens_at(v["step"]) / 1e6, v["loss"], v["stderr"] or 0.0) for v in run.validations]
        x, y, error = np.asarray(points).T
        ax.errorbar(
            x, y, error, fmt="o", markersize=4.5, color="black", markerfacecolor="white", capsize=2,
            linewidth=1, zorder=3, label="validation" + (" (ELBO)" if run.is_diffusion else ""),
        )  # fmt: skip
    level = run.baseline("token_frequency", "loss")
    if level is not None:
        ax.axhline(level, color="#666666", linestyle="--", linewidth=1.2, label=f"token frequencies ({level:.2f})")
    ax.set_xlabel("training tokens (millions)")
    ax.set_xlim(0, 1.015 * run.tokens_at(run.config.train.num_steps) / 1e6)
    ax.set_title(run.name, pad=20 if run.phases else 6)
    if run.phases:
        ax.text(1.0, 1.1, "block size of each phase", fontsize=8, color="#444444", transform=ax.transAxes, ha="right")
    ax.legend(loc="upper right", fontsize=8.5)


@_in_style
def bits_per_byte(runs: Sequence[Run]) -> Figure:
    """Bits per byte on the validation text, models beside compressors and token frequencies, the best on top."""
    bars: list[tuple[str, float, float, str, bool]] = []
    for run, colour in zip(runs, itertools.cycle(COLOURS), strict=False):
        if run.evaluation is not None and run.evaluation["bits_per_byte"] is not None:
            error = run.evaluation["bits_per_byte_stderr"] or 0.0
            bars.append((run.name, run.evaluation["bits_per_byte"], error, colour, run.evaluation["is_bound"]))
    for key, label in (("xz", "xz -9"), ("gzip", "gzip -9"), ("token_frequency", "token frequencies")):
        value = next((v for run in runs if (v := run.baseline(key, "bits_per_byte")) is not None), None)
        if value is not None:
            bars.append((label, value, 0.0, BASELINE, False))
    bars.sort(key=lambda bar: -bar[1])
    figure, (ax,) = new_figure(7.4, 0.9 + 0.45 * len(bars))
    for i, (_, value, error, colour, bound) in enumerate(bars):
        ax.barh(
            i, value, 0.66, xerr=error or None, color=colour, alpha=0.55 if bound else 1.0,
            hatch="///" if bound else None, edgecolor="white", linewidth=0, error_kw={"capsize": 2, "linewidth": 1},
        )  # fmt: skip
        text = f"{'at most ' if bound else ''}{value:.3f}" + (f" ± {error:.3f}" if error else "")
        ax.text(value + error, i, f"  {text}", va="center", fontsize=9)
    ax.set_yticks(range(len(bars)), [bar[0] for bar in bars])
    ax.set_xlim(0, 1.35 * max(bar[1] for bar in bars))
    ax.grid(axis="y", visible=False)
    ax.set_xlabel("bits per byte on the validation text (lower is better)")
    return figure


@_in_style
def benchmarks(runs: Sequence[Run]) -> Figure:
    """Accuracy by task, a row a run, with a bar of two standard errors each way, chance and the controls as marks."""
    shown = [(run, colour) for run, colour in zip(runs, itertools.cycle(COLOURS), strict=False) if run.benchmarks]
    names = task_names(runs)
    figure, (ax,) = new_figure(7.4, 1.3 + (0.18 + 0.2 * len(shown)) * len(names))
    for i, name in enumerate(names):
        for j, (run, colour) in enumerate(shown):
            task = (run.benchmarks or {})["tasks"].get(name)
            if task is not None:
                y = i + 0.8 * ((j + 0.5) / len(shown) - 0.5)
                ax.errorbar(task["acc"], y, xerr=2 * (task["acc_stderr"] or 0.0), fmt="o", color=colour, capsize=2)
                ax.plot(task["chance"], y, "|", color="black", markersize=11, markeredgewidth=1.6)
                for (control, _), marker in zip(CONTROLS.items(), "Dx", strict=True):
                    if control in task["controls"]:
                        ax.plot(task["controls"][control]["acc"], y, marker, color=BASELINE, fillstyle="none")
    for run, colour in shown:
        ax.plot([], [], "o", color=colour, label=run.name)
    ax.plot([], [], "|", color="black", markersize=11, markeredgewidth=1.6, label="chance")
    for label, marker in zip(CONTROLS.values(), "Dx", strict=True):
        ax.plot([], [], marker, color=BASELINE, fillstyle="none", label=label)
    ax.set_yticks(range(len(names)), names)
    ax.invert_yaxis()
    ax.set_xlim(0, 1)
    ax.set_xlabel("accuracy; bars are two standard errors")
    ax.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=4, fontsize=8.5)
    return figure


@_in_style
def speed(runs: Sequence[Run]) -> Figure:
    """Generation, batch 1: tokens per second, tokens per pass, milliseconds to the first token; a dot a prompt."""
    panels = (
        ("tokens per second", "tokens_per_sec", 1.0),
        ("tokens per pass", "tokens_per_pass", 1.0),
        ("first token after (ms)", "seconds_to_first_token", 1e3),
    )
    shown = [(run, colour) for run, colour in zip(runs, itertools.cycle(COLOURS), strict=False) if run.generations]
    figure, axes = new_figure(9.2, 1.2 + 0.5 * len(shown), len(panels), sharey=True)
    for ax, (title, key, scale) in zip(axes, panels, strict=True):
        top = 0.0
        for i, (run, colour) in enumerate(shown):
            values = [scale * line[key] for line in run.generations]
            middle = float(np.median(values))
            top = max(top, *values)
            ax.barh(i, middle, 0.6, color=colour)
            ax.plot(values, [i] * len(values), "o", markersize=3.5, color="black", markerfacecolor="white", linewidth=0)
            ax.text(max(values), i, f"  {middle:,.0f}" if middle >= 100 else f"  {middle:.3g}", va="center", fontsize=9)
        ax.set_title(title)
        ax.set_xlim(0, 1.3 * top)
        ax.grid(axis="y", visible=False)
    axes[0].set_yticks(range(len(shown)), [run.name for run, _ in shown])
    axes[0].invert_yaxis()
    return figure


@_in_style
def conversion(comparisons: Sequence[Comparison]) -> Figure:
    """Validation ELBO over tokens of diffusion: conversions, and from scratch; thin a seed, thick their mean."""
    figure, (ax,) = new_figure(7.4, 4.4)
    curves = {
        "conversion (last block size)": [validation_curve(c.conversion) for c in comparisons],
        "from scratch, same tokens": [validation_curve(c.same_budget) for c in comparisons if c.same_budget],
        "from scratch, longest": [validation_curve(c.longest) for c in comparisons if c.longest],
    }
    for (label, lines), colour in zip(curves.items(), COLOURS, strict=False):
        if lines:
            for curve in lines:
                ax.plot(*np.transpose(curve), color=colour, alpha=0.45, linewidth=0.8)
            ax.plot(*_mean_curve(lines), "o-", color=colour, linewidth=2.2, markersize=4, label=label)
    level = mean(c.conversion.validations[-1]["loss"] for c in comparisons)
    ax.axhline(level, color=COLOURS[0], linestyle=":", linewidth=1.2, label=f"where conversions end ({level:.2f})")
    budgets = sorted({c.tokens_before for c in comparisons if c.tokens_before})
    for i, tokens in enumerate(budgets):
        line = ax.axvline(tokens, color="#666666", linestyle="--", linewidth=1.2)
        if i == 0:
            line.set_label("tokens of the autoregressive run")
    ax.set_xscale("log")
    ax.set_xlabel("tokens of diffusion training")
    ax.set_ylabel("validation ELBO (nats per token)")
    ax.legend(fontsize=8.5)
    return figure


def _mean_curve(lines: Sequence[Sequence[tuple[int, float]]]) -> tuple[np.ndarray, np.ndarray]:
    """The mean of several curves, at the points of any of them, as far as all of them go."""
    low, high = max(line[0][0] for line in lines), min(line[-1][0] for line in lines)
    x = np.array(sorted({tokens for line in lines for tokens, _ in line if low <= tokens <= high}))
    return x, np.mean([np.interp(x, *np.transpose(line)) for line in lines], axis=0)
