"""The tables of a study's report on what rows score: published beside measured, tasks, differences, claims."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import mean

from jaxlm.evaluation import averages
from jaxlm.evaluation.benchmark_table import CONTROLS
from jaxlm.study.cell_data import CellData
from jaxlm.study.claim_tests import UNTESTED
from jaxlm.study.claims import PUBLISHED_MEANS, Answer
from jaxlm.study.comparisons import Difference
from jaxlm.study.measures import BITS, label_of, tasks_of
from jaxlm.study.published import Published
from jaxlm.study.report_table import Entry, Table, interval, number, row_link, text
from jaxlm.study.study_data import RowData, StudyData

SIGNIFICANT = 0.05
UNKNOWN_TASKS = "tasks not stated"


def beside_published(data: StudyData, name: str, rows: Sequence[Published]) -> Table:
    """Every row of a published table, the row of ours beside it; means over six and over seven tasks never mixed."""
    own = own_mean(data)
    found = [data.row(one.row) for one in rows]
    # A study of other tasks has its own mean instead of two columns of nothing.
    measured_means = {m for m in PUBLISHED_MEANS if not own or any(row and m in row.measured for row in found)}
    header = (
        *("row", "published as", "shape, published", "shape, here", "parameters, published", "parameters, here"),
        "average as published",
        *(
            f"{label}, {of}"
            for mean, label in PUBLISHED_MEANS.items()
            for of in ("published", "measured")
            if of == "published" or mean in measured_means
        ),
        *((own_mean_label(data),) if own else ()),
        *("bits per byte, measured", "seeds", "evidence of what is published"),
    )
    lines = []
    for one, row in zip(rows, found, strict=True):
        measured = row.measured if row else {}
        average = number(one.average)
        if one.average is not None:
            over = UNKNOWN_TASKS if one.num_tasks is None else f"{one.num_tasks} tasks"
            average = Entry(f"{average.text} ({over})", one.average)
        lines.append(
            (
                row_link(one.row) if row else text(f"{one.row} (not in this study)"),
                text(one.label),
                Entry(f"{one.layers} x {one.hidden}", one.layers) if one.layers else text(""),
                _shape(row) if row else text(""),
                number(one.parameters, 0),
                parameters(row) if row else number(None),
                average,
                number(one.mean_6),
                *((interval(measured.get("mean_6")),) if "mean_6" in measured_means else ()),
                number(one.mean_7),
                *((interval(measured.get("mean_7")),) if "mean_7" in measured_means else ()),
                *((interval(measured.get(own)),) if own else ()),
                interval(measured.get(BITS), 3),
                number(max((m.seeds for m in measured.values()), default=0), 0),
                text(one.evidence),
            )
        )
    return Table(name, header, tuple(lines), 3)


def _shape(row: RowData) -> Entry:
    model = (row.config or {}).get("model")
    return Entry(f"{model['num_layers']} x {model['hidden_size']}", model["num_layers"]) if model else text("")


def own_mean(data: StudyData) -> str:
    """The measure that rows of this study are ranked by, where it is neither of the published means; else ""."""
    return "" if data.mean in PUBLISHED_MEANS else data.mean


def own_mean_label(data: StudyData) -> str:
    """What that measure is called, in a heading."""
    return averages.LABELS.get(data.mean, "own mean (a stand-in), measured")


def own_mean_note(data: StudyData) -> tuple[str, ...]:
    """Which tasks a mean of the study's own is over; nothing where it is one of the published."""
    if not own_mean(data) or data.mean in averages.LABELS:
        return ()
    names = ", ".join(tasks_of(data.mean))
    return (f"The own mean is over {names}: a stand-in, not to be compared with the published means.",)


def parameters(row: RowData) -> Entry:
    """How many, with a mark where they are outside of the study's budget."""
    entry = number(row.parameters, 0)
    return Entry(f"{entry.text} (outside)", entry.value) if row.is_in_range is False else entry


def shared_flags(data: StudyData) -> tuple[str, ...]:
    """The flags that all commands with a configuration have, of which no row's line need remind."""
    words = [row.command.split() for row in data.rows if "--config=" in row.command]
    return tuple(word for word in words[0] if all(word in other for other in words)) if len(words) > 1 else ()


def all_rows(data: StudyData) -> Table:
    """Every row, in the order of the study; of commands what is not in all of them."""
    shared = shared_flags(data)
    header = ("row", "command", "groups", "parameters", "seeds", _mean_label(data), "bits per byte", "of its runs")
    lines = []
    for row in data.rows:
        cells = data.cells_of(row)
        seeds = max((m.seeds for m in row.measured.values()), default=0)
        states = dict.fromkeys(cell.status for cell in cells)
        counts = ", ".join(f"{sum(cell.status == state for cell in cells)} {state}" for state in states)
        bound = any(cell.loss and cell.loss["is_bound"] for cell in cells)
        bits = interval(row.measured.get(BITS), 3)
        lines.append(
            (
                row_link(row.name),
                text(" ".join(word for word in row.command.split() if word not in shared)),
                text(", ".join(row.groups)),
                parameters(row),
                number(seeds, 0),
                interval(row.measured.get(data.mean)),
                Entry(f"at most {bits.text}", bits.value) if bound and bits.value is not None else bits,
                text(counts),
            )
        )
    return Table("rows", header, tuple(lines), 3)


def _mean_label(data: StudyData) -> str:
    return averages.LABELS.get(data.mean) or own_mean_label(data)


def by_task(data: StudyData) -> Table:
    """Each task of each row beside chance, the controls and what is published; points, seeds averaged."""
    figures = {one.row: one.scores for one in (*data.published.families, *data.published.sweep) if one.scores}
    asked = dict.fromkeys(
        (*data.tasks, *(task for scores in figures.values() for task in scores if task not in data.tasks))
    )
    header = ("task", "row", "items", "chance", *CONTROLS.values(), "published", "measured", "acc_norm, measured")
    lines = []
    for task in asked:
        for name in dict.fromkeys((*(row.name for row in data.rows), *figures)):
            row = data.row(name)
            cells = [cell for cell in data.cells_of(row) if task in cell.tasks] if row else []
            figure = figures.get(name, {}).get(task)
            if cells or figure is not None:
                lines.append((text(task), row_link(name) if row else text(name), *_scores(data, task, cells, figure)))
    return Table("tasks", header, tuple(lines), 2)


def _scores(data: StudyData, task: str, cells: Sequence[CellData], figure: float | None) -> list[Entry]:
    records = [cell.tasks[task] for cell in cells]
    measured = data.measured(cells[0].row, task) if cells else None
    return [
        number(records[0]["n"] if records else None, 0),
        number(100 * records[0]["chance"] if records else None),
        *(number(_points([(record["controls"] or {}).get(control, {}).get("acc") for record in records]))
          for control in CONTROLS),
        number(figure),
        interval(measured),
        number(_points([record["acc_norm"] for record in records])),
    ]  # fmt: skip


def _points(values: Sequence[float | None]) -> float | None:
    """The mean over seeds in points; None where a seed lacks it."""
    known = [value for value in values if value is not None]
    return 100 * mean(known) if known and len(known) == len(values) else None


def differences(name: str, found: Sequence[Difference]) -> Table:
    """Rows of a group against the first of it."""
    header = (
        *("measure", "first", "second", "second minus first", "95 % half width", "p", "p, corrected"),
        *("found with 80 % power", "seeds", "items", "in words"),
    )
    lines = tuple(
        (
            text(f"{label_of(one.measure)} ({one.unit})"),
            row_link(one.first),
            row_link(one.second),
            number(one.value, 3),
            number(one.half_width, 3),
            number(one.p, 4),
            number(one.p_adjusted, 4),
            number(one.smallest, 3),
            number(one.seeds, 0),
            number(one.items, 0),
            text(one.verdict),
        )
        for one in found
    )
    return Table(f"group-{name.replace(' ', '-')}", header, lines, 3)


def group_summary(name: str, found: Sequence[Difference], lacking: str) -> str:
    """How many differences a group has, how many are more than chance explains, and which could not be taken."""
    apart = sum(one.p_adjusted is not None and one.p_adjusted < SIGNIFICANT for one in found)
    return (
        f"{name}: {len(found)} differences, {apart} of them with p below {SIGNIFICANT} after correction for the "
        "comparisons of a group and measure" + (f"; not compared: {lacking}" if lacking else "")
    )


def _verdict(answer: Answer) -> str:
    """Nobody should be able to quote it without what it is worth."""
    return answer.verdict + (" (pocket rows)" if answer.is_pocket and answer.verdict != UNTESTED else "")


def claims(data: StudyData) -> Table:
    """Each published claim, and what this study answers."""
    header = ("claim", "answer", "why", "published", "where")
    lines = tuple(
        (text(one.claim.text), text(_verdict(one)), text(one.words), text(one.claim.published), text(one.claim.source))
        for one in data.claims
    )
    return Table("claims", header, lines, len(header))
