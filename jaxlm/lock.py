"""A file that one process holds, so that two never write to one place."""

from __future__ import annotations

import datetime
import fcntl
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from jaxlm.errors import UserError


@contextmanager
def held(path: Path, name: str) -> Iterator[None]:
    """Holds the lock file `path` for this process; the system lets go of it however the process ends.

    Raises UserError that says who holds `name`, as the user calls what the lock stands for.
    """
    with path.open("a+", encoding="utf-8") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            raise UserError(f"{name} is in use by {file.read().strip() or 'another process'}") from None
        since = datetime.datetime.now().astimezone().isoformat(timespec="seconds")
        file.truncate(0)
        file.write(f"process {os.getpid()} on {socket.gethostname()} since {since}\n")
        file.flush()
        try:
            yield
        finally:
            file.truncate(0)
