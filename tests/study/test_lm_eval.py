"""The harness's own command line with our models: what it prints, and what it refuses in one line."""

from __future__ import annotations

import functools
import json
import multiprocessing
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import jax
import numpy as np
import pytest
from lm_eval.tasks import TaskManager

from jaxlm import lm_eval
from jaxlm.errors import UserError
from jaxlm.study.harness import WorkdirModel, from_workdir

TASK = """
task: parity
dataset_path: json
dataset_kwargs: {{data_files: {{test: {items}}}, cache_dir: {cache}}}
test_split: test
output_type: multiple_choice
doc_to_text: text
doc_to_choice: choices
doc_to_target: gold
metric_list: [{{metric: acc, aggregation: mean, higher_is_better: true}}]
"""


@pytest.fixture(autouse=True)
def own_process(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What is meant for a process of its own: a handler would write to a stream of a test that is over.

    The harness's own tasks, ten thousand files, are not read.
    """
    monkeypatch.setattr("lm_eval.utils.setup_logging", lambda: None)
    monkeypatch.setattr("lm_eval.tasks.TaskManager", functools.partial(TaskManager, include_defaults=False))
    yield
    multiprocessing.set_start_method(None, force=True)


@pytest.fixture
def task(tmp_path: Path) -> Path:
    items = [{"text": f"{n} is", "choices": ["even", "odd"], "gold": n % 2} for n in range(3)]
    (tmp_path / "items.jsonl").write_text("".join(json.dumps(item) + "\n" for item in items))
    (tmp_path / "parity.yaml").write_text(TASK.format(items=tmp_path / "items.jsonl", cache=tmp_path / "cache"))
    return tmp_path / "parity.yaml"


def test_the_command_line_of_the_harness_knows_our_models(
    runs: SimpleNamespace, task: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    flags = ["--model=jaxlm", f"--tasks={task}", f"--use_cache={tmp_path / 'answers'}"]
    settings = f"--model_args=workdir={runs.diffusion},step=10,mc_samples=4,seed=1"
    lm_eval.main([*flags, settings, f"--output_path={tmp_path / 'out'}"])
    assert "|parity|" in capsys.readouterr().out
    (file,) = (tmp_path / "out").rglob("results_*.json")
    config = json.loads(file.read_text())["config"]
    of = from_workdir(runs.diffusion, step=10, mc_samples=4, seed=1)
    assert of.max_length == 16
    assert {name: config[name] for name in of.identity} == of.identity
    assert (config["objective"], config["mc_samples"]) == ("diffusion-8", 4)
    assert config["mc_stderr"].keys() == {"parity"}
    fresh = from_workdir(runs.diffusion, seed=1, random_init=True)
    assert jax.tree.map(np.shape, fresh.params) == jax.tree.map(np.shape, of.params)
    assert fresh.parameter_hash != of.parameter_hash != from_workdir(runs.diffusion, random_init=True).parameter_hash
    with pytest.raises(UserError, match="the cache .*answers_rank0.db is that of .*diffusion-8"):
        lm_eval.main([*flags, f"--model_args=workdir={runs.ar}"])
    with pytest.raises(UserError, match="Tasks not found: no_such_task, allowed: what `lm_eval ls tasks` lists"):
        lm_eval.main(["--model=jaxlm", settings, "--tasks=no_such_task"])


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--modle=jaxlm", "--tasks=x"], "unrecognized arguments: --modle=jaxlm"),
        (["--model=jaxlm", "--log_samples", "--tasks=x"], "Specify --output_path if providing --log_samples"),
        (["--model=jaxlm", "--limit=3"], "--tasks is missing"),
    ],
)
def test_flags_that_the_harness_refuses_are_one_line(flags: list[str], message: str) -> None:
    with pytest.raises(UserError, match=message) as error:
        lm_eval.main(flags)
    assert "\n" not in str(error.value).strip()


@pytest.mark.parametrize(
    ("given", "more", "message"),
    [
        ({"workdri": "x"}, {}, "--model_args has 'workdri'; did you mean 'workdir'"),
        ({"step": 3}, {}, "--model_args has no workdir"),
        ({"workdir": "x", "seed": "one"}, {}, "--model_args has seed='one', allowed: a whole number"),
        ({"workdir": "x", "random_init": "so"}, {}, "--model_args has random_init='so', allowed: True or False"),
        ({"workdir": "x", "dtype": "float16"}, {}, "--model_args has dtype='float16', allowed: float32 or bfloat16"),
        ({"workdir": "x"}, {"batch_size": 8}, "--batch_size is 8, allowed: none with --model jaxlm"),
    ],
)
def test_arguments_of_a_model_are_checked(given: dict[str, object], more: dict[str, object], message: str) -> None:
    with pytest.raises(UserError, match=message):
        WorkdirModel.create_from_arg_obj(given, more)
