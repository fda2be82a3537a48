"""What the report's page shows of one row: its command, configuration, seeds, curve, samples, tasks."""

from __future__ import annotations

import html
import json
from collections.abc import Sequence

from jaxlm.study import report_table
from jaxlm.study.cell_data import CellData
from jaxlm.study.report_table import Table, anchor, number, text
from jaxlm.study.rows import EMPTY
from jaxlm.study.study_data import RowData, StudyData

WIDTH, HEIGHT, LEFT, BOTTOM, MARGIN = 620, 240, 46, 30, 10  # of a curve, in its own units
SEED_COLOURS = 4  # that page.css has
NO_COMMAND = ("a workdir that no study made", "no command: the row stays empty")


def details(data: StudyData, row: RowData) -> str:
    """One row, closed until a link or a click opens it."""
    cells = data.cells_of(row)
    parts = [
        f'<details id="{anchor(row.name)}"><summary>{html.escape(row.name)}</summary>',
        f"<p><code>{html.escape(row.command or NO_COMMAND[row.kind == EMPTY])}</code></p>",
        _configuration(row),
        report_table.page(_seeds(row, cells)),
        _curve(cells),
        *(_samples(cell) for cell in cells if cell.samples),
        _conditions(cells),
    ]
    return "\n".join(part for part in [*parts, "</details>"] if part)


def _configuration(row: RowData) -> str:
    if row.config is None:
        return ""
    differs = ""
    if row.reference:
        items = "".join(f"<li>{html.escape(line)}</li>" for line in row.differences) or "<li>in nothing</li>"
        link = f'<a href="#{anchor(row.reference)}">{html.escape(row.reference)}</a>'
        differs = f"<p>Differs from {link} (there) in:</p><ul>{items}</ul>"
    whole = html.escape(json.dumps(row.config, indent=1, default=str))
    return f"{differs}<details><summary>the whole configuration</summary><pre>{whole}</pre></details>"


def _seeds(row: RowData, cells: Sequence[CellData]) -> Table:
    """A line a seed: what each run is, and what it scores."""
    tasks = tuple(dict.fromkeys(task for cell in cells for task in cell.tasks))
    header = ("run", "status", "evaluated (UTC)", "tokens", "nats a token", "bits per byte", *tasks)
    lines = tuple(
        (
            text(cell.name),
            text(f"{cell.status} {cell.error}".strip()),
            text(cell.evaluated_at or ""),
            number(cell.tokens, 0),
            number(cell.loss["loss"] if cell.loss else None, 4),
            number(cell.loss["bits_per_byte"] if cell.loss else None, 4),
            *(number(100 * cell.tasks[task]["acc"] if task in cell.tasks else None) for task in tasks),
        )
        for cell in cells
    )
    return Table(f"runs-{anchor(row.name)}", header, lines, 3)


def _curve(cells: Sequence[CellData]) -> str:
    """Loss over tokens: thin while training, thick on validation windows, a colour a seed."""
    drawn = [cell for cell in cells if len(cell.training) > 1 or len(cell.validation) > 1]
    if not drawn:
        return ""
    points = [(x, y) for cell in drawn for x, y in (*cell.training, *(v[:2] for v in cell.validation))]
    most, low, high = max(x for x, _ in points), min(y for _, y in points), max(y for _, y in points)

    def line(curve: Sequence[Sequence[float | None]], kind: str, seed: int) -> str:
        at = " ".join(
            f"{LEFT + (x or 0) / most * (WIDTH - LEFT - MARGIN):.1f},"
            f"{MARGIN + (high - (y or 0)) / ((high - low) or 1) * (HEIGHT - BOTTOM - MARGIN):.1f}"
            for x, y, *_ in curve
        )
        return f'<polyline class="{kind} seed-{seed % SEED_COLOURS}" points="{at}"/>'

    lines = [
        line(cell.training, "training", i) + line(cell.validation, "validation", i) for i, cell in enumerate(drawn)
    ]
    return (
        f'<svg class="curve" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="loss over training tokens">'
        f'<path class="axis" d="M{LEFT} {MARGIN}V{HEIGHT - BOTTOM}H{WIDTH - MARGIN}"/>{"".join(lines)}'
        f'<text x="2" y="{MARGIN + 8}">{high:.2f}</text><text x="2" y="{HEIGHT - BOTTOM}">{low:.2f}</text>'
        f'<text x="{WIDTH - MARGIN}" y="{HEIGHT - 8}" text-anchor="end">{most:,.0f} tokens</text>'
        f'<text x="{LEFT}" y="{HEIGHT - 8}">nats a token: thin training, thick validation; a colour a seed</text></svg>'
    )


def _samples(cell: CellData) -> str:
    shown = "".join(f"<pre><b>{html.escape(s['prompt'])}</b>{html.escape(s['text'])}</pre>" for s in cell.samples)
    return f"<details><summary>what it writes, {html.escape(cell.name)}</summary>{shown}</details>"


def _conditions(cells: Sequence[CellData]) -> str:
    """Seed, commit, versions and data of its runs; those that are the same in all once."""
    names = list(dict.fromkeys(name for cell in cells for name in cell.conditions))
    values = {name: "; ".join(dict.fromkeys(cell.conditions.get(name, "–") for cell in cells)) for name in names}
    lines = [f"<li>{html.escape(name)}: {html.escape(value)}</li>" for name, value in values.items()]
    return f"<details><summary>commit, versions, data</summary><ul>{''.join(lines)}</ul></details>" if lines else ""
