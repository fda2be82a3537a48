"""The mean of a run's best checkpoints: which they are, what the mean is, and that it is a workdir like any other."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import jaxlm
from jaxlm import evaluate
from jaxlm import merge as command
from jaxlm.config import RunConfig
from jaxlm.errors import UserError
from jaxlm.layers.parameters import paths
from jaxlm.training import checkpoint, loop, workdir
from jaxlm.training.merge import Validated, best
from jaxlm.training.metrics import read_lines

STEPS, LAST = 8, (6, 7, 8)  # of the conversion, and those of its last phase


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return {"root": tmp_path_factory.mktemp("merge")}


@pytest.fixture
def config(tiny: Callable[..., RunConfig]) -> RunConfig:
    every = {"save_every": 1, "eval_every": 1, "eval_windows": 8, "keep": STEPS}
    return tiny(
        train={"total_tokens": STEPS * 128, **every},
        objective={"kind": "diffusion"},
        convert={"block_sizes": (4,), "warmup_share": 0.625, "decay_block_sizes": (4,), "decay_share": 0.375},
    )


@pytest.fixture
def run(runs: dict[str, Path], config: RunConfig, tiny: Callable[..., RunConfig]) -> Path:
    """A conversion, which others only read: 5 steps of warmup and 3 of decay, both in blocks of 4."""
    if "run" not in runs:
        loop.train(tiny(train={"total_tokens": 2 * 128}), runs["root"] / "ar", kind="train")
        loop.train(config, runs["root"] / "run", kind="convert", init_from=str(runs["root"] / "ar"))
        runs["run"] = runs["root"] / "run"
    return runs["run"]


def merged(run: Path, out: Path, top_k: int) -> Path:
    command.main([f"--workdir={run}", f"--top_k={top_k}", f"--out={out}"])
    return out


def losses(run: Path) -> dict[int, float]:
    return {line["step"]: line["loss"] for line in read_lines(run) if "eval" in line}


def arrays(workdir: Path, step: int | None = None) -> dict[str, np.ndarray]:
    return {path: np.asarray(leaf) for path, leaf in paths(jaxlm.load(workdir, step).params)}


@pytest.mark.parametrize("top_k", [2, 3])
def test_it_is_the_mean_of_those_with_the_least_loss(top_k: int, run: Path, tmp_path: Path) -> None:
    loss = losses(run)
    chosen = sorted(LAST, key=loss.__getitem__)[:top_k]
    found = arrays(merged(run, tmp_path / "out", top_k))
    parts = [arrays(run, step) for step in chosen]
    for path, value in found.items():
        expected = np.mean([part[path].astype(np.float64) for part in parts], axis=0).astype(np.float32)
        np.testing.assert_array_equal(value, expected, err_msg=path)
    said = workdir.read_json(tmp_path / "out" / "manifest.json")["merged"]
    assert said == {"workdir": str(run), "checkpoints": [{"step": s, "loss": loss[s]} for s in chosen]}
    assert checkpoint.steps(tmp_path / "out") == [max(chosen)]


def test_one_alone_is_that_checkpoint_bitwise(run: Path, tmp_path: Path) -> None:
    loss = losses(run)
    least = min(LAST, key=loss.__getitem__)
    one, same = arrays(merged(run, tmp_path / "out", 1)), arrays(run, least)
    assert jaxlm.load(tmp_path / "out").step == least
    for path, value in one.items():
        assert value.tobytes() == same[path].tobytes(), path


def test_only_checkpoints_of_the_last_phase_that_are_there_and_comparable_count(
    run: Path, config: RunConfig, tmp_path: Path
) -> None:
    def lines(values: dict[int, float], windows: int = 8) -> list[dict[str, Any]]:
        return [{"step": s, "eval": "validation", "loss": x, "num_windows": windows} for s, x in values.items()]

    (tmp_path / "checkpoints").mkdir()
    for step in (2, 3, 6, 7, 8):
        (tmp_path / "checkpoints" / str(step)).mkdir()
    # 2 and 3 are blocks of 4 too, but of the warmup; 5 is gone; 8 was trained on and not validated.
    values = {2: 0.1, 3: 0.2, 5: 0.3, 6: 2.0, 7: 1.0}
    other = lines({6: 0.5}, windows=4)  # an evaluation on fewer windows, written again below
    written = [{"step": 8, "loss": 0.0}, *other, *lines(values)]
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in written))
    assert best(tmp_path, config, "convert", 2) == [Validated(7, 1.0), Validated(6, 2.0)]
    with pytest.raises(
        UserError, match=r"--top_k is 3, allowed: at most 2, the checkpoints of the last phase \(block 4\)"
    ):
        best(tmp_path, config, "convert", 3)
    alike = lines({6: 1.0, 7: 1.0})
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in alike))
    assert best(tmp_path, config, "convert", 1) == [Validated(7, 1.0)], "of equal ones the newer"


def test_it_is_evaluated_generates_is_a_source_and_is_complete(
    run: Path, config: RunConfig, tiny: Callable[..., RunConfig], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = merged(run, tmp_path / "out", 3)
    assert "out: the mean of 3 checkpoints of " in capsys.readouterr().out
    evaluate.main([f"--workdir={out}", "--what=loss", f"--out={out / 'evaluation.json'}"])
    record = json.loads((out / "evaluation.json").read_text())
    assert [part["block_size"] for part in record["loss_by_block_size"].values()] == [4, 0]
    opened = jaxlm.load(out)
    assert opened.structure.block_size == 4
    (written,) = opened.generate(["a model reads"], max_new_tokens=4, block_size=4, ignore_eos=True)
    assert len(written.token_ids) == 4 and max(written.token_ids) < 300

    files = {path: path.stat().st_mtime_ns for path in out.rglob("*")}
    loop.train(config, out, kind="convert", init_from=str(run.parent / "ar"))
    assert "is complete, nothing to do" in capsys.readouterr().err
    assert {path: path.stat().st_mtime_ns for path in out.rglob("*")} == files
    diffusion = tiny(train={"stop_at": 1}, objective={"kind": "diffusion"})
    loop.train(diffusion, tmp_path / "next", kind="train", init_from=str(out))
    assert workdir.read_json(tmp_path / "next" / "manifest.json")["init_from"]["step"] == 8


@pytest.mark.parametrize(
    ("flags", "complaint"),
    [
        (["--workdir=nowhere"], "'nowhere' does not exist"),
        (["--workdir={data}"], "is no jaxlm workdir"),
        (["--workdir={run}", "--top_k=0"], "--top_k is 0, allowed: at least 1"),
        (
            ["--workdir={run}", "--top_k=4"],
            "--top_k is 4, allowed: at most 3, the checkpoints of the last phase (block 4)",
        ),
        (["--workdir={ar}", "--top_k=1"], "--top_k is 1, allowed: at most 0, the checkpoints in "),
        (["--workdir={run}", "--out={run}"], "is not empty, allowed: a new or empty directory"),
    ],
)
def test_mistakes_are_one_line_and_leave_nothing(
    flags: list[str], complaint: str, run: Path, data_dir: Path, tmp_path: Path
) -> None:
    given = [flag.format(run=run, ar=run.parent / "ar", data=data_dir) for flag in flags]
    with pytest.raises(UserError) as error:
        command.main([f"--out={tmp_path / 'out'}", *given])
    assert complaint in str(error.value)
    assert len(str(error.value).splitlines()) == 1
    assert list(tmp_path.iterdir()) == []
