"""The exceptions that say more than that something broke: the user has to change something, or asked to stop."""

from __future__ import annotations

import signal


class UserError(ValueError):
    """A flag, config, path, data directory, checkpoint or model that cannot be used.

    The message is one line: what is wrong, the value, what is allowed. Commands print it and exit with 2; every other
    exception is a fault of ours and keeps its traceback.
    """


class Interrupted(Exception):
    """A run that was told to stop, and has saved. `signum` gives the exit code, 128 + signum."""

    def __init__(self, signum: int) -> None:
        super().__init__(f"stopped by {signal.Signals(signum).name}")
        self.signum = signum
