"""The loss of each source out of the score of all windows."""

from __future__ import annotations

import math

import numpy as np
import pytest

from jaxlm.evaluation.record import by_source, table
from jaxlm.evaluation.statistics import Score

SCORE = Score(np.asarray([6.0, 2.0, 4.0, 9.0]), np.asarray([2.0, 1.0, 2.0, 3.0]), np.asarray([8.0, 2.0, 5.0, 0.0]))


def test_each_source_has_the_loss_of_its_windows_and_one_without_windows_has_none() -> None:
    found = by_source(SCORE, np.asarray([0, 2, 0, 3]), ("a", "b", "c", "d"))
    assert list(found) == ["a", "b", "c", "d"]
    assert found["a"]["loss"] == 10 / 4 and found["a"]["bits_per_byte"] == pytest.approx(10 / 13 / math.log(2))
    assert found["a"]["stderr"] == pytest.approx(math.sqrt(2 * 2 * 1.0) / 4)
    assert [part["num_windows"] for part in found.values()] == [2, 0, 1, 1]
    assert (found["a"]["num_tokens"], found["a"]["num_bytes"]) == (4, 13)
    assert {value for name, value in found["b"].items() if not name.startswith("num_")} == {None}
    assert (found["c"]["loss"], found["c"]["stderr"]) == (2.0, None)
    assert (found["d"]["loss"], found["d"]["bits_per_byte"]) == (3.0, None)


def test_the_table_has_a_line_for_each_source_that_has_a_loss() -> None:
    parts = by_source(SCORE, np.asarray([0, 0, 0, 2]), ("dclm", "books", "finepdfs"))
    whole = {"loss": 2.625, "stderr": 0.2, "bits_per_byte": 1.0, "bits_per_byte_stderr": 0.1, "loss_by_source": parts}
    lines = table(whole).splitlines()
    assert [line.split("  ")[0] or line.split()[1] for line in lines[1:]] == ["loss", "dclm", "finepdfs"]
    assert f"{parts['dclm']['loss']:.4f} ± " in lines[2]
