"""The shipped studies: the pocket's rows are the paper's, small; budgets are matched."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from jaxlm import command_line
from jaxlm.families import build_model
from jaxlm.sizing import budget
from jaxlm.study import rows
from jaxlm.study_config import StudyConfig, name_of
from jaxlm.training import flops

MATCHED = 20  # three budgets of six depths, two vocabularies; without the chapter's shape


@cache
def config_of(name: str) -> StudyConfig:
    return command_line.load_config(f"configs/study/{name}.py", [], StudyConfig)


@cache
def pocket_rows() -> dict[str, rows.Row]:
    return rows.read(config_of("pocket"))


def test_the_pocket_has_the_rows_data_and_groups_of_the_paper() -> None:
    paper, pocket = config_of("paper"), config_of("pocket")
    for kind in ("rows", "data"):
        assert [*map(name_of, getattr(paper, kind))] == [*map(name_of, getattr(pocket, kind))]
    assert paper.groups == pocket.groups


def test_every_pocket_row_has_at_most_a_million_parameters() -> None:
    for row in pocket_rows().values():
        if row.config is not None:
            assert flops.parameter_counts(build_model(row.config.model))["total"] <= 1_000_000, row.name


def test_matched_rows_cost_what_their_reference_does() -> None:
    found = pocket_rows()
    matched = [
        (row, word.split("=")[1].split(":"))
        for row in found.values()
        for word in row.command.split()
        if "--match=" in word
    ]
    assert len(matched) == MATCHED + 1
    for row, (what, reference) in matched:
        target, config = found[reference].config, row.config
        assert target is not None and config is not None
        assert abs(budget.cost(config, what) / budget.cost(target, what) - 1) <= budget.TOLERANCE, row.name


def test_paths_of_the_pocket_are_those_of_the_checkout() -> None:
    assert all(
        Path(word.split("=")[1]).is_file()
        for line in config_of("pocket").data
        for word in line.split()
        if word.startswith("--config=")
    )
