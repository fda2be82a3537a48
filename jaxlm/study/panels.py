"""Panels that the pictures of a study's report are made of, for published and for measured values alike."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import NullFormatter, ScalarFormatter

from jaxlm.study.figures import COLOURS

LABELS_AT_MOST = 20  # points in one panel that are named
MARKERS = "osD^vX"


@dataclass(frozen=True)
class Point:
    """A value of one model: `y` with the half width of its interval, and what kind of value it is."""

    label: str
    x: float
    y: float
    half_width: float | None
    kind: str


def missing(ax: Axes, what: str) -> None:
    """Says what there is not."""
    ax.text(0.5, 0.5, f"nothing to show:\n{what}", ha="center", va="center", color="#666666", transform=ax.transAxes)
    ax.set_xticks([])
    ax.set_yticks([])
    ax.grid(visible=False)


def scatter(ax: Axes, points: Sequence[Point], x_label: str, absent: str, log: bool = False) -> None:
    """Points over a quantity, a colour a kind of value."""
    if not points:
        missing(ax, absent)
        return
    for (kind, colour), marker in zip(_colours(points).items(), MARKERS, strict=False):
        chosen = [point for point in points if point.kind == kind]
        ax.errorbar(
            [p.x for p in chosen], [p.y for p in chosen], [p.half_width or 0.0 for p in chosen],
            fmt=marker, color=colour, capsize=2, linewidth=1, label=kind,
        )  # fmt: skip
    for point in points if len(points) <= LABELS_AT_MOST else ():
        ax.annotate(point.label, (point.x, point.y), (5, 4), textcoords="offset points", fontsize=8)
    if log:
        ax.set_xscale("log", base=2)
        ax.xaxis.set_major_formatter(ScalarFormatter())
        ax.xaxis.set_minor_formatter(NullFormatter())
    ax.margins(0.12)
    ax.set_xlabel(x_label)
    ax.set_ylabel("points")
    ax.legend(fontsize=8.5)


def ranked(ax: Axes, points: Sequence[Point], absent: str) -> None:
    """Models from the best to the worst, and the largest step between neighbours."""
    if not points:
        missing(ax, absent)
        return
    order = sorted(points, key=lambda point: -point.y)
    colours = _colours(points)
    for i, point in enumerate(order):
        ax.errorbar(i, point.y, point.half_width or 0.0, fmt="o", color=colours[point.kind], capsize=2)
    for kind, colour in colours.items():
        ax.plot([], [], "o", color=colour, label=kind)
    if len(order) > 1:
        steps = -np.diff([point.y for point in order])
        i = int(np.argmax(steps))
        ax.axvline(i + 0.5, color="#666666", linestyle="--", linewidth=1.2, label=f"largest step: {steps[i]:.2f}")
    ax.set_xticks(range(len(order)), [point.label for point in order])
    ax.set_ylabel("points")
    ax.legend(fontsize=8.5)


def composition(ax: Axes, shares: Mapping[str, Mapping[str, float]], absent: str) -> None:
    """A bar a text, divided among its sources."""
    if not shares:
        missing(ax, absent)
        return
    sources = list(dict.fromkeys(source for parts in shares.values() for source in parts))
    for i, source in enumerate(sources):
        values = np.array([100 * parts.get(source, 0.0) for parts in shares.values()])
        before = [100 * sum(parts.get(other, 0.0) for other in sources[:i]) for parts in shares.values()]
        ax.barh(range(len(shares)), values, 0.6, left=before, color=COLOURS[i % len(COLOURS)], label=source)
    ax.set_yticks(range(len(shares)), list(shares))
    ax.invert_yaxis()
    ax.grid(axis="y", visible=False)
    ax.set_xlabel("share of tokens (%)")
    ax.legend(fontsize=8, ncols=3, loc="upper center", bbox_to_anchor=(0.5, -0.18))


def task_dots(ax: Axes, scores: Mapping[str, Mapping[str, float]], absent: str) -> None:
    """Scores by task, a colour a model."""
    if not scores:
        missing(ax, absent)
        return
    tasks = list(dict.fromkeys(task for of_model in scores.values() for task in of_model))
    for i, (label, of_model) in enumerate(scores.items()):
        at = [tasks.index(task) + 0.12 * (i - (len(scores) - 1) / 2) for task in of_model]
        ax.plot(list(of_model.values()), at, MARKERS[i % len(MARKERS)], color=COLOURS[i % len(COLOURS)], label=label)
    ax.set_yticks(range(len(tasks)), tasks)
    ax.invert_yaxis()
    ax.set_xlabel("points")
    ax.legend(fontsize=8)


def radar(ax: Axes, scores: Mapping[str, Mapping[str, float]], absent: str) -> None:
    """The same around a centre of 0 points, for models that have every task; drawn in plain axes."""
    tasks = list(dict.fromkeys(task for of_model in scores.values() for task in of_model))
    complete = {label: of_model for label, of_model in scores.items() if len(of_model) == len(tasks)}
    if not complete or len(tasks) < 3:
        missing(ax, absent if len(tasks) < 3 else "no model that has every task")
        return
    most = max(max(of_model.values()) for of_model in complete.values())
    angle_K = np.pi / 2 - 2 * np.pi * np.arange(len(tasks) + 1) / len(tasks)
    for level in (0.5 * most, most):
        ax.plot(level * np.cos(angle_K), level * np.sin(angle_K), color="#CCCCCC", linewidth=0.8)
        ax.text(0, level, f" {level:.0f}", fontsize=7.5, color="#666666")
    for i, (label, of_model) in enumerate(scores.items()):
        if label not in complete:
            continue
        r_K = np.array([of_model[task] for task in (*tasks, tasks[0])])
        ax.plot(
            r_K * np.cos(angle_K),
            r_K * np.sin(angle_K),
            "o-",
            color=COLOURS[i % len(COLOURS)],
            markersize=3,
            label=label,
        )
    for task, angle in zip(tasks, angle_K, strict=False):
        ax.text(1.16 * most * np.cos(angle), 1.1 * most * np.sin(angle), task, ha="center", va="center", fontsize=8)
    ax.set_xlim(-1.5 * most, 1.5 * most)
    ax.set_ylim(-1.3 * most, 1.3 * most)
    ax.set_aspect("equal")
    ax.set_axis_off()
    ax.legend(fontsize=8, loc="upper right")


def cost_bars(ax: Axes, conversion: Mapping[str, Mapping[str, float]]) -> None:
    """Tokens, hours and dollars, as shares of those from scratch."""
    kinds = [key for key in ("tokens", "hours", "dollars") if all(key in part for part in conversion.values())]
    for i, (label, part) in enumerate(conversion.items()):
        at = np.arange(len(kinds)) + 0.38 * (i - 0.5)
        shares = [100 * part[kind] / conversion["scratch"][kind] for kind in kinds]
        ax.bar(at, shares, 0.36, color=COLOURS[i % len(COLOURS)], label=label)
        for x, share, kind in zip(at, shares, kinds, strict=True):
            ax.text(x, share, f"{part[kind]:,.4g}", ha="center", va="bottom", fontsize=8)
    ax.set_xticks(range(len(kinds)), kinds)
    ax.set_ylabel("% of from scratch")
    ax.legend(fontsize=8.5, ncols=2, loc="upper center", bbox_to_anchor=(0.5, -0.08))


def curves(ax: Axes, parts: Mapping[str, Sequence[Sequence[tuple[int, float]]]]) -> None:
    """Validation loss over tokens, a colour a kind of run, a line a seed."""
    for (label, lines), colour in zip(parts.items(), COLOURS, strict=False):
        for i, line in enumerate(lines):
            ax.plot(*np.transpose(line), "o-", color=colour, markersize=3, linewidth=1.2, label=None if i else label)
    ax.set_xscale("log")
    ax.set_xlabel("tokens of diffusion training")
    ax.set_ylabel("validation ELBO (nats per token)")
    ax.legend(fontsize=8.5)


def _colours(points: Sequence[Point]) -> dict[str, str]:
    kinds = dict.fromkeys(point.kind for point in points)
    return dict(zip(kinds, COLOURS, strict=False))
