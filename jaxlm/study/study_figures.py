"""The pictures of a study's report: what is published in the left panel, what was measured here in the right one.

The seven of the article and the scaling chapter's radar. A panel without values says what is missing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from jaxlm.study.figures import STYLE, new_figure
from jaxlm.study.measures import label_of
from jaxlm.study.panels import Point, composition, cost_bars, curves, missing, radar, ranked, scatter, task_dots
from jaxlm.study.published import Published
from jaxlm.study.run_tables import decoded
from jaxlm.study.study_data import StudyData

PUBLISHED, MEASURED = "published", "measured here"
Panel = Callable[[Axes, StudyData], None]


def draw(data: StudyData, folder: Path) -> None:
    """Writes all pictures, `NAME.png` each."""
    for name, (left, right, width, height) in _PICTURES.items():
        with rc_context(STYLE):  # type: ignore[arg-type]
            _two_panels(data, left, right, width, height).savefig(folder / f"{name}.png")


def _two_panels(data: StudyData, left: Panel, right: Panel, width: float, height: float) -> Figure:
    figure, axes = new_figure(width, height, 2)
    for ax, panel, title in zip(axes, (left, right), (PUBLISHED, MEASURED), strict=True):
        panel(ax, data)
        ax.set_title(title)
    return figure


def _averages(rows: Sequence[Published], x: Callable[[Published], float | None]) -> list[Point]:
    """Published averages; the colour says over how many tasks they are."""
    return [
        Point(f"{one.layers}L", at, one.average, None, _tasks(one))
        for one in rows
        if one.average is not None and (at := x(one)) is not None
    ]


def _tasks(one: Published) -> str:
    return "tasks not stated" if one.num_tasks is None else f"mean of {one.num_tasks} tasks"


def _measured(data: StudyData, x: Callable[[Published], float | None]) -> list[Point]:
    """The rows of the sweep with the study's own mean."""
    found = []
    for one in data.published.sweep:
        value = data.measured(one.row, data.mean)
        at = x(one)
        if value is not None and at is not None:
            found.append(Point(f"{one.layers}L", at, value.value, value.half_width, label_of(data.mean)))
    return found


def _layers(one: Published) -> float | None:
    return one.layers


def _hidden(one: Published) -> float | None:
    return one.hidden


def _published_composition(ax: Axes, data: StudyData) -> None:
    composition(ax, {one.label: one.shares for one in data.published.mixes if one.shares}, "no published mix")


def _measured_composition(ax: Axes, data: StudyData) -> None:
    texts: dict[tuple[tuple[str, float], ...], str] = {}
    for row in data.rows:
        if row.sources:
            by_share = sorted(row.sources.items(), key=lambda part: (-round(part[1], 2), part[0]))
            texts.setdefault(tuple(by_share), row.name)
    composition(ax, {name: dict(shares) for shares, name in texts.items()}, "no row with prepared text")


def _published_tiers(ax: Axes, data: StudyData) -> None:
    ranked(ax, _averages(data.published.sweep, _layers), "no published average")


def _measured_tiers(ax: Axes, data: StudyData) -> None:
    ranked(ax, _measured(data, _layers), f"no row of the sweep with {label_of(data.mean)}")


def _published_hidden(ax: Axes, data: StudyData) -> None:
    scatter(ax, _averages(data.published.sweep, _hidden), "hidden size", "no published average")
    ax.axvline(512, color="#666666", linestyle="--", linewidth=1.2)


def _measured_hidden(ax: Axes, data: StudyData) -> None:
    # Rows may have other widths than the published ones: a pocket study's are an eighth.
    widths = {row.name: row.config["model"]["hidden_size"] for row in data.rows if row.config}
    points = _measured(data, lambda one: widths.get(one.row))
    scatter(ax, points, "hidden size", f"no row of the sweep with {label_of(data.mean)}")


def _published_depth(ax: Axes, data: StudyData) -> None:
    scatter(ax, _averages(data.published.sweep, _layers), "layers", "no published average", log=True)


def _measured_depth(ax: Axes, data: StudyData) -> None:
    scatter(ax, _measured(data, _layers), "layers", f"no row of the sweep with {label_of(data.mean)}", log=True)


def _published_throughput(ax: Axes, data: StudyData) -> None:
    means = {one.row: one.mean_7 for one in data.published.families}
    points = [
        Point(one.label, one.tokens_per_sec, mean, None, "mean of 7 tasks")
        for one in data.published.throughput
        if one.tokens_per_sec is not None and (mean := means.get(one.row)) is not None
    ]
    scatter(ax, points, "tokens per second", "no model with both published", log=True)


def _measured_throughput(ax: Axes, data: StudyData) -> None:
    points = []
    names = {one.row for one in data.published.families}
    for row in (row for row in data.rows if row.name in names):
        speed = decoded([cell.decode for cell in data.cells_of(row) if cell.decode], "tokens_per_sec")
        value = row.measured.get(data.mean)
        if speed is not None and value is not None:
            points.append(Point(row.name, speed, value.value, value.half_width, label_of(data.mean)))
    scatter(ax, points, "tokens per second", f"no family with a speed and {label_of(data.mean)}", log=True)


def _published_scores(data: StudyData) -> dict[str, dict[str, float]]:
    # A row of both tables is one model, and models have the order of the other panel, whose colours are by it.
    rows: dict[str, Published] = {}
    for one in (*data.published.sweep, *data.published.families):
        rows.setdefault(one.row, one)
    return {one.label: dict(one.scores) for one in rows.values() if len(one.scores) > 1}


def _measured_scores(data: StudyData) -> dict[str, dict[str, float]]:
    """Of the rows that are published by task, else of the sweep's; names as in the study."""
    names = dict.fromkeys(one.row for one in (*data.published.sweep, *data.published.families) if len(one.scores) > 1)
    found = {}
    for name in names:
        row = data.row(name)
        scores = {task: row.measured[task].value for task in data.tasks if task in row.measured} if row else {}
        if scores:
            found[name] = scores
    return found


def _published_tasks(ax: Axes, data: StudyData) -> None:
    task_dots(ax, _published_scores(data), "no row published by task")


def _measured_tasks(ax: Axes, data: StudyData) -> None:
    task_dots(ax, _measured_scores(data), "none of the rows that are published by task was asked")


def _published_conversion(ax: Axes, data: StudyData) -> None:
    cost_bars(ax, data.published.conversion)


def _measured_conversion(ax: Axes, data: StudyData) -> None:
    if not data.conversions:
        missing(ax, "no finished conversion beside diffusion from scratch")
        return
    parts = {
        "conversion": [c.converted for c in data.conversions],
        "from scratch, same tokens": [c.same_tokens for c in data.conversions if c.same_tokens],
        "from scratch, longest": [c.longest for c in data.conversions if c.longest],
    }
    curves(ax, parts)


def _published_radar(ax: Axes, data: StudyData) -> None:
    radar(ax, _published_scores(data), "no row published by task")


def _measured_radar(ax: Axes, data: StudyData) -> None:
    radar(ax, _measured_scores(data), "none of the rows that are published by task was asked")


_PICTURES: dict[str, tuple[Panel, Panel, float, float]] = {
    "data_composition": (_published_composition, _measured_composition, 11.0, 3.6),
    "two_tiers": (_published_tiers, _measured_tiers, 11.0, 3.8),
    "hidden_threshold": (_published_hidden, _measured_hidden, 11.0, 3.8),
    "depth": (_published_depth, _measured_depth, 11.0, 3.8),
    "throughput_accuracy": (_published_throughput, _measured_throughput, 11.0, 4.2),
    "task_breakdown": (_published_tasks, _measured_tasks, 11.0, 4.2),
    "conversion": (_published_conversion, _measured_conversion, 11.0, 3.8),
    "radar": (_published_radar, _measured_radar, 11.0, 5.2),
}
