"""A bar on a terminal, seldom plain lines elsewhere."""

from __future__ import annotations

import io

import pytest

from jaxlm import progress
from jaxlm.progress import Progress, duration, quantity


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [1000.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    return now


def test_plain_lines_come_every_few_seconds_and_at_the_end(clock: list[float]) -> None:
    stream = io.StringIO()
    with Progress(100, "train", rate_unit="tok", per_unit=1000, stream=stream) as bar:
        for done in range(1, 101):
            clock[0] += 0.1
            bar.update(done, loss=2.5)
    lines = stream.getvalue().splitlines()
    assert len(lines) == 3
    assert lines[-1] == "train: step 100/100  loss 2.5  10k tok/s  ETA 0s"


def test_a_terminal_gets_one_line_that_is_redrawn(clock: list[float]) -> None:
    stream = Terminal()
    with Progress(10, "train", initial=5, stream=stream) as bar:
        for done in range(6, 9):
            clock[0] += 1.0
            bar.update(done, loss=2.5)
        bar.message("step 8: validation loss 2.4")
    text = stream.getvalue()
    assert text.count("\r\x1b[K") == 4
    assert "train [################....] 8/10  loss 2.5  1 step/s  ETA 2s" in text
    assert text.endswith("step 8: validation loss 2.4\n")


def test_compilation_is_left_out_of_the_rate(clock: list[float]) -> None:
    stream = io.StringIO()
    bar = Progress(4, "train", stream=stream)
    clock[0] += 62.0
    bar.exclude(60.0)
    bar.update(2)
    assert "1 step/s  ETA 2s" in stream.getvalue()


def test_an_unknown_total_has_no_bar_and_no_eta(clock: list[float]) -> None:
    stream = Terminal()
    bar = Progress(None, "reading", unit="document", stream=stream)
    clock[0] += 2.0
    bar.update(3000)
    assert stream.getvalue() == "\r\x1b[Kreading: document 3000  1.5k document/s"


def test_durations_and_quantities() -> None:
    assert [duration(s) for s in (0.4, 59, 61, 3600, 7320)] == ["0s", "59s", "1m01s", "1h00m", "2h02m"]
    assert [quantity(n) for n in (0.5, 950, 4600, 1.234e6)] == ["0.5", "950", "4.6k", "1.23M"]
