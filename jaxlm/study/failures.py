"""Why a cell stopped: its failed.json, which the report shows and the next call of the same command takes away."""

from __future__ import annotations

import contextlib
import datetime
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from jaxlm.errors import UserError
from jaxlm.study.cells import BROKEN, FAILED, Study
from jaxlm.study.rows import needed
from jaxlm.training.workdir import read_json, write_json

LONGEST = 400  # characters of the one line; what XLA says of a full memory goes on for pages
FAULT = 1  # exit code


def write(directory: Path, step: str, error: Exception) -> str:
    """Records that `step` of the cell in `directory` failed; returns the line that people are told."""
    text = " ".join(str(error).split())[:LONGEST]
    is_user_error = isinstance(error, UserError)
    line = text if is_user_error else f"{type(error).__name__}: {text}"
    values = {
        "step": step,
        "error": line,
        "is_user_error": is_user_error,
        "traceback": "".join(traceback.format_exception(error)),
        "time": datetime.datetime.now().astimezone().isoformat(),
    }
    directory.mkdir(parents=True, exist_ok=True)
    write_json(directory / FAILED, values)
    return line


def read(directory: Path) -> dict[str, Any] | None:
    """What was recorded; None where nothing failed."""
    try:
        return read_json(directory / FAILED) if (directory / FAILED).is_file() else None
    except UserError:  # taken away by another process, in this moment
        return None


def forget(directory: Path) -> None:
    """Takes it away, and a directory that has nothing else: a run wants to begin in an empty one."""
    for file in directory.glob(f"{FAILED}*"):  # also what a process that was killed had not finished
        file.unlink(missing_ok=True)
    with contextlib.suppress(OSError):
        directory.rmdir()


def conclude(study: Study, only: Sequence[str] = ()) -> None:
    """Ends a command some of whose rows (`only` these and what they need) have failed.

    Raises UserError, exit code 2, where the user can mend all of them, else SystemExit(1), when it has said how many.
    """
    names = needed(dict(study.rows), only or list(study.rows))
    failed = [result for result in study.results if result.status == BROKEN and result.cell.row.name in names]
    if not failed:
        return
    message = (
        f"{len(failed)} of {len(study.results)} runs failed, the first {failed[0].cell.name}: {failed[0].error}; the "
        "same command tries them again"
    )
    if all((read(result.directory) or {}).get("is_user_error") for result in failed):
        raise UserError(message)
    print(f"jaxlm: {message}", file=sys.stderr)
    raise SystemExit(FAULT)
