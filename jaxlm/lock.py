"""A file that one process holds, so that two never write to one place."""

from __future__ import annotations

import datetime
import fcntl
import os
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from jaxlm.errors import UserError

LOOK_AGAIN = 0.5  # seconds


class InUse(UserError):
    """Another process holds it. The message says which."""


@contextmanager
def held(path: Path, name: str) -> Iterator[None]:
    """Holds the lock file `path` for this process; the system lets go of it however the process ends.

    Raises InUse that says who holds `name`, as the user calls what the lock stands for.
    """
    with path.open("a+", encoding="utf-8") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            raise InUse(f"{name} is in use by {file.read().strip() or 'another process'}") from None
        since = datetime.datetime.now().astimezone().isoformat(timespec="seconds")
        file.truncate(0)
        file.write(f"process {os.getpid()} on {socket.gethostname()} since {since}\n")
        file.flush()
        try:
            yield
        finally:
            file.truncate(0)


@contextmanager
def awaited(path: Path, name: str, report: Callable[[str], None]) -> Iterator[None]:
    """`held`, after whoever holds it now; `report` is given one line if there is somebody."""
    with ExitStack() as stack:
        told = False
        while True:
            try:
                stack.enter_context(held(path, name))
                break
            except InUse as error:
                if not told:
                    report(f"{error}; waiting for it")
                told = True
                time.sleep(LOOK_AGAIN)
        yield
