"""SIGTERM and SIGINT as a wish that the loop reads between two steps, so that nothing is cut off in the middle."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

SIGNALS = (signal.SIGTERM, signal.SIGINT)


class StopRequest:
    """`signum` is the first of SIGNALS that has come, None before; more of them change nothing, saving goes on."""

    def __init__(self) -> None:
        self.signum: int | None = None

    def __call__(self, signum: int, frame: FrameType | None) -> None:
        if self.signum is None:
            self.signum = signum


@contextmanager
def stop_request() -> Iterator[StopRequest]:
    """Catches SIGNALS until the end of the block. Outside the main thread, where Python has no handlers, none come."""
    request = StopRequest()
    if threading.current_thread() is not threading.main_thread():
        yield request
        return
    before = {signum: signal.signal(signum, request) for signum in SIGNALS}
    try:
        yield request
    finally:
        for signum, handler in before.items():
            signal.signal(signum, handler)
