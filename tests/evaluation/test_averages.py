"""Means over tasks reproduce published ones, and are not given where they would mean something else."""

from __future__ import annotations

from typing import Any

import pytest

from jaxlm.evaluation.averages import means, present
from jaxlm.evaluation.tasks import MOBILELLM_8, STUDY, STUDY_6, shots

# Per cent, in the order of the study's tasks: the model cards of gpt-2-70m and Dhara-70M.
TWELVE_LAYERS = (27.03, 57.29, 51.46, 21.67, 24.11, 47.31)
DHARA = (25.58, 51.58, 49.64, 24.83, 23.85, 47.50, 0.00)


def scored(names: tuple[str, ...], values: tuple[float, ...], **norms: float) -> dict[str, dict[str, Any]]:
    return {
        name: {"acc": value, "acc_norm": norms.get(name), "acc_stderr": 1.0, "num_fewshot": shots(name) or 0}
        for name, value in zip(names, values, strict=True)
    }


def test_the_published_averages_are_means_over_six_and_over_seven_tasks() -> None:
    six, seven = means(scored(STUDY_6, TWELVE_LAYERS)), means(scored(STUDY, DHARA))
    assert six["mean_6"]["acc"] == pytest.approx(38.15, abs=0.006)
    assert seven["mean_7"]["acc"] == pytest.approx(31.85, abs=0.006)
    assert seven["mean_6"]["acc"] == pytest.approx(37.16, abs=0.006)
    assert six["mean_7"] == {"acc": None, "acc_norm": None, "stderr": None}
    assert present(six).keys() == {"mean_6"}


def test_acc_stands_in_where_a_task_has_no_acc_norm_and_is_named() -> None:
    found = means(scored(STUDY_6, TWELVE_LAYERS, hellaswag=33.03))["mean_6"]
    assert found["acc_norm"] == pytest.approx(found["acc"] + 1.0)
    assert found["acc_stands_in"] == [name for name in STUDY_6 if name != "hellaswag"]
    assert found["stderr"] == pytest.approx(6**0.5 / 6)


def test_other_examples_than_the_study_s_make_another_number() -> None:
    tasks = scored(STUDY, DHARA)
    tasks["mmlu"]["num_fewshot"] = 0
    assert means(tasks)["mean_6"]["acc"] is means(tasks)["mean_7"]["acc"] is None
    eight = scored(MOBILELLM_8, tuple(map(float, range(8))))
    assert means(eight)["mean_8"]["acc"] == 3.5
