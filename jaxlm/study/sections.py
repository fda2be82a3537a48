"""The sections of a study's report in their order, which the page and the Markdown file share."""

from __future__ import annotations

from dataclasses import dataclass

from jaxlm.study import run_tables, study_tables
from jaxlm.study.estimates import LEVEL
from jaxlm.study.report_table import Table
from jaxlm.study.study_data import StudyData


@dataclass(frozen=True)
class Section:
    """A heading with paragraphs, tables under titles ("" for none), and pictures by name."""

    name: str
    title: str
    paragraphs: tuple[str, ...] = ()
    tables: tuple[tuple[str, Table], ...] = ()
    pictures: tuple[str, ...] = ()


def sections(data: StudyData) -> list[Section]:
    """All that have something to show."""
    published = data.published
    compared = tuple(
        (study_tables.group_summary(name, found, data.lacking.get(name, "")), study_tables.differences(name, found))
        for name, found in data.comparisons.items()
        if found
    )
    failed = run_tables.failures(data)
    beside = study_tables.beside_published
    found = [
        Section("failed", "What failed", tables=(("", failed),)) if failed.rows else None,
        Section(
            "published",
            "Published beside measured",
            (_INTERVALS, _MEANS, *study_tables.own_mean_note(data), _OUTSIDE),
            (
                ("The sweep: depth against width", beside(data, "sweep", published.sweep)),
                ("The families", beside(data, "families", published.families)),
                ("Mixes of data", run_tables.mixes(data)),
            ),
        ),
        Section("answers", "Claims and answers", (_CLAIMS,), (("", study_tables.claims(data)),)),
        Section("two-means", "The two means of the published tables", tuple(published.findings)),
        Section("pictures", "Pictures", (_PICTURES,), pictures=tuple(PICTURES)),
        Section("by-task", "Tasks", (_TASKS,), (("", study_tables.by_task(data)),)),
        Section("differences", "Differences", (_DIFFERENCES,), compared) if compared else None,
        Section("writing", "How fast they write", (_DECODING,), (("", run_tables.decoding(data)),)),
        Section("all-rows", "Rows", _rows(data), (("", study_tables.all_rows(data)),)),
        Section("cost", "What it cost", (_COSTS,), (("", run_tables.costs(data)),)),
    ]
    return [section for section in found if section is not None]


def _rows(data: StudyData) -> tuple[str, ...]:
    shared = study_tables.shared_flags(data)
    return (f"Every command with a configuration also has: {' '.join(shared)}",) if shared else ()


PICTURES = {
    "data_composition": "Composition of the training text",
    "two_tiers": "Two tiers: means in order",
    "hidden_threshold": "Means over the hidden size",
    "depth": "Means over the number of layers",
    "throughput_accuracy": "Tokens per second against the mean",
    "task_breakdown": "Tasks",
    "conversion": "What a conversion saves",
    "radar": "Tasks, as a radar",
}
_INTERVALS = (
    f"± is half the width of a {100 * LEVEL:.0f} % interval: items are a draw of those that might be asked, and "
    "the variance of seeds is pooled over all rows. Where every row has one seed it counts items alone."
)
_MEANS = (
    "A mean over six tasks and one over seven are different quantities, five points apart for the same model, because "
    "chance on GSM8K is 0. Each has its own column, and a mean that lacks a task is not shown."
)
_OUTSIDE = "Rows outside of the study's budget of parameters are marked (outside)."
_PICTURES = "Left what is published, right what was measured here. A panel without values says what is missing."
_TASKS = (
    "Points; 100 is every item right. Length only gives every token the same likelihood, random init is the same "
    "architecture with fresh parameters; a dash was not asked. A score that is not above chance and both of these says "
    "nothing about what a model knows."
)
_DIFFERENCES = (
    "Rows of a group against its first one, by a paired bootstrap over items with seeds as a random effect. Corrected "
    "p-values are Holm's within a group and measure. Neighbouring windows share documents, so bits per byte are drawn "
    "in up to 64 stretches of them. Where rows ran at other learning rates, each is set against itself at its own."
)
_CLAIMS = "Each published claim as a hypothesis. Not tested means that this study lacks what the answer needs."
_DECODING = (
    "Batch 1; medians over seeds. Published figures are from one A40 with another library: no absolute number "
    "of theirs compares with one of ours. Memory measured is weights, cache and logits."
)
_COSTS = "Means over seeds, in seconds of this machine. Tokens are a row's own, without what it started from."
