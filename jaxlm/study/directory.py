"""The directory of a study: it belongs to one study, to which more may be added."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from jaxlm import fields
from jaxlm.errors import UserError
from jaxlm.lock import awaited
from jaxlm.study.cells import STUDY
from jaxlm.study_config import StudyConfig, name_of
from jaxlm.training.workdir import read_json, write_json

LOCK = "lock"


def enter(config: StudyConfig, workdir: Path, report: Callable[[str], None]) -> None:
    """Makes the directory, or finds that it is of this study, and writes what it now is to study.json.

    More rows, groups, data, seeds and learning rates are added to those that are there, so that several processes may
    each do a part; title and marks are those of `config`. Raises UserError, and writes nothing, for another
    study: rows or data of one name that differ, another first data, another evaluation or other decoding.
    """
    path = workdir / STUDY
    if not path.is_file() and workdir.exists() and (not workdir.is_dir() or _strangers(workdir)):
        raise UserError(f"--workdir={workdir} holds something else, allowed: a new or empty directory, or a study's")
    workdir.mkdir(parents=True, exist_ok=True)
    with awaited(workdir / LOCK, f"--workdir={workdir}", report):
        if not path.is_file():
            write_json(path, fields.to_dict(config))
            return
        there: StudyConfig = fields.build(StudyConfig, read_json(path))
        if different := _differences(there, config):
            raise UserError(f"--workdir={workdir} is another study; these differ: {', '.join(different)}")
        write_json(path, fields.to_dict(_joined(there, config)))


def _strangers(workdir: Path) -> bool:
    """Whether there is anything but the lock, and a study.json that a process which was killed had not finished."""
    return any(file.name != LOCK and not file.name.startswith(f"{STUDY}.tmp") for file in workdir.iterdir())


def _differences(there: StudyConfig, here: StudyConfig) -> list[str]:
    out = []
    for kind in ("data", "rows"):
        before, now = ({name_of(line): line for line in getattr(config, kind)} for config in (there, here))
        out += [f"{kind} {name!r}" for name in before if _words(before[name]) != _words(now.get(name, before[name]))]
    first = [name_of(config.data[0]) if config.data else "none" for config in (there, here)]
    if first[0] != first[1]:
        out.append(f"the first data ({first[0]} there, {first[1]} here), on which losses are compared")
    out += fields.differences(there.evaluate, here.evaluate, "evaluate.")
    if there.decode.rounds or there.decode.samples:
        out += fields.differences(there.decode, here.decode, "decode.")
    return out


def _words(line: str) -> list[str]:
    return line.split()  # the space between them says nothing


def _joined(there: StudyConfig, here: StudyConfig) -> StudyConfig:
    """`here`, with what only `there` is behind it."""
    values: dict[str, tuple[Any, ...]] = {}
    for kind in ("data", "rows", "groups"):
        now = getattr(here, kind)
        names = [name_of(line) for line in now]
        values[kind] = (*now, *(line for line in getattr(there, kind) if name_of(line) not in names))
    for name in ("seeds", "learning_rates"):
        values[name] = tuple(dict.fromkeys((*getattr(there, name), *getattr(here, name))))
    built: StudyConfig = fields.build(StudyConfig, fields.to_dict(here) | values)
    return built
