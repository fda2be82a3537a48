"""Studies and runs of one's own, from any directories, as one study."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from jaxlm.errors import UserError
from jaxlm.evaluation import averages
from jaxlm.study import cells, results
from jaxlm.study.cells import FINISHED, Cell, Result, Study
from jaxlm.study.rows import Row
from jaxlm.study_config import EvaluateConfig, StudyConfig, usable

GROUP = "runs"  # that plain workdirs are compared in


def gather(paths: Sequence[str | Path]) -> Study:
    """The rows of all of them; a name that two of them have is preceded by what tells their directories apart.

    One study alone is that study. Workdirs of `train` and `convert` become rows that are compared with the first of
    them, by the study's mean where there is one, else by the tasks that all of them were asked.
    Raises UserError for a directory that is neither, or is there twice.
    """
    if not paths:
        raise UserError("--report names no directory, allowed: studies and workdirs, separated by commas")
    directories = [Path(path) for path in paths]
    where = [path.resolve() for path in directories]
    for path, place in zip(directories, where, strict=True):
        if not path.is_dir():
            raise UserError(f"--report has {path}, which is no directory, allowed: a study's, or a run's --workdir")
        if where.count(place) > 1:
            raise UserError(f"--report names {path} twice, allowed: each directory once")
    parts = [cells.read(path) if (path / cells.STUDY).is_file() else _run(path) for path in directories]
    if len(parts) == 1:
        return parts[0]
    counts = Counter(name for part in parts for name in part.rows)
    groups = Counter(group for part in parts if not _is_plain(part) for group in part.groups)
    groups[GROUP] += any(map(_is_plain, parts))
    before = _told_apart([place.parts for place in where])
    named = [_renamed(part, counts, groups, first) for part, first in zip(parts, before, strict=True)]
    plain = [name for part in named if _is_plain(part) for name in part.rows]
    studies = [part for part in named if not _is_plain(part)]
    kept = [line for part in studies for line in part.config.groups]
    found = tuple(result for part in named for result in part.results)
    config = StudyConfig(
        title=" beside ".join(str(path) for path in directories),
        groups=(*kept, *([f"{GROUP}: {' '.join(plain)}"] if plain else [])),
        evaluate=studies[0].config.evaluate if studies else EvaluateConfig(mean=_mean(found)),
    )
    return Study(directories[0], config, {name: row for part in named for name, row in part.rows.items()}, found)


def _is_plain(part: Study) -> bool:
    """Whether it is a workdir of one run."""
    return not (part.workdir / cells.STUDY).is_file()


def _run(path: Path) -> Study:
    """A workdir as a study of one row."""
    run = results.read(path)
    row = Row(_word(path.resolve().name), "", run.kind, run.config)
    result = Result(Cell(row, run.config.seed), path, FINISHED, "", run, None, {})
    config = StudyConfig(
        title=path.name, groups=(f"{GROUP}: {row.name}",), evaluate=EvaluateConfig(mean=_mean([result]))
    )
    return Study(path, config, {row.name: row}, (result,))


def _mean(found: Sequence[Result]) -> str:
    """The first of the known means that every run has, else that of the tasks they share."""
    for name in averages.MEANS:
        if all(result.run and name in averages.present(result.run.benchmarks or {}) for result in found):
            return name
    shared = [task for task in found[0].tasks if all(task in result.tasks for result in found)]
    return ",".join(shared) or EvaluateConfig().mean


def _told_apart(places: Sequence[tuple[str, ...]]) -> list[str]:
    """As many of the last parts of each path as it takes to tell all apart, as a word."""
    most = max(map(len, places))
    for length in range(1, most + 1):
        names = [_word("/".join(parts[-length:])) for parts in places]
        if len(set(names)) == len(names):
            return names
    return [f"{_word(parts[-1])}.{number}" for number, parts in enumerate(places)]


def _word(name: str) -> str:
    """A name as groups and lines can have it."""
    return "".join(c if usable(f"_{c}") else "." if c == "/" else "_" for c in name)


def _renamed(part: Study, counts: Counter[str], groups: Counter[str], before: str) -> Study:
    """The same with `before` in front of each name that another part has, too."""
    is_plain = _is_plain(part)

    def new(name: str) -> str:
        if counts[name] < 2:
            return name
        return before if is_plain else f"{before}.{name}"  # a workdir is its only row

    rows = {
        new(name): dataclasses.replace(
            row, name=new(name), source=new(row.source) if row.source in part.rows else row.source
        )
        for name, row in part.rows.items()
    }
    found = tuple(
        dataclasses.replace(result, cell=dataclasses.replace(result.cell, row=rows[new(result.cell.row.name)]))
        for result in part.results
    )
    lines = tuple(
        f"{group if groups[group] < 2 else f'{before}.{group}'}: {' '.join(map(new, members))}"
        for group, members in part.groups.items()
    )
    return Study(part.workdir, dataclasses.replace(part.config, rows=(), groups=lines), rows, found)
