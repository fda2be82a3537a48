"""The steps of a cell, each done when its file is there, and each file written whole or not at all."""

from __future__ import annotations

import dataclasses
import functools
import json
import math
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from jaxlm import config as configs
from jaxlm.config import RunConfig
from jaxlm.data.windows import Windows
from jaxlm.errors import UserError
from jaxlm.evaluation import averages, held_out_tasks, tasks
from jaxlm.release.importing import read_model
from jaxlm.study import cells, decoding, evaluation
from jaxlm.study.benchmarks import FOLDER, Benchmarks, Questions
from jaxlm.study.cells import DECODE, Cell, text_of
from jaxlm.study.importing import import_model
from jaxlm.study.results import EVALUATION, GENERATIONS
from jaxlm.study.rows import CONVERT, IMPORT, READ, TRAIN, Row
from jaxlm.study.texts import Texts
from jaxlm.study_config import StudyConfig, listed
from jaxlm.trained import load
from jaxlm.training import loop
from jaxlm.training import workdir as workdirs
from jaxlm.training.run import with_parts

MAKE = {TRAIN: "train", CONVERT: "convert", IMPORT: "import"}
EVALUATE, GENERATE, DECODES = "evaluate", "generate", "decode"
FILES = {EVALUATE: EVALUATION, GENERATE: GENERATIONS, DECODES: DECODE}


class Steps:
    """What may be done for a cell of a study: its text, its weights, its evaluation, its samples, its speed."""

    def __init__(self, workdir: Path, config: StudyConfig, rows: Mapping[str, Row], texts: Texts) -> None:
        self.workdir, self.config, self.rows, self.texts = workdir, config, rows, texts

    def left(self, cell: Cell) -> list[str]:
        """The names of the steps that are not done, in order; none for a finished cell and for an empty row."""
        directory = cell.directory(self.workdir)
        names = [MAKE[cell.row.kind]] if cell.row.kind in MAKE and not self.has_weights(cell) else []
        for step, file in FILES.items():
            if self._is_asked(cell, step) and not (directory / file).is_file():
                names.append(step)
        return names

    def of(self, cell: Cell) -> Iterator[tuple[str, Callable[[], object]]]:
        """The steps that are left when each is come to, by name, as functions that do them.

        They raise UserError for what the user has to change, and Interrupted after SIGTERM or SIGINT in training.
        """
        for name in self.texts.left([self.texts.first, cell.row.data]):
            yield f"data {name}", functools.partial(self.texts.prepare, name, print)
        while left := self.left(cell):
            yield left[0], functools.partial(self._do[left[0]], cell)

    @functools.cached_property
    def _do(self) -> dict[str, Callable[[Cell], None]]:
        made = dict.fromkeys(MAKE.values(), self._make)
        return {**made, EVALUATE: self._evaluate, GENERATE: self._generate, DECODES: self._decode}

    def has_weights(self, cell: Cell) -> bool:
        """Whether a cell's own run is complete."""
        return workdirs.is_complete(cell.directory(self.workdir))

    def refuse_other_run(self, cell: Cell) -> None:
        """Raises UserError where the cell has a workdir of another configuration than its row has now."""
        directory = cell.directory(self.workdir)
        if cell.row.kind in (TRAIN, CONVERT) and (directory / workdirs.CONFIG).is_file():
            config = with_parts(self._run_config(cell))
            workdirs.refuse_differences(directory, config, cell.row.kind, self._init_from(cell))

    def _is_asked(self, cell: Cell, step: str) -> bool:
        if step == EVALUATE:
            return bool(cell.row.kind)
        decode = self.config.decode
        return cells.writes(self.workdir, self.config, cell) and bool(
            decode.samples if step == GENERATE else decode.rounds
        )

    def _make(self, cell: Cell) -> None:
        directory, row = cell.directory(self.workdir), cell.row
        directory.parent.mkdir(parents=True, exist_ok=True)
        if row.kind == IMPORT:
            import_model(row.source, directory)
            return
        config = self._run_config(cell)
        if config.train.stop_at:
            raise UserError(f"train.stop_at is {config.train.stop_at}, allowed: 0 in a study, whose rows end")
        loop.train(config, directory, kind=row.kind, init_from=self._init_from(cell), read_foreign=read_model)

    def _run_config(self, cell: Cell) -> RunConfig:
        """The configuration of the row with the cell's seed and rate, and the study's data."""
        assert cell.row.config is not None  # of rows that train
        rate: dict[str, object] = {} if cell.learning_rate is None else {"learning_rate": cell.learning_rate}
        directory = str(cells.data_directory(self.workdir, cell.row.data))
        config = configs.replace(cell.row.config, data={"dir": directory}, train=rate)
        return dataclasses.replace(config, seed=cell.seed)

    def _init_from(self, cell: Cell) -> str | None:
        """The workdir that a conversion starts from, spelt as at its first start, wherever the study lies now."""
        if cell.row.kind != CONVERT:
            return None
        source, directory = cells.source(cell, self.rows), cell.directory(self.workdir)
        if (directory / workdirs.CONFIG).is_file():
            stored = (workdirs.read_json(directory / workdirs.MANIFEST)["init_from"] or {}).get("source", "")
            within = source.directory(Path()).parts
            if Path(stored).parts[-len(within) :] == within:
                return str(stored)
        return str(source.directory(self.workdir))

    def _home(self, cell: Cell) -> Path:
        """The workdir with the weights."""
        of = cells.source(cell, self.rows) if cell.row.kind == READ else cell
        return of.directory(self.workdir)

    def _evaluate(self, cell: Cell) -> None:
        asked, reading, home = self.config.evaluate, cell.row.reading, self._home(cell)
        directory, text = cell.directory(self.workdir), text_of(self.workdir, self.config, self._home_row(cell), home)
        directory.mkdir(parents=True, exist_ok=True)
        run_config, _ = workdirs.read(home)
        has_loss = text is not None and reading != "in_order"  # which is no loss over windows
        settings = evaluation.Settings(
            what=("loss",) if has_loss else (),
            limit=asked.windows,
            draws=asked.draws if run_config.objective.kind == "diffusion" else 0,
            data_dir=str(text or ""),
            reading=reading,
        )
        values = evaluation.evaluate(home, settings)
        answers = [one.of_workdir(home, folder=directory / FOLDER, reading=reading) for one in self._benchmarks]
        for name in ("tasks", "items") if answers else ():
            values[name] = {task: record for part in answers for task, record in part[name].items()}
        values |= averages.means(values["tasks"])
        workdirs.write_json(directory / EVALUATION, values)

    def _home_row(self, cell: Cell) -> Row:
        return self.rows[cell.row.source] if cell.row.kind == READ else cell.row

    @functools.cached_property
    def _benchmarks(self) -> tuple[Benchmarks, ...]:
        """The tasks of the study and those from held-out text, their data read once for all cells."""
        asked = self.config.evaluate

        def questions(names: tuple[str, ...], folder: str) -> Questions:
            return Questions(
                names,
                folder,
                limit=asked.limit or None,
                controls=tuple(listed(asked.controls)),
                mc_samples=asked.mc_samples,
            )

        names = listed(asked.tasks)
        found = [questions(tasks.expand(names), asked.include_path)] if names else []
        if (folder := self.texts.tasks(print)) is not None:
            found.append(questions(held_out_tasks.TASKS, str(folder)))
        return tuple(Benchmarks(one) for one in found)

    def _windows(self, cell: Cell) -> Windows:
        text = text_of(self.workdir, self.config, cell.row, cell.directory(self.workdir))
        assert text is not None  # `cells.writes` has seen to it
        return Windows.open(text)

    def _generate(self, cell: Cell) -> None:
        """Greedy samples after the beginnings of held-out windows, one at a time, as its speed is measured."""
        trained, how, windows = load(cell.directory(self.workdir)), self.config.decode, self._windows(cell)
        passes: dict[str, Any] = {}
        if trained.mode == "diffusion":
            passes["steps"] = math.ceil(how.new_tokens / how.tokens_per_pass)
        held_out, lines = windows.split("validation"), []
        for number in range(min(how.samples, len(held_out))):
            prompt = held_out[number]["tokens"][: how.prompt_tokens].tolist()
            found = trained.generate([prompt], max_new_tokens=how.new_tokens, first_row=number, **passes)
            lines.append(json.dumps(found[0].record(), ensure_ascii=False) + "\n")
        path = cell.directory(self.workdir) / GENERATIONS
        temporary = path.with_name(f"{path.name}.tmp-{os.getpid()}")
        temporary.write_text("".join(lines), "utf-8")
        os.replace(temporary, path)

    def _decode(self, cell: Cell) -> None:
        directory = cell.directory(self.workdir)
        values = decoding.measure(load(directory), self._windows(cell), self.config.decode)
        workdirs.write_json(directory / DECODE, values)
