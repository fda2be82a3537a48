"""The tables of a study's report on its runs: what they cost, how fast they write, which failed, what they read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import mean, median
from typing import Any

from jaxlm.study.cell_data import CellData
from jaxlm.study.cells import BROKEN
from jaxlm.study.measures import BITS
from jaxlm.study.published import Speed
from jaxlm.study.report_table import Entry, Table, interval, number, row_link, text
from jaxlm.study.study_data import StudyData

HOUR = 3600.0


def costs(data: StudyData) -> Table:
    """Seconds by step, tokens and speed of each row, seeds averaged."""
    steps = tuple(dict.fromkeys(step for cell in data.cells for step in cell.seconds))
    header = ("row", "tokens", "tokens/s in training", *(f"{step} (s)" for step in steps), "all (s)", "all (hours)")
    lines = []
    for row in data.rows:
        cells = [cell for cell in data.cells_of(row) if cell.seconds or cell.tokens]
        if not cells:
            continue
        total = _mean([sum(cell.seconds.values()) for cell in cells if cell.seconds])
        lines.append(
            (
                row_link(row.name),
                number(_mean([cell.tokens for cell in cells]), 0),
                number(_mean([cell.train_tokens_per_sec for cell in cells]), 0),
                *(number(_mean([cell.seconds.get(step) for cell in cells]), 1) for step in steps),
                number(total, 1),
                number(None if total is None else total / HOUR, 3),
            )
        )
    return Table("costs", header, tuple(lines))


def decoding(data: StudyData) -> Table:
    """How fast rows write at batch 1, published and measured; medians over seeds."""
    figures = {one.row: one for one in data.published.throughput}
    header = (
        *("row", "tokens/s, published", "tokens/s, measured", "first token, published (ms)"),
        *("first token, measured (ms)", "memory, published (GB)", "memory, measured (GB)", "passes", "measured on"),
    )
    names = dict.fromkeys((*(row.name for row in data.rows), *figures))
    lines = []
    for name in names:
        row, figure = data.row(name), figures.get(name)
        cells = [cell for cell in data.cells_of(row) if cell.decode] if row else []
        if cells or figure:
            lines.append((row_link(name) if row else text(name), *_decoding(cells, figure)))
    return Table("decoding", header, tuple(lines))


def _decoding(cells: Sequence[CellData], figure: Speed | None) -> list[Entry]:
    records = [cell.decode for cell in cells if cell.decode]
    machines = dict.fromkeys(str(record["conditions"]["device_kind"]) for record in records)
    return [
        number(figure.tokens_per_sec if figure else None, 1),
        number(decoded(records, "tokens_per_sec"), 1),
        number(figure.first_token_ms if figure else None, 1),
        number(decoded(records, "seconds_to_first_token", 1e3), 2),
        number(figure.memory_gb if figure else None, 4),
        number(decoded(records, "memory_bytes", 1e-9), 4),
        number(decoded(records, "passes"), 0),
        text(", ".join(machines)),
    ]


def decoded(records: Sequence[Mapping[str, Any]], key: str, scale: float = 1.0) -> float | None:
    """The median over seeds of one number of `decode.json`; None where none was measured."""
    values = [scale * record[key] for record in records if record.get(key) is not None]
    return median(values) if values else None


def failures(data: StudyData) -> Table:
    """Runs that stopped, and why."""
    lines = tuple(
        (row_link(cell.row), text(cell.name), text(cell.error)) for cell in data.cells if cell.status == BROKEN
    )
    return Table("failures", ("row", "run", "step and error"), lines, 3)


def mixes(data: StudyData) -> Table:
    """Published mixes of data with their perplexity, and the bits per byte of our rows on the study's text."""
    header = ("row", "published as", "shares", "perplexity, published", "bits per byte, measured", "evidence")
    lines = []
    for one in data.published.mixes:
        row, bits = data.row(one.row), data.measured(one.row, BITS)
        shares = ", ".join(f"{name} {100 * share:.0f} %" for name, share in one.shares.items())
        measured = interval(bits, 3)
        lines.append(
            (row_link(one.row) if row else text(one.row), text(one.label), text(shares), number(one.perplexity),
             measured, text(one.evidence))
        )  # fmt: skip
    return Table("mixes", header, tuple(lines), 3)


def _mean(values: Sequence[float | None]) -> float | None:
    """Over those that are known; None without any."""
    known = [value for value in values if value is not None]
    return mean(known) if known else None
