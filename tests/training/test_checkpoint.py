"""Checkpoints that were really truncated, deleted and overwritten; and what may be restored into what."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxlm.config import ModelConfig, RunConfig
from jaxlm.errors import UserError
from jaxlm.families import build_model
from jaxlm.training import checkpoint, loop
from jaxlm.training.fingerprints import params_sha256
from jaxlm.training.metrics import read_lines


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return {"root": tmp_path_factory.mktemp("finished")}


@pytest.fixture
def run(finished: dict[str, Path], tiny: Callable[..., RunConfig], tmp_path: Path) -> Path:
    """A copy of a run of 10 steps with checkpoints at 5 and 10 that was killed before it was marked complete."""
    if "run" not in finished:
        finished["run"] = finished["root"] / "run"
        loop.train(tiny(train={"total_tokens": 10 * 128}), finished["run"], kind="train")
    shutil.copytree(finished["run"], tmp_path / "run")
    (tmp_path / "run" / "COMPLETE").unlink()
    return tmp_path / "run"


def largest(directory: Path) -> Path:
    return max((path for path in directory.rglob("*") if path.is_file()), key=lambda path: path.stat().st_size)


def cut(file: Path) -> None:
    os.truncate(file, file.stat().st_size // 2)


def flip(file: Path) -> None:
    # Orbax reads this without a word and returns other numbers.
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 0x10
    file.write_bytes(bytes(data))


DAMAGE: dict[str, Callable[[Path], None]] = {
    "parameters cut": lambda path: cut(largest(path / "params")),
    "parameters flipped": lambda path: flip(largest(path / "params")),
    "a file gone": lambda path: largest(path / "train").unlink(),
    "an item gone": lambda path: shutil.rmtree(path / "data"),
    "checksums cut": lambda path: cut(path / "checksums.json"),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_checkpoint_falls_back_to_the_one_before_and_says_so(
    damage: str,
    run: Path,
    finished: dict[str, Path],
    tiny: Callable[..., RunConfig],
    capsys: pytest.CaptureFixture[str],
) -> None:
    DAMAGE[damage](checkpoint.directory(run) / "10")
    loop.train(tiny(train={"total_tokens": 10 * 128}), run, kind="train")
    said = capsys.readouterr().err
    assert f"checkpoint 10 of {run} is damaged" in said and "going on after step 5" in said
    assert checkpoint.steps(run) == [5, 10]
    assert len(list((run / "checkpoints").glob("10.damaged-*"))) == 1
    model = build_model(tiny().model, tiny().execution)
    again, straight = (checkpoint.load_params(path, model=model)[0] for path in (run, finished["run"]))
    assert params_sha256(again) == params_sha256(straight)
    assert [line["step"] for line in read_lines(run)] == list(range(1, 11))


def test_with_nothing_left_it_refuses(run: Path, tiny: Callable[..., RunConfig]) -> None:
    for step in ("5", "10"):
        cut(largest(checkpoint.directory(run) / step / "params"))
    with pytest.raises(UserError, match="can be read, 2 are damaged: checkpoint 10 of .*; checkpoint 5 of"):
        loop.train(tiny(train={"total_tokens": 10 * 128}), run, kind="train")


def test_reading_parameters_falls_back_too_but_moves_nothing(
    run: Path, tiny_model_config: ModelConfig, capsys: pytest.CaptureFixture[str]
) -> None:
    model = build_model(tiny_model_config)
    newest, step = checkpoint.load_params(run, model=model)
    assert step == 10
    cut(largest(checkpoint.directory(run) / "10" / "params"))
    older, step = checkpoint.load_params(run, model=model)
    assert step == 5 and params_sha256(older) != params_sha256(newest)
    assert "checkpoint 10 of" in capsys.readouterr().err
    assert checkpoint.steps(run) == [5, 10]
    with pytest.raises(UserError, match="checkpoint 10 of .* is damaged"):
        checkpoint.load_params(run, 10, model=model)
    with pytest.raises(UserError, match="has no checkpoint 7, allowed: 5, 10"):
        checkpoint.load_params(run, 7, model=model)


def test_a_damaged_optimizer_does_not_keep_anyone_from_the_parameters(
    run: Path, tiny_model_config: ModelConfig
) -> None:
    cut(largest(checkpoint.directory(run) / "10" / "train"))
    assert checkpoint.load_params(run, model=build_model(tiny_model_config))[1] == 10


def test_a_run_that_was_killed_before_the_checksums_is_read_as_it_is(run: Path, tiny_model_config: ModelConfig) -> None:
    (checkpoint.directory(run) / "10" / "checksums.json").unlink()
    assert checkpoint.load_params(run, model=build_model(tiny_model_config))[1] == 10


def test_another_shape_is_refused_and_named(run: Path, tiny_model_config: ModelConfig) -> None:
    wider = dataclasses.replace(tiny_model_config, intermediate_size=128)
    expected = r"params/layers/00/feed_forward/down/kernel float32\[64, 32\], expected: float32\[128, 32\]"
    with pytest.raises(UserError, match=expected):
        checkpoint.load_params(run, model=build_model(wider))
    deeper = dataclasses.replace(tiny_model_config, num_layers=3)
    with pytest.raises(UserError, match="params/layers/02/.* absent, expected: float32"):
        checkpoint.load_params(run, model=build_model(deeper))


def test_another_dtype_is_refused_and_not_cast(run: Path, tiny_model_config: ModelConfig) -> None:
    class Halved:
        def abstract_params(self) -> dict:
            full = build_model(tiny_model_config).abstract_params()
            return jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, jnp.bfloat16), full)

    with pytest.raises(UserError, match=r"float32\[384, 32\], expected: bfloat16\[384, 32\]"):
        checkpoint.load_params(run, model=Halved())  # type: ignore[arg-type]


def test_an_optimizer_leaf_that_is_missing_is_not_made_up(run: Path, tiny: Callable[..., RunConfig]) -> None:
    from jaxlm.training.run import open_run

    opened = open_run(tiny(train={"total_tokens": 10 * 128}), "train")
    abstract = {**opened.abstract, "opt_state": (opened.abstract["opt_state"], opened.abstract["step"])}
    with pytest.raises(UserError, match="train/opt_state/.* absent"):
        checkpoint.restore(run, abstract, iter([]))  # type: ignore[arg-type]


def test_the_newest_are_kept(tiny: Callable[..., RunConfig], tmp_path: Path) -> None:
    loop.train(tiny(train={"save_every": 4, "keep": 3, "total_tokens": 18 * 128}), tmp_path / "run", kind="train")
    assert checkpoint.steps(tmp_path / "run") == [12, 16, 18]
    for step in (12, 16, 18):
        path = tmp_path / "run" / "checkpoints" / str(step)
        names = set(json.loads((path / "checksums.json").read_text()))
        assert {"params/_METADATA", "train/_METADATA", "data/process_0-of-1.json"} <= names


def test_what_was_saved_while_training_went_on_is_what_was_there(
    tiny: Callable[..., RunConfig], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Saving happens in the background while the next step is given the same buffers to write into.
    seen: dict[int, str] = {}
    save = checkpoint.Checkpoints.save

    def watching(self: checkpoint.Checkpoints, state: dict, step: int, data: object) -> None:
        seen[step] = params_sha256(jax.tree.map(np.array, state["params"]))
        save(self, state, step, data)  # type: ignore[arg-type]

    monkeypatch.setattr(checkpoint.Checkpoints, "save", watching)
    loop.train(tiny(train={"save_every": 1, "keep": 20}), tmp_path / "run", kind="train")
    model = build_model(tiny().model)
    assert len(seen) == 20
    for step, expected in seen.items():
        assert params_sha256(checkpoint.load_params(tmp_path / "run", step, model=model)[0]) == expected
