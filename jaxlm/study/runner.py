"""A study, done: every step that the chosen rows need, each once, by as many processes as are started."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from jaxlm.errors import Interrupted, UserError
from jaxlm.fields import nearest
from jaxlm.lock import LOOK_AGAIN, InUse, held
from jaxlm.progress import duration
from jaxlm.study import asked, cells, directory, failures
from jaxlm.study import rows as study_rows
from jaxlm.study.cells import CELL, Cell, Study
from jaxlm.study.process import forget_programs, kept_compilations, quiet, terminable
from jaxlm.study.rows import CONVERT, EMPTY, READ
from jaxlm.study.steps import Steps
from jaxlm.study.texts import Texts
from jaxlm.study_config import StudyConfig
from jaxlm.training.workdir import read_json, write_json

BEGINNING = "beginning"  # the step of what fails before the first


def run(config: StudyConfig, workdir: Path, only: Sequence[str] = ()) -> Study:
    """Does what is left of a study, of `only` these rows and those that they start from, and returns all there is.

    A row that fails does not stop the others: `failed.json` in its directory says why, and the next call tries again
    (a command ends with `failures.conclude`). Cells that another process is at are left to it, and waited for at last.

    Raises UserError, before anything is made, for what is wrong with the study itself, and for another one in
    `workdir`. After SIGTERM or SIGINT it ends by Interrupted, SystemExit or KeyboardInterrupt; the same call goes on.
    """
    rows = study_rows.read(config)
    for name in only:
        if name not in rows:
            raise UserError(f"there is no row {name!r}; {nearest(name, rows)}")
    asked.check(config)
    steps = Steps(workdir, config, rows, Texts(config, workdir))
    chosen = study_rows.needed(rows, only or list(rows))
    todo = [cell for cell in cells.cells(config, rows, chosen) if cell.row.kind != EMPTY]
    # A seed of every row before the next: all rows have something soon, and the next finds its programs compiled, which
    # several processes at one row would compile at the same time.
    todo.sort(key=lambda cell: config.seeds.index(cell.seed) if cell.seed in config.seeds else 0)
    for cell in todo:
        steps.refuse_other_run(cell)
    with terminable(), kept_compilations(workdir):
        directory.enter(config, workdir, lambda text: print(text, file=sys.stderr))
        _Runner(steps, todo).run()
    return cells.read(workdir)


class _Runner:
    """The cells of a call in order, and what became of them."""

    def __init__(self, steps: Steps, todo: Sequence[Cell]) -> None:
        self.steps, self.workdir, self.todo = steps, steps.workdir, list(todo)
        self.stream = sys.stderr  # while a cell is at work, the name stands for its log
        # What failed in an earlier call is tried again; what fails meanwhile, here or in another process, is not.
        self.failed_before = {cell: failures.read(cell.directory(self.workdir)) for cell in todo}
        self.num_left = sum(bool(steps.left(cell)) for cell in todo)
        self.seconds, self.num_finished = 0.0, 0

    def run(self) -> None:
        """Passes over the cells until nothing is left, or nothing but what has failed."""
        pending, told = self.todo, False
        while pending:
            reasons = {cell: reason for cell in pending if (reason := self._attempt(cell))}
            if len(reasons) == len(pending):
                if not told:
                    self._say(pending[0], f"{reasons[pending[0]]}; waiting for it")
                told = True
                time.sleep(LOOK_AGAIN)
            pending = list(reasons)

    def _attempt(self, cell: Cell) -> str:
        """Does what is left of a cell; says who is at it, or what it needs first, where it has to be left for later."""
        if not self.steps.left(cell) or self._failed_now(cell):
            return ""
        place = cell.directory(self.workdir)
        place.parent.mkdir(parents=True, exist_ok=True)
        try:
            with held(place.with_name(f"{place.name}.lock"), cell.name):
                if self._failed_now(cell):
                    return ""
                if cell.row.kind in (CONVERT, READ):
                    source = cells.source(cell, self.steps.rows)
                    if not self.steps.has_weights(source) and not self._failed_now(source):
                        return f"{cell.name} needs {source.name}, which is not there yet"
                failures.forget(place)
                self._work(cell)
        except InUse as error:
            return str(error)
        finally:
            forget_programs()
        return ""

    def _failed_now(self, cell: Cell) -> bool:
        found = failures.read(cell.directory(self.workdir))
        return found is not None and found != self.failed_before.get(cell)

    def _work(self, cell: Cell) -> None:
        """The steps of a cell that this process holds."""
        started, step = time.monotonic(), BEGINNING
        try:
            if cell.row.kind in (CONVERT, READ) and not self.steps.has_weights(cells.source(cell, self.steps.rows)):
                raise UserError(f"it needs {cells.source(cell, self.steps.rows).name}, which failed")
            for step, do in self.steps.of(cell):
                self._timed(cell, step, do)
        except Interrupted:
            raise
        except Exception as error:  # whatever it is, the other rows go on
            self._say(cell, f"{step} failed: {failures.write(cell.directory(self.workdir), step, error)}")
        else:
            self.seconds += time.monotonic() - started
            self.num_finished += 1
        self.num_left -= 1

    def _timed(self, cell: Cell, step: str, do: Callable[[], object]) -> None:
        """A step, its seconds kept also if it does not end well; those of a process that was killed are lost."""
        place = cell.directory(self.workdir)
        started = time.monotonic()
        try:
            with quiet(place.with_name(f"{place.name}.log"), self.stream):
                do()
        finally:
            took = time.monotonic() - started
            if place.is_dir():
                kept = read_json(place / CELL)["seconds"] if (place / CELL).is_file() else {}
                write_json(place / CELL, {"seconds": kept | {step: kept.get(step, 0.0) + took}})
        self._say(cell, f"{step} {duration(took)}{self._rest()}")

    def _rest(self) -> str:
        """What the rest may take, by the mean of the cells that were done here."""
        if not self.num_finished:
            return ""
        return f", about {duration(self.num_left * self.seconds / self.num_finished)} for the rest"

    def _say(self, cell: Cell, text: str) -> None:
        print(f"[{self.todo.index(cell) + 1}/{len(self.todo)}] {cell.name}: {text}", file=self.stream, flush=True)
