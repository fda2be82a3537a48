"""A study is done once, by whoever is at it, however often it is killed; what fails is told and tried again."""

from __future__ import annotations

import dataclasses
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from jaxlm.errors import Interrupted, UserError
from jaxlm.study import cells, directory, evaluation, failures, runner
from jaxlm.study.cells import BROKEN as FAILED
from jaxlm.study.cells import FINISHED, LEFT_EMPTY, MISSING, Study
from jaxlm.training import loop
from tests import local_tasks
from tests.study import tiny_study
from tests.study.tiny_study import BROKEN, ROWS

KILLS = 5
SCRIPT = Path(tiny_study.__file__)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> SimpleNamespace:
    """A study of all rows, two of which fail: `config`, `workdir`, the `study`, and the `seconds` it took."""
    root = tmp_path_factory.mktemp("study")
    config = tiny_study.config(root, ROWS | BROKEN)
    asked = dataclasses.replace(config.evaluate, tasks="truths", include_path=str(local_tasks.write(root / "tasks")))
    config = dataclasses.replace(config, evaluate=asked)
    started = time.monotonic()
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(Path(__file__).parents[2])
        study = runner.run(config, root / "run")
    return SimpleNamespace(config=config, workdir=root / "run", study=study, seconds=time.monotonic() - started)


def statuses(study: Study) -> dict[str, str]:
    return {result.cell.name: result.status for result in study.results}


def answers(workdir: Path) -> dict[str, Any]:
    """Every evaluation of a study, but for the place of the answers."""
    return {str(f.relative_to(workdir)): json.loads(f.read_text()) for f in workdir.glob("runs/**/evaluation.json")}


def texts(workdir: Path) -> dict[str, list[str]]:
    files = workdir.glob("runs/**/generations.jsonl")
    return {
        str(f.relative_to(workdir)): [json.loads(line)["text"] for line in f.read_text().splitlines()] for f in files
    }


def table(study: Study) -> list[tuple[Any, ...]]:
    """What is compared: everything about a cell but its times."""
    return [
        (r.cell.name, r.status, r.error, r.run and r.run.evaluation, r.run and r.run.validations) for r in study.results
    ]


def test_every_row_has_what_was_asked(undisturbed: SimpleNamespace) -> None:
    seeded = {f"{row}, seed {seed}": FINISHED for row in ("ar", "diffusion", "causal") for seed in (0, 1)}
    broken = {f"{row}, seed {seed}": FAILED for row in BROKEN for seed in (0, 1)}
    assert statuses(undisturbed.study) == seeded | {"unnamed, seed 0": LEFT_EMPTY} | broken
    own, causal = (undisturbed.study.of(row)[0] for row in ("diffusion", "causal"))
    assert own.run.evaluation["parameter_hash"] == causal.run.evaluation["parameter_hash"]
    assert own.run.evaluation["loss"] != causal.run.evaluation["loss"]
    assert len(own.windows.nats_N) == 8 and len(own.items("truths")) == 3
    assert own.decode["tokens_per_sec"] > 0 and len(own.run.generations) == 1
    assert {"train", "evaluate", "generate", "decode"} <= set(undisturbed.study.of("ar")[1].seconds)
    first, second = undisturbed.study.of("ar")
    assert first.run.config.seed == 0 and second.run.config.seed == 1
    assert first.run.evaluation["loss"] != second.run.evaluation["loss"]


def test_failures_say_the_step_and_why(undisturbed: SimpleNamespace) -> None:
    bursts, follows = (undisturbed.study.of(row)[0] for row in BROKEN)
    assert bursts.error.startswith("train: FloatingPointError: ") and "step" in bursts.error
    assert follows.error == "beginning: it needs bursts, seed 0, which failed"
    assert "Traceback" in json.loads((bursts.directory / "failed.json").read_text())["traceback"]
    with pytest.raises(SystemExit) as stop:
        failures.conclude(undisturbed.study)
    assert stop.value.code == 1
    failures.conclude(undisturbed.study, ["causal"])


def test_finished_rows_are_not_asked_again(undisturbed: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop, "train", None)
    monkeypatch.setattr(evaluation, "evaluate", None)
    assert table(runner.run(undisturbed.config, undisturbed.workdir, ["causal"])) == table(undisturbed.study)


def test_killed_five_times_it_ends_with_the_same_table(undisturbed: SimpleNamespace, tmp_path: Path) -> None:
    config = tiny_study.write(undisturbed.config, tmp_path / "config.json")
    command = [sys.executable, str(SCRIPT), str(config), str(tmp_path / "run")]
    moments = random.Random(7)
    for _ in range(KILLS):
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
            assert process.stdout is not None and process.stdout.readline() == "begun\n"
            time.sleep(moments.uniform(0, undisturbed.seconds / 2))
            process.kill()
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 1 and "4 of 11 runs failed" in done.stderr
    assert table(cells.read(tmp_path / "run")) == table(undisturbed.study)
    assert answers(tmp_path / "run") == answers(undisturbed.workdir)
    assert texts(tmp_path / "run") == texts(undisturbed.workdir)


def test_two_processes_share_a_study(undisturbed: SimpleNamespace, tmp_path: Path) -> None:
    config = tiny_study.config(tmp_path, {"ar": ROWS["ar"], "again": ROWS["ar"]})
    study = dataclasses.replace(config, decode=dataclasses.replace(config.decode, rounds=0, samples=0))
    command = [
        sys.executable,
        str(SCRIPT),
        str(tiny_study.write(study, tmp_path / "config.json")),
        str(tmp_path / "run"),
    ]
    both = [subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True) for _ in range(2)]
    said = [process.communicate()[1] for process in both]
    assert [process.returncode for process in both] == [0, 0], said
    steps = [line.partition("] ")[2].rpartition(" ")[0] for part in said for line in part.splitlines() if "] " in line]
    trained = [step.partition(": ")[0] for step in steps if ": train" in step]
    assert sorted(trained) == sorted(statuses(cells.read(tmp_path / "run")))  # each once
    assert set(statuses(cells.read(tmp_path / "run")).values()) == {FINISHED}


@pytest.fixture
def one_row(undisturbed: SimpleNamespace, tmp_path: Path) -> Iterator[SimpleNamespace]:
    """A study of `ar` under one seed, without tasks and speed, whose data are there."""
    config = dataclasses.replace(tiny_study.config(tmp_path, {"ar": ROWS["ar"]}), seeds=(0,))
    config = dataclasses.replace(config, decode=dataclasses.replace(config.decode, rounds=0, samples=0))
    shutil.copytree(undisturbed.workdir / "data", tmp_path / "run" / "data")
    shutil.copytree(undisturbed.workdir / "runs" / "ar" / "seed_0", tmp_path / "run" / "runs" / "ar" / "seed_0")
    (tmp_path / "run" / "runs" / "ar" / "seed_0" / "evaluation.json").unlink()
    shutil.copy(undisturbed.workdir / "study.json", tmp_path / "run" / "study.json")
    (tmp_path / "run" / "study.json").write_text(json.dumps(tiny_study.to_dict(config)))
    yield SimpleNamespace(config=config, workdir=tmp_path / "run")


def test_what_failed_is_tried_again(
    one_row: SimpleNamespace, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def no_memory(*given: Any) -> dict[str, Any]:
        raise RuntimeError("RESOURCE_EXHAUSTED: Out of memory\nallocating 1 byte")

    with monkeypatch.context() as patch:
        patch.setattr(evaluation, "evaluate", no_memory)
        study = runner.run(one_row.config, one_row.workdir)
    line = "evaluate: RuntimeError: RESOURCE_EXHAUSTED: Out of memory allocating 1 byte"
    assert study.results[0].status == FAILED and study.results[0].error == line
    assert "[1/1] ar, seed 0: evaluate failed: RuntimeError" in capsys.readouterr().err
    assert statuses(runner.run(one_row.config, one_row.workdir)) == {"ar, seed 0": FINISHED}


def test_mistakes_of_the_user_end_with_their_own_code(
    one_row: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*given: Any) -> dict[str, Any]:
        raise UserError("no such thing")

    monkeypatch.setattr(evaluation, "evaluate", refuse)
    study = runner.run(one_row.config, one_row.workdir)
    with pytest.raises(UserError, match="1 of 1 runs failed, the first ar, seed 0: evaluate: no such thing"):
        failures.conclude(study)


def test_a_signal_stops_it_and_the_same_call_goes_on(one_row: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> None:
    def terminated(*given: Any) -> dict[str, Any]:
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(5)
        raise AssertionError("the signal came")

    def interrupted(*given: Any) -> dict[str, Any]:
        raise Interrupted(signal.SIGINT)

    for stopping, error in ((terminated, SystemExit), (interrupted, Interrupted)):
        with monkeypatch.context() as patch:
            patch.setattr(evaluation, "evaluate", stopping)
            with pytest.raises(error) as stop:
                runner.run(one_row.config, one_row.workdir)
        if error is SystemExit:
            assert stop.value.code == 143
        assert not (one_row.workdir / "runs" / "ar" / "seed_0" / "failed.json").exists()
    assert statuses(runner.run(one_row.config, one_row.workdir)) == {"ar, seed 0": FINISHED}


def test_more_may_be_added_and_only_what_is_named_is_done(one_row: SimpleNamespace) -> None:
    more = dataclasses.replace(
        one_row.config,
        rows=("other: read ar --reading=causal", *one_row.config.rows, "unnamed:"),
        seeds=(3,),
        learning_rates=(1e-3,),
        groups=("all: ar unnamed",),
        title="more",
    )
    study = runner.run(more, one_row.workdir, ["unnamed"])
    assert study.config.seeds == (0, 3) and study.config.title == "more" and study.config.learning_rates == (1e-3,)
    assert set(statuses(study).values()) == {MISSING, LEFT_EMPTY, cells.BEGUN}
    with pytest.raises(UserError, match="there is no row 'unnamd'; did you mean"):
        runner.run(more, one_row.workdir, ["unnamd"])


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"rows": (f"ar: {ROWS['ar']} --config.train.learning_rate=0.5",)}, "rows 'ar'"),
        ({"data": ("text: --config=configs/data/files.py",)}, "data 'text'"),
        ({"data": ("new: --config=configs/data/files.py",)}, "the first data"),
        ({"evaluate": {"draws": 3}}, "evaluate.draws"),
    ],
    ids=["rows", "data", "first data", "evaluate"],
)
def test_another_study_is_refused(one_row: SimpleNamespace, change: dict[str, Any], named: str) -> None:
    values = {**tiny_study.to_dict(one_row.config), **change}
    before = (one_row.workdir / "study.json").read_text()
    with pytest.raises(UserError, match="is another (study|run); these differ") as error:
        runner.run(tiny_study.build(type(one_row.config), values), one_row.workdir)
    assert named in str(error.value) or "learning_rate" in str(error.value)
    assert (one_row.workdir / "study.json").read_text() == before


@pytest.mark.parametrize(
    ("asked", "named"),
    [
        ({"controls": "length_olny"}, "evaluate.controls has 'length_olny'"),
        ({"tasks": "hellaswagg"}, "no task 'hellaswagg'"),
        ({"mean": "held_out_wrod", "held_out_items": 4}, "evaluate.mean has 'held_out_wrod', which is not asked"),
        ({"truth": "held_out_word"}, "evaluate.truth has 'held_out_word', which is not asked"),
    ],
    ids=["controls", "tasks", "mean", "truth"],
)
def test_what_cannot_be_asked_is_refused_before_anything_is_made(
    asked: dict[str, Any], named: str, tmp_path: Path
) -> None:
    config = tiny_study.config(tmp_path, {"ar": ROWS["ar"]})
    base = dataclasses.replace(config.evaluate, include_path="", held_out_items=0, tasks="", mean="mean_6")
    changed = dataclasses.replace(config, evaluate=dataclasses.replace(base, **asked))
    with pytest.raises(UserError, match=named):
        runner.run(changed, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_other_decoding_is_refused_once_there_may_be_some(one_row: SimpleNamespace) -> None:
    def entered(**decode: int) -> None:
        config = dataclasses.replace(one_row.config, decode=dataclasses.replace(one_row.config.decode, **decode))
        directory.enter(config, one_row.workdir, print)

    entered(rounds=1, new_tokens=4)  # there was none
    entered(rounds=1, new_tokens=4)
    with pytest.raises(UserError, match=r"decode.new_tokens \(4 there, 5 here\)"):
        entered(rounds=1, new_tokens=5)


def test_a_directory_of_something_else_is_refused(one_row: SimpleNamespace, tmp_path: Path) -> None:
    (tmp_path / "letters").mkdir()
    (tmp_path / "letters" / "a.txt").write_text("dear")
    with pytest.raises(UserError, match="holds something else"):
        runner.run(one_row.config, tmp_path / "letters")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("text: nothing", "data 'text' has 'nothing', allowed: --config=FILE"),
        ("text: --config=configs/data/files.py --config.tokenizr=gpt2", "data 'text': .*tokenizr"),
        ("text: --config=configs/data/files.py --config.tokenizer={data}/later/tokenizer", "needs 'later'"),
    ],
)
def test_a_line_that_prepares_no_data_is_refused(one_row: SimpleNamespace, line: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        runner.run(dataclasses.replace(one_row.config, data=(line,)), one_row.workdir / "new")
    assert not (one_row.workdir / "new").exists()
