"""The text of a study: its data, prepared when a row asks for them, and the tasks that are made from held-out text."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Sequence
from pathlib import Path

from jaxlm import command_line
from jaxlm.benchmarks.conditions import cores
from jaxlm.config import PrepareConfig
from jaxlm.data.prepare import prepare
from jaxlm.data.windows import read_fingerprint
from jaxlm.errors import UserError
from jaxlm.evaluation import held_out_tasks
from jaxlm.lock import awaited
from jaxlm.study.cells import DATA, data_directory
from jaxlm.study_config import StudyConfig, name_of, named

TASKS = "tasks"
FOLDER = "{data}"  # in a line: the folder of all data, as in --config.tokenizer={data}/base/tokenizer


class Texts:
    """The lines `NAME: FLAGS OF prepare_data` of a study, read. Raises UserError for a line that is no such thing."""

    def __init__(self, config: StudyConfig, workdir: Path) -> None:
        self.workdir = workdir
        self.held_out_items = config.evaluate.held_out_items
        self.first = name_of(config.data[0]) if config.data else ""
        lines = named(config.data)
        self.configs = {name: self._config(name, line) for name, line in lines.items()}
        self._needed = {
            name: [other for other in re.findall(re.escape(FOLDER) + r"/([\w.-]+)", line) if other != name]
            for name, line in lines.items()
        }
        names = list(self.configs)
        for position, name in enumerate(names):
            for other in self._needed[name]:
                if other not in names[:position]:
                    raise UserError(f"data {name!r} needs {other!r}, allowed: the name of a line above it")

    def _config(self, name: str, line: str) -> PrepareConfig:
        words, overrides = command_line.split_overrides(shlex.split(line.replace(FOLDER, str(self.workdir / DATA))))
        files = [word.removeprefix("--config=") for word in words if word.startswith("--config=")]
        if len(files) != 1 or len(words) != 1:
            raise UserError(f"data {name!r} has {' '.join(words)!r}, allowed: --config=FILE and --config.NAME=VALUE")
        try:
            config: PrepareConfig = command_line.load_config(files[0], overrides, PrepareConfig)
        except UserError as error:
            raise UserError(f"data {name!r}: {error}") from error
        return config

    def left(self, names: Sequence[str]) -> list[str]:
        """Of the named data and those that they are made with, what is not there yet, each behind what it needs."""
        wanted = set(names)
        for name in reversed(self.configs):  # a line needs only lines above it
            if name in wanted:
                wanted.update(self._needed[name])
        made = (read_fingerprint(data_directory(self.workdir, name)) is not None for name in self.configs)
        return [name for name, is_made in zip(self.configs, made, strict=True) if name in wanted and not is_made]

    def prepare(self, name: str, report: Callable[[str], None]) -> None:
        """Makes data that are not there, or waits for another process that is at it."""
        directory = data_directory(self.workdir, name)
        directory.parent.mkdir(exist_ok=True)
        with awaited(directory.with_name(f"{name}.lock"), f"data {name!r}", report):
            if read_fingerprint(directory) is None:
                prepare(self.configs[name], directory, report, processes=cores())

    def tasks(self, report: Callable[[str], None]) -> Path | None:
        """The folder with the tasks from held-out text of the first data; None where none are asked for."""
        folder = self.workdir / TASKS
        if not self.held_out_items or not self.first:
            return None
        with awaited(self.workdir / f"{TASKS}.lock", "the folder of tasks", report):
            held_out_tasks.write(data_directory(self.workdir, self.first), folder, self.held_out_items, report)
        return folder
