"""What `study --list` says: each row with its size and what one run of it costs, and what all runs cost together."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from jaxlm.study import cells, costs
from jaxlm.study.costs import Cost
from jaxlm.study.rows import CONVERT, Row
from jaxlm.study_config import StudyConfig

PAID = "a40"  # the study's own GPU, which the price is for


def as_json(config: StudyConfig, rows: Mapping[str, Row], price: float, workdir: Path | None = None) -> dict[str, Any]:
    """The object that `--list --json` prints.

    `rows`: for each `name, command, groups, kind, runs, seeds, parameters, active, in_range, tokens, train_flops,
    evaluation_flops, flops, hours_a40, hours_h200, dollars` of one run (null where there is nothing to run or to
    count), `uncounted_tasks`, of a conversion `with_source` (the same figures with the run that it starts from), and
    with a `workdir` the `status` of its cells. `totals`: over all runs. `assumptions`: what hours and dollars rest on.

    Args:
      config: of the study.
      rows: those that are listed, and those that they start from, by name.
      price: dollars for an hour of an A40.
      workdir: of a study that was begun, or None.
    """
    found = costs.of_rows(config, rows, list(rows))
    by_name = {cost.row.name: cost for cost in found}
    states = _states(config, rows, workdir)
    listed = []
    for cost in found:
        line = {
            "name": cost.row.name,
            "command": cost.row.command,
            "groups": list(cost.groups),
            "kind": cost.row.kind,
            "runs": cost.runs,
            "seeds": _seeds(config, rows, cost),
            "parameters": cost.parameters,
            "active": cost.active,
            "in_range": cost.is_in_range,
            "uncounted_tasks": list(cost.uncounted),
            **_figures(cost, price),
        }
        if cost.row.kind == CONVERT:
            line["with_source"] = _figures(costs.with_source(cost, by_name), price)
        if workdir is not None:
            line["status"] = states[cost.row.name]
        listed.append(line)
    sums = ("tokens", "flops", "hours_a40", "hours_h200", "dollars")
    totals = {name: sum((line[name] or 0) * line["runs"] for line in listed) for name in sums}
    return {
        "rows": listed,
        "totals": {"rows": len(listed), "runs": sum(cost.runs for cost in found), **totals},
        "assumptions": {
            "mfu": costs.MFU,
            "evaluation_mfu": costs.EVALUATION_MFU,
            "price_per_hour": price,
            "priced_gpu": PAID,
            "peak_flops": dict(costs.GPUS),
        },
    }


def table(config: StudyConfig, rows: Mapping[str, Row], price: float, workdir: Path | None = None) -> str:
    """The same as a person reads it."""
    found = as_json(config, rows, price, workdir)
    header = ("row", "parameters", "tokens", "PFLOP", "A40 (h)", "H200 (h)", "dollars", "runs")
    lines = [_line(header) + ("  status" if workdir is not None else "")]
    for row in found["rows"]:
        lines.append(_row(row["name"], row, row["in_range"]) + (f"  {row['status']}" if "status" in row else ""))
        if "with_source" in row:
            lines.append(_row("  and its AR base", {**row, **row["with_source"], "runs": ""}, True))
    totals, assumed = found["totals"], found["assumptions"]
    return "\n".join(
        [
            *lines,
            "",
            _row(f"{totals['rows']} rows, all runs", {"parameters": None, **totals}, True),
            "",
            f"Of one run each, evaluation included. {assumed['mfu']:.0%} MFU of the dense bf16 peak in training, "
            f"{assumed['evaluation_mfu']:.0%} in evaluation, whose work is estimated; ${price:g} an hour of an A40. "
            f"* is outside of {config.smallest / 1e6:g}M to {config.largest / 1e6:g}M parameters.",
            *_uncounted(found["rows"]),
        ]
    )


def _figures(cost: Cost, price: float) -> dict[str, Any]:
    if not cost.runs or cost.parameters is None:
        names = ("tokens", "train_flops", "evaluation_flops", "flops", "hours_a40", "hours_h200", "dollars")
        return dict.fromkeys(names)
    return {
        "tokens": cost.tokens,
        "train_flops": cost.training,
        "evaluation_flops": cost.evaluation,
        "flops": cost.training + cost.evaluation,
        **{f"hours_{gpu}": cost.hours(gpu) for gpu in costs.GPUS},
        "dollars": price * cost.hours(PAID),
    }


def _seeds(config: StudyConfig, rows: Mapping[str, Row], cost: Cost) -> list[int]:
    return list(dict.fromkeys(cell.seed for cell in cells.cells(config, rows, [cost.row.name]))) if cost.runs else []


def _states(config: StudyConfig, rows: Mapping[str, Row], workdir: Path | None) -> dict[str, str]:
    """How many cells of each row are in which state."""
    out = {}
    for name in rows if workdir is not None else ():
        assert workdir is not None  # or there is nothing to go through
        found = [cells.result(workdir, cell, rows, config).status for cell in cells.cells(config, rows, [name])]
        out[name] = ", ".join(f"{found.count(state)} {state}" for state in dict.fromkeys(found))
    return out


def _row(name: str, row: Mapping[str, Any], in_range: bool | None) -> str:
    parameters = "-" if row["parameters"] is None else f"{row['parameters']:,}{' ' if in_range else '*'}"
    if row["flops"] is None:
        return _line((name, parameters, *["-"] * 5, str(row["runs"])))
    figures = (f"{row['flops'] / 1e15:,.3g}", *(f"{row[key]:,.2f}" for key in ("hours_a40", "hours_h200", "dollars")))
    return _line((name, parameters, f"{row['tokens']:,}", *figures, str(row["runs"])))


def _line(words: tuple[str, ...]) -> str:
    widths = (24, 14, 17, 10, 10, 10, 10, 6)
    first = f"{words[0]:<{widths[0]}}"
    return first + "".join(f"{word:>{width}}" for word, width in zip(words[1:], widths[1:], strict=True))


def _uncounted(rows: list[dict[str, Any]]) -> list[str]:
    names = dict.fromkeys(name for row in rows for name in row["uncounted_tasks"])
    imported = [row["name"] for row in rows if row["runs"] and row["flops"] is None]
    return [
        *([f"Not counted, for their size is not known here: {', '.join(names)}."] if names else []),
        *([f"Not counted, for what is imported is not known before: {', '.join(imported)}."] if imported else []),
    ]
