"""What cannot run is refused in one line, with nothing left behind; what goes wrong on the way stops with the step."""

from __future__ import annotations

import dataclasses
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import pytest

from jaxlm import train
from jaxlm.config import RunConfig
from jaxlm.errors import UserError
from jaxlm.training import checkpoint, loop, workdir
from jaxlm.training.metrics import read_lines


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return {"root": tmp_path_factory.mktemp("runs")}


@pytest.fixture
def finished(runs: dict[str, Path], tiny: Callable[..., RunConfig]) -> Path:
    """A run of 2 steps that others only read."""
    if "finished" not in runs:
        loop.train(tiny(train={"total_tokens": 2 * 128}), runs["root"] / "finished", kind="train")
        runs["finished"] = runs["root"] / "finished"
    return runs["finished"]


REFUSED: dict[str, tuple[dict[str, dict[str, Any]], str]] = {
    "no data": ({"data": {"dir": ""}}, "data.dir is empty"),
    "no such data": (
        {"data": {"dir": "nowhere"}},
        "'nowhere' is .* data directory, allowed: a directory made by prepare_data",
    ),
    "other windows": (
        {"train": {"seq_len": 8, "batch_tokens": 64}},
        "train.seq_len is 8, allowed: 16",
    ),
    "a vocabulary larger than the model's": (
        {"model": {"vocab_size": 256}},
        "model.vocab_size is 256, allowed: at least 300",
    ),
    "no row for the mask": (
        {"model": {"vocab_size": 300}, "objective": {"kind": "diffusion"}},
        "the mask token is 300, allowed: .* grow model.vocab_size to at least 301",
    ),
    "a mask inside the tokenizer": (
        {"model": {"mask_token_id": 7}, "objective": {"kind": "diffusion"}},
        "the mask token is 7, allowed: an id outside the tokenizer",
    ),
    "too few devices": ({"execution": {"data_parallel": 512}}, "at most the"),
    "a family that is none": ({"model": {"family": "llama9"}}, "model.family is 'llama9'"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_it_is_refused_and_leaves_nothing(case: str, tiny: Callable[..., RunConfig], tmp_path: Path) -> None:
    sections, message = REFUSED[case]
    with pytest.raises(UserError, match=message):
        loop.train(tiny(**{**sections, "convert": {"block_sizes": ()}}), tmp_path / "run", kind="train")
    assert list(tmp_path.iterdir()) == []


def test_a_directory_that_holds_something_else_is_left_alone(tiny: Callable[..., RunConfig], tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("chapter one")
    with pytest.raises(UserError, match="is not empty and no jaxlm workdir"):
        loop.train(tiny(), tmp_path, kind="train")
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]


def test_a_workdir_of_another_run_is_refused_with_the_fields(
    finished: Path, tiny: Callable[..., RunConfig], tmp_path: Path
) -> None:
    config = tiny(train={"total_tokens": 2 * 128, "learning_rate": 0.5}, model={"rope_theta": 5.0})
    expected = (
        r"these differ: model.rope_theta \(10000.0 there, 5.0 here\), train.learning_rate \(0.01 there, 0.5 here\)"
    )
    with pytest.raises(UserError, match=expected):
        loop.train(config, finished, kind="train")
    diffusion = tiny(train={"total_tokens": 2 * 128}, objective={"kind": "diffusion"})
    with pytest.raises(UserError, match="is a train run, allowed: the same command"):
        loop.train(diffusion, finished, kind="convert", init_from=str(finished))
    same = tiny(train={"total_tokens": 2 * 128})
    with pytest.raises(UserError, match=r"--init_from \(None there, 'elsewhere' here\)"):
        loop.train(same, finished, kind="train", init_from="elsewhere")


def test_bookkeeping_may_change_and_so_may_the_place_of_the_data(
    tiny: Callable[..., RunConfig], tmp_path: Path, data_dir: Path
) -> None:
    run, moved = tmp_path / "run", tmp_path / "moved"
    loop.train(tiny(train={"stop_at": 3}), run, kind="train")
    shutil.copytree(data_dir, moved)
    loop.train(tiny(train={"stop_at": 6, "save_every": 1, "log_every": 2}, data={"dir": str(moved)}), run, kind="train")
    assert checkpoint.steps(run) == [5, 6]
    assert [line["step"] for line in read_lines(run)] == [1, 2, 3, 4, 6]
    stored, _ = workdir.read(run)
    assert (stored.train.save_every, stored.data.dir) == (1, str(moved))


@pytest.mark.parametrize("name", ["data_sha256", "tokenizer_sha256"])
def test_other_data_under_the_same_name_are_refused(
    name: str, tiny: Callable[..., RunConfig], tmp_path: Path, data_dir: Path
) -> None:
    shutil.copytree(data_dir, tmp_path / "data")
    config = tiny(train={"stop_at": 2}, data={"dir": str(tmp_path / "data")})
    loop.train(config, tmp_path / "run", kind="train")
    file = tmp_path / "data" / "fingerprint.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), name: "f" * 64}))
    with pytest.raises(
        UserError, match=rf"was started on other data; these differ: {name} \(\w+ there, ffffffffffff here\)"
    ):
        loop.train(dataclasses.replace(config, train=tiny().train), tmp_path / "run", kind="train")


def test_a_finished_run_refuses_other_data_and_does_not_miss_its_own(
    tiny: Callable[..., RunConfig], tmp_path: Path, data_dir: Path
) -> None:
    shutil.copytree(data_dir, tmp_path / "data")
    config = tiny(train={"total_tokens": 2 * 8 * 16}, data={"dir": str(tmp_path / "data")})
    loop.train(config, tmp_path / "run", kind="train")
    file = tmp_path / "data" / "fingerprint.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "data_sha256": "f" * 64}))
    with pytest.raises(UserError, match="was started on other data; these differ: data_sha256"):
        loop.train(config, tmp_path / "run", kind="train")
    shutil.rmtree(tmp_path / "data")
    loop.train(config, tmp_path / "run", kind="train")  # complete, and needs no data to say so


def test_a_source_that_does_not_fit_is_refused(finished: Path, tiny: Callable[..., RunConfig], tmp_path: Path) -> None:
    (tmp_path / "hf").mkdir()
    (tmp_path / "hf" / "config.json").write_text('{"model_type": "llama"}')
    run = tmp_path / "run"
    for config, kind, source, message in (
        (tiny(), "train", "nowhere", "'nowhere' does not exist"),
        (tiny(), "train", str(tmp_path / "hf"), "is a Hugging Face directory; allowed here: a jaxlm workdir"),
        (tiny(), "train", f"{finished}@1", "has no checkpoint 1, allowed: 2"),
        (tiny(model={"hidden_size": 48}), "train", str(finished), r"embedding/table \[384, 32\], allowed: \[384, 48\]"),
        (tiny(), "convert", str(finished), "objective.kind is 'causal', allowed: 'diffusion' for a conversion"),
        (
            tiny(objective={"kind": "diffusion"}, model={"rope_theta": 7.0}),
            "convert",
            str(finished),
            r"has another model; these differ: model.rope_theta \(10000.0 there, 7.0 here\)",
        ),
    ):
        with pytest.raises(UserError, match=message):
            loop.train(config, run, kind=kind, init_from=source)
        assert not run.exists()


def test_training_goes_on_from_the_parameters_of_another_run(
    finished: Path, tiny: Callable[..., RunConfig], tmp_path: Path
) -> None:
    loop.train(tiny(train={"stop_at": 1}), tmp_path / "run", kind="train", init_from=f"{finished}@2")
    manifest = workdir.read_json(tmp_path / "run" / "manifest.json")
    assert manifest["init_from"] == {"source": f"{finished}@2", "step": 2}
    loop.train(tiny(train={"stop_at": 1}), tmp_path / "fresh", kind="train")
    first, fresh = (read_lines(tmp_path / name)[0]["loss"] for name in ("run", "fresh"))
    assert first < fresh - 0.1


def test_the_mask_is_resolved_and_written_down(finished: Path, tiny: Callable[..., RunConfig], tmp_path: Path) -> None:
    config = tiny(objective={"kind": "diffusion"}, train={"total_tokens": 128})
    for _ in range(2):  # the second start gives no mask either, and is the same run
        loop.train(config, tmp_path / "run", kind="convert", init_from=str(finished))
    stored, kind = workdir.read(tmp_path / "run")
    assert (stored.model.mask_token_id, kind) == (300, "convert")


def test_a_loss_that_is_not_finite_stops_the_run_with_its_step(
    tiny: Callable[..., RunConfig], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compile_step = loop.compile_step

    def poisoned(*args: Any) -> Any:
        step, seconds = compile_step(*args)

        def run(state: Any, batch: Any) -> Any:
            bad = int(state["step"]) == 4
            state, metrics = step(state, batch)
            return state, {**metrics, "loss": jnp.float32(jnp.inf) if bad else metrics["loss"]}

        return run, seconds

    monkeypatch.setattr(loop, "compile_step", poisoned)
    with pytest.raises(FloatingPointError, match="loss is inf at step 5; the last checkpoint is older"):
        loop.train(tiny(train={"save_every": 1}), tmp_path / "run", kind="train")
    assert max(checkpoint.steps(tmp_path / "run")) == 4
    assert [line["step"] for line in read_lines(tmp_path / "run")] == [1, 2, 3, 4]


def test_the_command_refuses_flags_it_does_not_know(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="--workdir"):
        train.main(["--config=configs/pocket/llama3_canon.py"])
    with pytest.raises(UserError, match="'--wrkdir=x'; did you mean '--workdir'"):
        train.main(["--config=configs/pocket/llama3_canon.py", "--wrkdir=x", f"--workdir={tmp_path}/run"])
    assert list(tmp_path.iterdir()) == []
