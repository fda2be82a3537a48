"""Two evaluations of one model, written to one file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from jaxlm.evaluation import averages, record
from jaxlm.evaluation.statistics import Score
from jaxlm.evaluation.tasks import STUDY_6


def task(acc: float) -> dict[str, Any]:
    return {"acc": acc, "acc_norm": None, "acc_stderr": 0.01, "num_fewshot": 0}


def written(loss: float | None, tasks: dict[str, Any], parameters: str = "p") -> dict[str, Any]:
    out = {"parameter_hash": parameters, "dtype": "float32", "loss": loss, "baselines": None, "tasks": tasks}
    return out | averages.means(tasks) | ({"items": {name: {"acc": "1 0"} for name in tasks}} if tasks else {})


def test_tasks_are_added_and_the_loss_stays_where_none_was_asked_for() -> None:
    earlier = written(3.5, {name: task(0.3) | ({"num_fewshot": 5} if name == "mmlu" else {}) for name in STUDY_6[:5]})
    now = written(None, {STUDY_6[5]: task(0.6), STUDY_6[0]: task(0.5)})
    joined, kept = record.joined(earlier, now)
    assert kept == ["loss", *STUDY_6[1:5]]
    assert joined["loss"] == 3.5 and joined["tasks"][STUDY_6[0]]["acc"] == 0.5
    assert set(joined["tasks"]) == set(joined["items"]) == set(STUDY_6)
    assert earlier["mean_6"]["acc"] is None
    assert abs(joined["mean_6"]["acc"] - (0.5 + 4 * 0.3 + 0.6) / 6) < 1e-12


def test_a_new_loss_counts_and_other_parameters_have_nothing_in_common() -> None:
    earlier = written(3.5, {"piqa": task(0.3)})
    joined, kept = record.joined(earlier, written(3.0, {}))
    assert (joined["loss"], kept, list(joined["tasks"])) == (3.0, ["piqa"], ["piqa"])
    other = written(None, {}, parameters="q")
    assert record.joined(earlier, other) == (other, [])
    assert record.joined(None, other) == (other, [])


def test_windows_stay_with_their_loss_and_another_reading_is_another_record() -> None:
    nats_N = np.array([1 / 3, 1234567.125, 2.5e-7])
    kept = record.windows(Score(nats_N, np.array([3.0, 4.0, 0.0]), np.array([9.0, 8.0, 0.0])))
    assert kept["tokens"] == "3 4 0" and kept["bytes"] == "9 8 0"
    earlier = written(3.5, {}) | {"windows": kept}
    joined, _ = record.joined(earlier, written(None, {"piqa": task(0.3)}) | {"windows": None, "reading": ""})
    score = record.score(joined)
    assert score is not None and score.nats_N == pytest.approx(nats_N, rel=1e-11)
    assert record.score(written(3.5, {})) is None, "from before they were kept"
    other = written(None, {}) | {"reading": "causal"}
    assert record.joined(earlier, other) == (other, [])


def test_what_is_no_record_is_nothing(tmp_path: Path) -> None:
    file = tmp_path / "out.json"
    assert record.read(file) is None
    for text in ("[1]", "{", "{}"):
        file.write_text(text)
        assert record.read(file) is None
    file.write_text(json.dumps(written(1.0, {})))
    assert record.read(file) == written(1.0, {})
