"""A table of a study's report as values, which the page and the Markdown file both are made from."""

from __future__ import annotations

import html
from dataclasses import dataclass

from jaxlm.study import tables
from jaxlm.study.estimates import Measured


@dataclass(frozen=True)
class Entry:
    """What one field of a table shows.

    Attributes:
      text: as people read it.
      value: what the column is sorted by; None sorts by the text, behind all numbers.
      row: the row of the study whose details it leads to, or "".
    """

    text: str
    value: float | None = None
    row: str = ""


@dataclass(frozen=True)
class Table:
    """Columns and rows. `numbers_from` is the first column that is aligned to the right; `name` is unique."""

    name: str
    header: tuple[str, ...]
    rows: tuple[tuple[Entry, ...], ...]
    numbers_from: int = 1


def text(words: str) -> Entry:
    """Words."""
    return Entry(words or "–")


def row_link(name: str) -> Entry:
    """A row's name, which leads to its details."""
    return Entry(name, row=name)


def number(value: float | None, digits: int = 2) -> Entry:
    """A number, or a dash where there is none."""
    return Entry(tables.number(value, digits), value)


def interval(measured: Measured | None, digits: int = 2) -> Entry:
    """A value with the half width of its 95 % interval."""
    if measured is None:
        return number(None)
    return Entry(tables.number(measured.value, digits, measured.half_width), measured.value)


def anchor(row: str) -> str:
    """The id of a row's details: what an address may hold of its name."""
    return "row-" + "".join(c if c.isascii() and (c.isalnum() or c in "-_.") else f"~{ord(c):x}" for c in row)


def markdown(table: Table) -> list[str]:
    """Lines of a Markdown table."""
    rows = [[tables.text_cell(entry.text) for entry in row] for row in table.rows]
    return tables.table(table.header, rows, table.numbers_from)


def page(table: Table) -> str:
    """An HTML table whose columns can be sorted, in a box of its own that scrolls."""
    head = "".join(
        f'<th scope="col"{_class(table, i)} aria-sort="none"><button type="button">{html.escape(name)}</button></th>'
        for i, name in enumerate(table.header)
    )
    body = "".join(f"<tr>{''.join(_field(table, i, e) for i, e in enumerate(row))}</tr>\n" for row in table.rows)
    return (
        f'<div class="scroll" tabindex="0" role="region" aria-label="{html.escape(table.name)}">'
        f'<table id="{html.escape(table.name)}">\n<thead><tr>{head}</tr></thead>\n<tbody>\n{body}</tbody></table></div>'
    )


def _field(table: Table, column: int, entry: Entry) -> str:
    value = "" if entry.value is None else f' data-value="{entry.value!r}"'
    shown = html.escape(entry.text)
    if entry.row:
        shown = f'<a href="#{anchor(entry.row)}">{shown}</a>'
    return f"<td{_class(table, column)}{value}>{shown}</td>"


def _class(table: Table, column: int) -> str:
    return ' class="number"' if column >= table.numbers_from else ""
