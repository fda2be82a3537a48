"""The directory beside `out` in which a data directory is made: its lock, what stays of it, and room on the disk."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from jaxlm.data.encoding import SUFFIX
from jaxlm.errors import UserError
from jaxlm.lock import held

LOCK, DATA, ENCODED = "lock", "data", "encoded"
WINDOW_BYTES = 3.0  # of disk for a token in windows of GPT-2's ids, rounded up; compressed, so fewer ids need less


@contextmanager
def workspace(out: Path, needed: int | None, report: Callable[[str], None]) -> Iterator[Path]:
    """Holds and yields `<out>.partial`, with an empty directory `data` in it.

    It is gone after success. After anything else it stays if whole batches are encoded, and the message says so;
    `data` never stays. `needed` are the bytes that the work was expected to need, for the message of a full disk.

    Raises UserError where another process is at work, where there is something else, and where the disk is full.
    """
    directory = _beside(out)
    directory.mkdir(parents=True, exist_ok=True)
    if strange := {path.name for path in directory.iterdir()} - {LOCK, DATA, ENCODED}:
        raise UserError(f"{directory} holds {min(strange)}, allowed: what prepare_data left there, or nothing")
    with held(directory / LOCK, f"--out={out}"):
        shutil.rmtree(directory / DATA, ignore_errors=True)  # of a process that was killed
        (directory / DATA).mkdir()
        kept = 0
        try:
            yield directory
        except BaseException as error:
            unfinished = sum(file.stat().st_size for file in (directory / DATA).rglob("*") if file.is_file())
            room = free(directory) + unfinished  # counted before, for the writer may still have its files open
            shutil.rmtree(directory / DATA, ignore_errors=True)
            kept = len(list(directory.glob(f"{ENCODED}/*{SUFFIX}")))
            stays = f"{kept} encoded batches stay in {directory}, from which the same command goes on"
            if _is_full(error):
                wanted = "more" if needed is None else f"about {in_units(needed)}"
                message = f"the disk is full: {wanted} needed for {out}, {in_units(room)} free"
                raise UserError(f"{message}; {stays if kept else 'nothing of it stays'}") from error
            if kept and isinstance(error, UserError):
                raise UserError(f"{error}; {stays}") from error
            if kept:
                report(stays)
            raise
        finally:
            if not kept:
                shutil.rmtree(directory, ignore_errors=True)


def _beside(out: Path) -> Path:
    return Path(f"{out.absolute()}.partial")


def _is_full(error: BaseException) -> bool:
    """ArrayRecord and tokenizers have a message without a number; the former speaks when it closes a file."""
    return isinstance(error, Exception) and os.strerror(errno.ENOSPC) in str(error)


def disk_needed(total_tokens: int, validation_share: float, vocab_size: int) -> int:
    """Bytes of disk while `total_tokens` of training windows are made: them, validation, and what is encoded."""
    id_bytes = 2 if vocab_size <= 1 << 16 else 4
    return int(total_tokens / (1 - validation_share) * (WINDOW_BYTES + id_bytes))


def require_room(out: Path, needed: int) -> int:
    """The bytes that are free on the disk of `out`.

    Raises UserError where they are fewer than `needed`, less what is encoded already.
    """
    directory = next(path for path in (out, *out.absolute().parents) if path.is_dir())
    there = sum(file.stat().st_size for file in _beside(out).glob(f"{ENCODED}/*"))
    if (room := free(directory)) < needed - there:
        raise UserError(
            f"about {in_units(needed - there)} of disk are needed for {out}, {in_units(room)} are free, allowed: a "
            "smaller --config.total_tokens, or an --out on another disk"
        )
    return room


def free(directory: Path) -> int:
    """Bytes that may still be written to the disk of an existing directory."""
    return shutil.disk_usage(directory).free


def in_units(count: int) -> str:
    """Bytes as a person reads them."""
    return f"{count / 1e9:.1f} GB" if count >= 1e9 else f"{count / 1e6:.1f} MB"
