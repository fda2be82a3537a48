"""`evaluate --tasks`: what it writes beside chance and the controls, what it keeps, and what it refuses."""

from __future__ import annotations

import functools
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from lm_eval.tasks import TaskManager

from jaxlm import evaluate
from jaxlm.errors import UserError
from jaxlm.evaluation.continuation import Continuations
from jaxlm.evaluation.controls import LengthOnly
from jaxlm.study import benchmarks, harness
from tests import local_tasks


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return local_tasks.write(tmp_path_factory.mktemp("tasks"))


@pytest.fixture
def workdir(runs: SimpleNamespace, tmp_path: Path) -> Path:
    """A copy of the autoregressive run: what is kept of a task lies in it."""
    return Path(shutil.copytree(runs.ar, tmp_path / "ar"))


def record(out: Path, *flags: str) -> dict[str, Any]:
    evaluate.main([f"--out={out}", *flags])
    return dict(json.loads(out.read_text()))


def test_every_task_stands_beside_chance_and_both_controls(
    workdir: Path, folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    flags = (f"--workdir={workdir}", f"--include_path={folder}", "--tasks=colours,truths", "--limit=6", "--log_samples")
    found = record(tmp_path / "a.json", *flags)
    assert found["loss"] is not None and found["num_windows"] > 6, "the limit is one of items"
    task = found["tasks"]["colours"]
    assert (task["n"], task["chance"], task["num_fewshot"], task["version"]) == (12, 0.25, 0, 2.0)
    assert task["subtasks"].keys() == {"colours_a", "colours_b"}
    assert task["truncated"]["contexts"] == 48 and task["truncated"]["continuations"] == 0
    for part in (task, found["tasks"]["truths"], *task["subtasks"].values()):
        assert part["controls"].keys() == {"length_only", "random_init"}
        assert part["mc_stderr"] is None
    correct = [float(x) for name in ("colours_a", "colours_b") for x in found["items"][name]["acc"].split()]
    assert sum(correct) / 12 == pytest.approx(task["acc"])
    lines = [json.loads(line) for line in (tmp_path / "a_samples" / "colours.jsonl").read_text().splitlines()]
    assert len(lines) == 12 and len(lines[0]["log_likelihoods"]) == 4
    assert all((max(line["log_likelihoods"]) == line["log_likelihoods"][line["gold"]]) == line["acc"] for line in lines)
    assert found["mean_6"] == {"acc": None, "acc_norm": None, "stderr": None}
    printed = capsys.readouterr().out
    assert "length only" in printed and "random init" in printed and "colours" in printed


def test_what_was_answered_is_not_asked_again_after_a_kill_or_at_the_end(
    workdir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found: list[int] = []
    stream = Continuations.stream

    def killed_at_ten(self: Continuations, *args: Any) -> Iterator[Any]:
        for result in stream(self, *args):
            if len(found) == 10:
                found.append(-1)
                raise KeyboardInterrupt
            found.append(1)
            yield result

    monkeypatch.setattr(Continuations, "stream", killed_at_ten)
    folder = local_tasks.write(tmp_path / "tasks")
    flags = (
        f"--workdir={workdir}",
        "--what=",
        "--tasks=colours_a",
        "--limit=4",
        "--controls=",
        f"--include_path={folder}",
    )
    with pytest.raises(KeyboardInterrupt):
        record(tmp_path / "a.json", *flags)
    assert not (tmp_path / "a.json").exists()
    first = record(tmp_path / "a.json", *flags)
    assert found == [1] * 10 + [-1] + [1] * 6 and first["loss"] is None
    assert record(tmp_path / "b.json", *flags)["tasks"] == first["tasks"]
    assert len(found) == 17
    # Another item is another question, and so is another number of them.
    docs = (folder / "colours_a.jsonl").read_text().splitlines()
    (folder / "colours_a.jsonl").write_text("\n".join([docs[0].replace("0:", "99:"), *docs[1:]]) + "\n")
    record(tmp_path / "c.json", *flags)
    assert len(found) == 17 + 16
    kept = sorted(path.suffix for path in (workdir / benchmarks.FOLDER).iterdir())
    assert kept == [".json", ".json", ".jsonl", ".jsonl"]


def test_equal_logits_score_what_the_length_only_baseline_scores(runs: SimpleNamespace, folder: Path) -> None:
    model = harness.from_workdir(runs.ar)
    model.params = jax.tree.map(jnp.zeros_like, model.params)
    baseline = LengthOnly(model, 384)
    for name, loaded in benchmarks.Benchmarks(benchmarks.Questions(("colours", "truths"), str(folder))).loaded.items():
        ours, lengths = (benchmarks.tasks.ask(lm, loaded, None) for lm in (model, baseline))
        # The mass on true options follows the last bit of ln V; which option is the likeliest does not.
        tolerance = 1e-5 if name == "truths" else 0
        for task in ours:
            for one, other in zip(ours[task], lengths[task], strict=True):
                for metric in one["metrics"]:
                    assert one[metric] == pytest.approx(other[metric], rel=tolerance, abs=0)


def test_fresh_parameters_are_at_chance_where_options_are_equally_long(runs: SimpleNamespace, tmp_path: Path) -> None:
    folder = local_tasks.write(tmp_path / "tasks", num_items=120)
    questions = benchmarks.Questions(("colours_a",), str(folder), controls=("random_init",), step=10)
    task = benchmarks.Benchmarks(questions).of_workdir(Path(shutil.copytree(runs.ar, tmp_path / "ar")))["tasks"][
        "colours_a"
    ]
    control = task["controls"]["random_init"]
    assert abs(control["acc"] - task["chance"]) < 3 * control["acc_stderr"]


def test_tasks_that_are_read_once_are_put_to_several_models_and_readings(
    runs: SimpleNamespace, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = benchmarks.Benchmarks(benchmarks.Questions(("colours_b",), str(folder), limit=2, mc_samples=4))
    monkeypatch.setattr(benchmarks.tasks.Catalogue, "load", lambda *_: pytest.fail("read again"))
    kept = tmp_path / "read" / "lm_eval"  # of a row without a workdir
    for reading, drawn in (("", True), ("causal", False), ("in_order", False)):
        found = asked.of_workdir(runs.diffusion, reading=reading, folder=kept)["tasks"]["colours_b"]
        assert (found["n"], found["mc_stderr"] is not None) == (2, drawn)
    asked.of_workdir(runs.ar, folder=kept)
    assert len(list(kept.glob("*.json"))) == 4 and not (runs.diffusion / benchmarks.FOLDER).exists()


def test_what_bounds_will_cost_in_all_is_said_first(
    runs: SimpleNamespace, folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    questions = benchmarks.Questions(("colours", "truths"), str(folder), 3, controls=("random_init",), mc_samples=8)
    found = benchmarks.Benchmarks(questions).of_workdir(Path(shutil.copytree(runs.diffusion, tmp_path / "diffusion")))
    first = capsys.readouterr().out.splitlines()[0]
    # Two tasks of 3 items with 4 options, one of 3 with 3, of which the harness asks all.
    assert first.startswith("33 answers, up to 8 masks each") and "asked of 2 models: at most 528 rows" in first
    assert "a quarter of them with --mc_samples=2" in first and "half of them with --controls=length_only" in first
    assert all(task["mc_stderr"] is not None for task in found["tasks"].values())


def test_a_model_without_windows_has_scores_and_no_loss(
    workdir: Path, folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = json.loads((workdir / "config.json").read_text())
    config["data"]["dir"] = "gone"
    (workdir / "config.json").write_text(json.dumps(config))
    flags = (f"--workdir={workdir}", "--tasks=colours_b", f"--include_path={folder}", "--limit=1", "--controls=")
    found = record(tmp_path / "a.json", *flags)
    assert found["loss"] is found["baselines"] is found["conditions"]["data_sha256"] is None
    assert found["tasks"]["colours_b"]["n"] == 1 and found["tasks"]["colours_b"]["stderr"] is None
    assert "no windows at 'gone', so no loss" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("flags", "complaint"),
    [
        (["--tasks=colour"], "no task 'colour'; did you mean 'colours'"),
        (["--tasks="], "--tasks names no task, allowed: study, mobilellm8, offline"),
        (["--tasks=colours", "--controls=lenght_only"], "--controls has 'lenght_only'; did you mean 'length_only'"),
        (["--tasks=colours", "--limit=0"], "--limit is 0, allowed: at least 1"),
        (["--tasks=colours", "--include_path=nowhere"], "--include_path is 'nowhere', allowed: a folder"),
        (["--tasks=absent"], "the data of task 'absent' cannot be read (FileNotFoundError"),
        (["--tasks=bigbench_social_iqa"], "the offline tasks need bigbench-1.0.0.tar.gz (358 MB)"),
        (["--num_fewshot=1"], "--num_fewshot is given without --tasks"),
        (["--what="], "--what is empty"),
    ],
)  # fmt: skip
def test_mistakes_are_one_line_before_anything_is_computed(
    runs: SimpleNamespace,
    folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    flags: list[str],
    complaint: str,
) -> None:
    monkeypatch.setattr("jaxlm.study.evaluation.evaluate", lambda *_: pytest.fail("the loss was computed"))
    # The harness's own 13,000 definitions take ten seconds to index.
    monkeypatch.setattr("lm_eval.tasks.TaskManager", functools.partial(TaskManager, include_defaults=False))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("JAXLM_BIGBENCH", str(tmp_path))
    absent = json.loads((folder / "colours_a.yaml").read_text()) | {"task": "absent"}
    absent["dataset_kwargs"] = {"data_files": {"test": str(folder / "absent.jsonl")}}
    (folder / "absent.yaml").write_text(json.dumps(absent))
    if "--tasks=" in flags[0] and not any("include_path" in flag for flag in flags):
        flags = [*flags, f"--include_path={folder}"]
    out = tmp_path / "out.json"
    with pytest.raises(UserError) as error:
        evaluate.main([f"--workdir={runs.ar}", f"--out={out}", *flags])
    assert complaint in str(error.value)
    assert len(str(error.value).splitlines()) == 1
    assert not out.exists()
