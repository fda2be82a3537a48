"""How far a long piece of work is: a one-line bar on a terminal, plain lines elsewhere (a file, a batch job)."""

from __future__ import annotations

import shutil
import sys
import time
from types import TracebackType
from typing import Self, TextIO

BAR_SECONDS = 0.1  # between two drawings of the bar
LINE_SECONDS = 5.0  # between two plain lines


def duration(seconds: float) -> str:
    """Seconds as a person reads them: `42s`, `3m07s`, `1h02m`."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole}s"
    if whole < 3600:
        return f"{whole // 60}m{whole % 60:02d}s"
    return f"{whole // 3600}h{whole // 60 % 60:02d}m"


def quantity(number: float) -> str:
    """A count in three digits or so: `950`, `4.6k`, `1.2M`."""
    for scale, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if number >= scale:
            return f"{number / scale:.3g}{letter}"
    return f"{number:.3g}"


class Progress:
    """Shows `done` of `total` with a rate and the time that is left, on standard error.

    Used as a context manager. A `total` of None is one that nobody knows yet: there is no bar and no ETA. `initial` is
    what was done before this process began (a resumed run); rate and ETA count only what was done since. `unit` names
    what `done` counts, for example "step" or "document"; where one of them is worth several of something better known,
    `rate_unit` and `per_unit` say so ("tok", tokens of one step).
    """

    def __init__(
        self,
        total: int | None,
        label: str,
        *,
        unit: str = "step",
        initial: int = 0,
        rate_unit: str | None = None,
        per_unit: float = 1.0,
        stream: TextIO | None = None,
    ) -> None:
        self.total, self.label, self.unit, self.initial, self.done = total, label, unit, initial, initial
        self.rate_unit, self.per_unit = rate_unit or unit, per_unit
        self.stream = sys.stderr if stream is None else stream
        self.is_terminal = self.stream.isatty()
        self.started = time.monotonic()
        self.paused, self.shown_at, self.drawn = 0.0, float("-inf"), False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.drawn:
            self.stream.write("\n")
            self.stream.flush()
            self.drawn = False

    def update(self, done: int, **values: float | str) -> None:
        """`done` units are finished; `values` (a loss, a phase) are shown beside. Draws seldom enough to be cheap."""
        self.done = done
        now = time.monotonic()
        pause = BAR_SECONDS if self.is_terminal else LINE_SECONDS
        if now - self.shown_at < pause and done != self.total:
            return
        self.shown_at = now
        text = self._text(now, values)
        if self.is_terminal:
            width = shutil.get_terminal_size().columns
            self.stream.write("\r\x1b[K" + text[: width - 1])
            self.drawn = True
        else:
            self.stream.write(text + "\n")
        self.stream.flush()

    def message(self, text: str) -> None:
        """A line that stays, above the bar."""
        self.stream.write(("\r\x1b[K" if self.drawn else "") + text + "\n")
        self.stream.flush()
        self.drawn, self.shown_at = False, float("-inf")

    def exclude(self, seconds: float) -> None:
        """Time that belongs to no unit (compilation): left out of the rate and the ETA."""
        self.paused += seconds

    def _text(self, now: float, values: dict[str, float | str]) -> str:
        elapsed = max(now - self.started - self.paused, 1e-9)
        rate = (self.done - self.initial) / elapsed
        parts = [f"{self.label}: {self.unit} {self.done}" + (f"/{self.total}" if self.total is not None else "")]
        if self.is_terminal and self.total is not None:
            filled = round(20 * min(self.done / max(self.total, 1), 1.0))
            parts[0] = f"{self.label} [{'#' * filled}{'.' * (20 - filled)}] {self.done}/{self.total}"
        parts += [
            f"{name} {value:.4g}" if isinstance(value, float) else f"{name} {value}" for name, value in values.items()
        ]
        if rate > 0:
            parts.append(f"{quantity(rate * self.per_unit)} {self.rate_unit}/s")
            if self.total is not None:
                parts.append(f"ETA {duration((self.total - self.done) / rate)}")
        return "  ".join(parts)
