"""All that a study's report shows, as plain values: `data.json` holds them, pages and pictures are made of them."""

from __future__ import annotations

import dataclasses
import datetime
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from jaxlm import fields
from jaxlm.evaluation import averages
from jaxlm.study import claims, comparisons, published, published_means
from jaxlm.study.cell_data import CellData, cell_data
from jaxlm.study.cells import BROKEN, FINISHED, LEFT_EMPTY, Result, Study
from jaxlm.study.claims import Answer
from jaxlm.study.comparisons import Difference
from jaxlm.study.conversion_cost import compare, validation_curve
from jaxlm.study.estimates import Measured, of_rows
from jaxlm.study.measures import BITS
from jaxlm.study.published import Mix, Published, Speed
from jaxlm.study.report import POCKET_PARAMETERS

POCKET = (
    f"All rows of this study are pocket rows, below {POCKET_PARAMETERS // 1_000_000}M parameters: they test the "
    "machinery and not the claims. Nothing here says which architecture is better."
)


_OF_CLAIM = ("id", "text", "source", "published")


@dataclass(frozen=True)
class RowData:
    """A row of the study, at one learning rate.

    Attributes:
      name: its own, with the learning rate where that is not its own.
      row: its own, without.
      kind: `train`, `convert`, `read`, `import`, or "" for an empty row.
      command: that makes it.
      groups: that it is compared in.
      parameters: all of them; None before it has run.
      is_in_range: whether these are within the study's budget; None where they are not known.
      reference: the row that its configuration is compared with, or "".
      differences: the fields that differ from there, with both values.
      config: resolved; None of a row without.
      measured: by measure, see `estimates`.
      sources: share of tokens of each source of the text that it was trained on.
    """

    name: str
    row: str
    kind: str
    command: str
    groups: tuple[str, ...]
    parameters: int | None
    is_in_range: bool | None
    reference: str
    differences: tuple[str, ...]
    config: Mapping[str, Any] | None
    measured: Mapping[str, Measured]
    sources: Mapping[str, float]


@dataclass(frozen=True)
class Conversion:
    """Validation ELBO over tokens, as (tokens, nats a token): of a conversion, and of diffusion from scratch."""

    name: str
    seed: int
    tokens_before: int | None
    converted: tuple[tuple[int, float], ...]
    same_tokens: tuple[tuple[int, float], ...]
    longest: tuple[tuple[int, float], ...]


@dataclass(frozen=True)
class PublishedData:
    """What the study's author published, see `jaxlm.study.published`."""

    sweep: tuple[Published, ...]
    families: tuple[Published, ...]
    throughput: tuple[Speed, ...]
    mixes: tuple[Mix, ...]
    conversion: Mapping[str, Mapping[str, float]]
    findings: tuple[str, ...]


@dataclass(frozen=True)
class StudyData:
    """A report. `is_pocket`: every row that has run is below 10M parameters. `mean` is what rows are ranked by."""

    title: str
    made_at: str
    is_pocket: bool
    opening: tuple[str, ...]
    mean: str
    truth: str
    tasks: tuple[str, ...]
    rows: tuple[RowData, ...]
    cells: tuple[CellData, ...]
    comparisons: Mapping[str, tuple[Difference, ...]]
    lacking: Mapping[str, str]
    claims: tuple[Answer, ...]
    conversions: tuple[Conversion, ...]
    published: PublishedData

    def cells_of(self, row: RowData) -> list[CellData]:
        """The seeds of a row."""
        return [cell for cell in self.cells if cell.row == row.name]

    def row(self, name: str) -> RowData | None:
        """A row by its name; None where there is none."""
        return next((row for row in self.rows if row.name == name), None)

    def measured(self, row: str, measure: str) -> Measured | None:
        """What a row scored; None where there is no such row, or it was not asked."""
        found = self.row(row)
        return found.measured.get(measure) if found else None

    def to_json(self) -> dict[str, Any]:
        """Plain values, as `data.json` holds them."""
        answers = [
            {
                "claim": {key: getattr(answer.claim, key) for key in _OF_CLAIM},
                "verdict": answer.verdict,
                "words": answer.words,
                "differences": [dataclasses.asdict(one) for one in answer.differences],
            }
            for answer in self.claims
        ]
        # A claim carries the function that tests it, which is no plain value.
        return dataclasses.asdict(dataclasses.replace(self, claims=())) | {"claims": answers}


def study_data(study: Study) -> StudyData:
    """The data of a study's report."""
    by_row = _by_row(study)
    tasks = tuple(dict.fromkeys(task for result in study.results for task in result.tasks))
    mean = study.config.evaluate.mean
    measures = dict.fromkeys((mean, *averages.MEANS, *tasks, BITS))
    estimates = {measure: of_rows(by_row, measure) for measure in measures}
    rows = tuple(
        _row(study, name, results, {m: found[name] for m, found in estimates.items() if name in found})
        for name, results in by_row.items()
    )
    cells = tuple(cell_data(result, name) for name, results in by_row.items() for result in results)
    sizes = [row.parameters for row in rows if row.parameters is not None]
    is_pocket = bool(sizes) and max(sizes) < POCKET_PARAMETERS
    compared = comparisons.Comparisons(study)
    return StudyData(
        title=study.config.title or study.workdir.name,
        made_at=datetime.datetime.now(datetime.UTC).isoformat(timespec="minutes"),
        is_pocket=is_pocket,
        opening=(*([POCKET] if is_pocket else []), *_opening(rows, cells)),
        mean=mean,
        truth=study.config.evaluate.truth,
        tasks=tasks,
        rows=rows,
        cells=cells,
        comparisons={name: tuple(found) for name, found in comparisons.groups(compared).items()},
        lacking=comparisons.lacking(compared),
        claims=tuple(claims.answers(compared)),
        conversions=_conversions(study),
        published=PublishedData(
            tuple(published.SWEEP),
            tuple(published.FAMILIES),
            tuple(published.THROUGHPUT),
            tuple(published.MIXES),
            published.CONVERSION,
            tuple(published_means.FINDINGS),
        ),
    )


def _by_row(study: Study) -> dict[str, list[Result]]:
    """The seeds of each row and learning rate, by the name that the report gives them."""
    found: dict[str, list[Result]] = {}
    for result in study.results:
        rate = result.cell.learning_rate
        name = result.cell.row.name + ("" if rate is None else f", rate {rate:g}")
        found.setdefault(name, []).append(result)
    return found


def _row(study: Study, name: str, results: Sequence[Result], measured: Mapping[str, Measured]) -> RowData:
    row = results[0].cell.row
    run = next((result.run for result in results if result.run is not None), None)
    parameters = run.manifest.get("parameters", {}).get("total") if run else None
    config = study.config
    groups = {group: members for group, members in study.groups.items() if row.name in members}
    reference = next((members[0] for members in groups.values() if members[0] != row.name), "")
    ours, theirs = row.config, study.rows[reference].config if reference else None
    statistics = run.statistics if run else None
    return RowData(
        name=name,
        row=row.name,
        kind=row.kind,
        command=row.command,
        groups=tuple(groups),
        parameters=parameters,
        is_in_range=None if parameters is None else config.smallest <= parameters <= config.largest,
        reference=reference if ours and theirs else "",
        differences=tuple(fields.differences(theirs, ours)) if ours and theirs else (),
        config=fields.to_dict(ours) if ours else None,
        measured=measured,
        sources={source: part["tokens"] / statistics["tokens"] for source, part in statistics["by_source"].items()}
        if statistics and statistics["tokens"]
        else {},
    )


def _opening(rows: Sequence[RowData], cells: Sequence[CellData]) -> list[str]:
    """What ran, when, on what, what failed and what is missing: a sentence each."""
    done = [cell for cell in cells if cell.status == FINISHED]
    ran = {cell.row for cell in done}
    seeds = sorted({cell.seed for cell in done})
    out = [f"{len(ran)} of {len(rows)} rows have run, in {len(done)} runs; seeds: {_list(seeds)}."]
    if days := sorted({cell.evaluated_at[:10] for cell in done if cell.evaluated_at}):
        out.append(f"They were evaluated from {days[0]} to {days[-1]} (UTC).")
    for what, key in (("Machine", "device"), ("System", "platform"), ("Code", "code"), ("jax", "jax")):
        if values := dict.fromkeys(cell.conditions[key] for cell in done if key in cell.conditions):
            out.append(f"{what}: {_list(values)}.")
    for status, words in ((BROKEN, "Failed, and why is told below"), (LEFT_EMPTY, "Empty, for nothing is known of it")):
        if names := dict.fromkeys(cell.row for cell in cells if cell.status == status):
            out.append(f"{words}: {_list(names)}.")
    missing: dict[str, list[CellData]] = {}
    for cell in cells:
        if cell.status not in (FINISHED, BROKEN, LEFT_EMPTY):
            missing.setdefault(cell.row, []).append(cell)
    if missing:
        unfinished = [row if row not in ran else _list(cell.name for cell in of) for row, of in missing.items()]
        out.append(f"Not finished: {_list(unfinished)}.")
    return out


def _list(values: Any) -> str:
    return "; ".join(str(value) for value in values) or "none"


def _conversions(study: Study) -> tuple[Conversion, ...]:
    runs = [r.run for r in study.results if r.run is not None and r.cell.row.kind != "read"]
    return tuple(
        Conversion(
            found.conversion.name,
            found.conversion.config.seed,
            found.tokens_before,
            tuple(validation_curve(found.conversion)),
            tuple(validation_curve(found.same_budget)) if found.same_budget else (),
            tuple(validation_curve(found.longest)) if found.longest else (),
        )
        for found in compare(runs)
    )
