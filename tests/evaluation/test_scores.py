"""Scores are those of the harness, item by item; what knows nothing scores chance, what knows all 100%."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from lm_eval import evaluator

from jaxlm.errors import UserError
from jaxlm.evaluation import scores
from jaxlm.evaluation.controls import LengthOnly
from jaxlm.evaluation.tasks import STUDY, Catalogue, ask, expand, shots
from tests import local_tasks

NAMES = ("colours", "truths", "sums")


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = local_tasks.write(tmp_path_factory.mktemp("tasks"))
    catalogue = Catalogue(NAMES, str(folder))
    return {name: catalogue.load(name, None) for name in NAMES}


class Alternating(local_tasks.Knowing):
    """Is right on every other item."""

    def _is_right(self, doc: dict[str, Any], answer: str) -> bool:
        return super()._is_right(doc, answer) == (int(doc["q"].split()[-1].rstrip(":")) % 2 == 0)


def test_a_model_that_is_told_the_answers_scores_everything(loaded: dict[str, Any]) -> None:
    for name in NAMES:
        for task, samples in ask(local_tasks.Knowing(), loaded[name], None).items():
            record = scores.Items.read(task, samples).record()
            assert record["acc"] == 1.0 and record["acc_norm"] in (1.0, None)
            assert record["stderr"] == 0.0
    assert record["metric"] == "exact_match"
    assert record["other"] == {"exact_match,flexible": {"value": 1.0, "stderr": 0.0}}


def test_scores_errors_and_the_average_of_a_group_are_the_harness_s(loaded: dict[str, Any]) -> None:
    theirs = evaluator.evaluate(lm=Alternating(), task_dict=loaded["colours"], bootstrap_iters=10)["results"]
    samples = ask(Alternating(), loaded["colours"], None)
    records = {task: scores.Items.read(task, samples[task]).record() for task in samples}
    records["colours"] = scores.over([*records.values()], [12, 6])
    for task, record in records.items():
        for metric in ("acc", "acc_norm"):
            assert record[metric] == pytest.approx(theirs[task][f"{metric},none"], rel=1e-12)
            assert record[f"{metric}_stderr"] == pytest.approx(theirs[task][f"{metric}_stderr,none"], rel=1e-12)
    assert 0 < records["colours"]["acc"] < 1


def test_chance_is_one_of_four_and_the_share_of_what_is_true(loaded: dict[str, Any]) -> None:
    expected = {"colours_a": 1 / 4, "colours_b": 1 / 4, "truths": 1 / 2, "sums": 0.0}
    for name in NAMES:
        samples = ask(local_tasks.Knowing(), loaded[name], None)
        for task, harness_task in loaded[name]["tasks"].items():
            items = [sample for sample in samples[task] if sample["filter"] == samples[task][0]["filter"]]
            found = scores.chance(harness_task, items, scores.Items.read(task, samples[task]).main)
            assert found == pytest.approx(expected[task])


def test_the_length_only_baseline_knows_lengths_and_nothing_else(loaded: dict[str, Any]) -> None:
    letters: Any = SimpleNamespace(tok_encode=lambda text, **_: list(text.encode()), eot_token_id=0, prefix_token_id=0)
    lm = LengthOnly(letters, vocab_size=10)
    # " yes", " no" and " it is" are 4, 3 and 6 letters of probability 1/10 each.
    masses = {sample["doc_id"] % 2: sample["acc"] for sample in ask(lm, loaded["truths"], None)["truths"]}
    assert masses == {1: pytest.approx(0.101 / 1.101, rel=1e-5), 0: pytest.approx(1 / 1.101, rel=1e-5)}
    # Among options of one length the first is taken, so it scores the share of items whose first one is right.
    samples = ask(lm, loaded["colours"], None)["colours_a"]
    assert [sample["acc"] for sample in samples] == [float(sample["target"] == 0) for sample in samples]
    assert {sample["exact_match"] for sample in ask(lm, loaded["sums"], None)["sums"]} == {0.0}


def test_a_score_stands_out_only_above_chance_and_above_the_lengths() -> None:
    assert scores.apart(0.30, 0.02, 0.25, 0.25)
    assert not scores.apart(0.30, 0.02, 0.25, 0.27)
    assert not scores.apart(0.30, 0.03, 0.25, None)
    assert not scores.apart(0.30, None, 0.25, None)
    assert not scores.apart(None, None, 0.25, None)


def test_a_limit_is_the_first_items_and_examples_are_the_same_for_every_model(loaded: dict[str, Any]) -> None:
    samples = ask(local_tasks.Knowing(), loaded["colours"], 5)
    assert {task: [sample["doc_id"] for sample in samples[task]] for task in samples} == {
        "colours_a": [0, 1, 2, 3, 4], "colours_b": [0, 1, 2, 3, 4],
    }  # fmt: skip
    folder = Path(loaded["colours"]["tasks"]["colours_a"].config.dataset_kwargs["cache_dir"]).parent
    task = Catalogue(("colours_a",), str(folder)).load("colours_a", 2)
    first, second = (ask(local_tasks.Knowing(), task, 3)["colours_a"] for _ in range(2))
    assert [s["arguments"] for s in first] == [s["arguments"] for s in second]
    assert first[0]["arguments"][0][0].count("colours_a") == 3


def test_groups_are_taken_apart_and_each_task_is_asked_once() -> None:
    assert expand(["study", "piqa", "x"]) == (*STUDY, "x")
    assert len(set(expand(["study", "mobilellm8"]))) == len(expand(["study", "mobilellm8"])) == 11
    assert {name: shots(name) for name in STUDY if shots(name)} == {"mmlu": 5, "gsm8k": 5}


def test_without_the_harness_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "lm_eval.tasks", None)
    with pytest.raises(UserError, match=r"pip install 'jaxlm\[eval\]'"):
        Catalogue(("piqa",))


def test_a_task_without_a_score_by_item_is_refused() -> None:
    with pytest.raises(UserError, match="task 'x' has no score by item"):
        scores.Items.read("x", [{"filter": "none", "metrics": ["f1"], "f1": (1, 0)}])
