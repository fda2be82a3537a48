"""A run that is stopped and started again ends bitwise where the uninterrupted one ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from jaxlm.config import RunConfig
from jaxlm.errors import Interrupted
from jaxlm.families import build_model
from jaxlm.training import checkpoint, loop, workdir
from jaxlm.training.fingerprints import params_sha256
from jaxlm.training.metrics import read_lines

CHECKPOINTED = {"total_tokens": 12 * 128, "save_every": 4, "eval_every": 6, "eval_windows": 8}
TIMES = ("tokens_per_sec", "mfu", "compile_seconds")


def final(directory: Path) -> tuple[str, int]:
    config, _ = workdir.read(directory)
    params, step = checkpoint.load_params(directory, model=build_model(config.model, config.execution))
    return params_sha256(params), step


def lines(directory: Path) -> list[dict[str, Any]]:
    return [{k: v for k, v in line.items() if k not in TIMES} for line in read_lines(directory)]


@pytest.fixture(scope="module")
def straight(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Uninterrupted runs by kind, made by the first test that asks."""
    return {"root": tmp_path_factory.mktemp("straight")}


def stop_at_update(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    update = loop._Loop._update

    def stopping(self: loop._Loop) -> None:
        update(self)
        if self.step == number:
            os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr(loop._Loop, "_update", stopping)


def stop_during_save(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    save = checkpoint.Checkpoints.save

    def stopping(self: checkpoint.Checkpoints, state: Any, step: int, data: Any) -> None:
        save(self, state, step, data)
        if step == number:
            assert self._orbax.is_saving_in_progress()
            os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr(checkpoint.Checkpoints, "save", stopping)


# A signal that comes during the save of step 4 is heeded at the next boundary, after step 5.
@pytest.mark.parametrize(
    ("hook", "at", "stopped_after"),
    [(stop_at_update, 1, 1), (stop_during_save, 4, 5), (stop_at_update, 6, 6)],
    ids=["first_step", "during_a_save", "before_an_evaluation"],
)
@pytest.mark.parametrize("kind", ["train", "convert"])
def test_stopped_and_resumed_is_bitwise_uninterrupted(
    kind: str,
    hook: Callable[[pytest.MonkeyPatch, int], None],
    at: int,
    stopped_after: int,
    tiny: Callable[..., RunConfig],
    straight: dict[str, Path],
    tmp_path: Path,
) -> None:
    init_from = None
    if kind == "convert":
        if "source" not in straight:
            straight["source"] = straight["root"] / "source"
            loop.train(tiny(train={"total_tokens": 2 * 128}), straight["source"], kind="train")
        # 12 steps: blocks of 1 for two, of 4 for two, then the whole window; step 4 is a boundary between phases.
        config, init_from = tiny(train=CHECKPOINTED, objective={"kind": "diffusion"}), str(straight["source"])
    else:
        config = tiny(train={**CHECKPOINTED, "micro_batch": 4})
    if kind not in straight:
        straight[kind] = straight["root"] / kind
        loop.train(config, straight[kind], kind=kind, init_from=init_from)

    run = tmp_path / "run"
    with pytest.MonkeyPatch.context() as patch:
        hook(patch, at)
        with pytest.raises(Interrupted) as stopped:
            loop.train(config, run, kind=kind, init_from=init_from)
    assert stopped.value.signum == signal.SIGTERM
    assert final(run)[1] == stopped_after and not workdir.is_complete(run)
    assert lines(run)[-1]["step"] == stopped_after, "what a checkpoint holds is in the log"

    loop.train(config, run, kind=kind, init_from=init_from)
    assert final(run) == final(straight[kind])
    assert final(run)[1] == 12
    assert lines(run) == lines(straight[kind]), "no line twice, none missing, rates and losses the same"
    if kind == "convert":
        assert [line["block_size"] for line in lines(run) if "eval" not in line] == [1, 1, 4, 4] + 8 * [0]


def test_a_conversion_that_stops_around_its_phase_boundaries_is_bitwise_uninterrupted(
    tiny: Callable[..., RunConfig], straight: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if "source" not in straight:
        straight["source"] = straight["root"] / "source"
        loop.train(tiny(train={"total_tokens": 2 * 128}), straight["source"], kind="train")

    def convert(directory: Path, stop_at: int) -> None:
        config = tiny(
            train={"total_tokens": 10 * 128 + 1, "save_every": 4, "stop_at": stop_at},
            objective={"kind": "diffusion"},
            convert={
                "block_sizes": (1, 4),
                "warmup_tokens": 3 * 128,
                "warmup_parts": (2, 1),
                "decay_block_sizes": (8, 4),
                "decay_share": 0.5,
            },
            optimizer={"schedule": "wsd", "decay_share": 0.5},
        )
        loop.train(config, directory, kind="convert", init_from=str(straight["source"]))

    convert(tmp_path / "straight", 0)
    # At the first boundary, at the start of the decay, and within it.
    for stop_at in (2, 5, 6, 0):
        convert(tmp_path / "run", stop_at)
        assert final(tmp_path / "run")[1] == (stop_at or 10)
    assert final(tmp_path / "run") == final(tmp_path / "straight")
    assert lines(tmp_path / "run") == lines(tmp_path / "straight"), "rates and losses the same"
    assert [line["block_size"] for line in lines(tmp_path / "run")] == [1, 1, 4, 0, 0, 8, 8, 4, 4, 4]
    phases = (
        "phases: block 1, 2 steps (256 tokens); block 4, 1 step (128 tokens); whole window, 2 steps (256 tokens); "
        "block 8, 2 steps (256 tokens); block 4, 3 steps (384 tokens)"
    )
    assert capsys.readouterr().err.count(phases) == 5, "said at each start"


def test_after_a_hard_kill_the_steps_since_the_checkpoint_are_made_again(
    tiny: Callable[..., RunConfig], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config, run = tiny(train={"total_tokens": 8 * 128, "save_every": 3}), tmp_path / "run"
    loop.train(config, tmp_path / "straight", kind="train")
    update = loop._Loop._update

    def dying(self: loop._Loop) -> None:
        if self.step == 5:
            raise MemoryError  # as good as a kill: nothing between two checkpoints is saved
        update(self)

    with pytest.MonkeyPatch.context() as patch, pytest.raises(MemoryError):
        patch.setattr(loop._Loop, "_update", dying)
        loop.train(config, run, kind="train")
    assert (final(run)[1], lines(run)[-1]["step"]) == (3, 4)
    loop.train(config, run, kind="train")
    assert final(run) == final(tmp_path / "straight")
    assert lines(run) == lines(tmp_path / "straight")


def test_stop_at_leaves_the_schedule_alone(tiny: Callable[..., RunConfig], tmp_path: Path) -> None:
    loop.train(tiny(), tmp_path / "straight", kind="train")
    for stop_at in (7, 7, 0):
        loop.train(tiny(train={"stop_at": stop_at}), tmp_path / "run", kind="train")
        assert final(tmp_path / "run")[1] == (stop_at or 20)
        assert workdir.is_complete(tmp_path / "run") == (stop_at == 0)
    assert final(tmp_path / "run") == final(tmp_path / "straight")


def test_a_complete_run_is_left_alone(
    tiny: Callable[..., RunConfig], tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    updates = []
    update = loop._Loop._update
    monkeypatch.setattr(loop._Loop, "_update", lambda self: (updates.append(self.step), update(self)))
    config = tiny(train={"total_tokens": 10 * 128})
    loop.train(config, tmp_path / "run", kind="train")
    assert len(updates) == 10, "exactly N updates"
    assert checkpoint.steps(tmp_path / "run") == [5, 10]
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "run").rglob("*")}
    loop.train(config, tmp_path / "run", kind="train")
    assert "is complete, nothing to do" in capsys.readouterr().err
    assert len(updates) == 10
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "run").rglob("*")} == before


@pytest.fixture
def process(
    tiny: Callable[..., RunConfig], config_file: Callable[[RunConfig], str], tmp_path: Path
) -> Iterator[subprocess.Popen[str]]:
    """`train` of a long run as its own process, past its fifth step."""
    config = tiny(train={"total_tokens": 100_000 * 128, "save_every": 50_000})
    command = [sys.executable, "-m", "jaxlm.train", f"--config={config_file(config)}", f"--workdir={tmp_path}/run"]
    running = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 120
    while not (read_lines(tmp_path / "run") or [{"step": 0}])[-1]["step"] >= 5:
        assert running.poll() is None and time.monotonic() < deadline
        time.sleep(0.1)
    yield running
    running.kill()
    running.communicate()


def test_a_real_signal_gives_the_exit_code_and_a_second_process_is_told_who_holds_the_workdir(
    process: subprocess.Popen[str], tmp_path: Path
) -> None:
    second = [*process.args]  # type: ignore[misc]
    refused = subprocess.run(second, capture_output=True, text=True, timeout=120)
    assert refused.returncode == 2
    assert f"is in use by process {process.pid} on " in refused.stderr and " since " in refused.stderr
    process.send_signal(signal.SIGINT)
    error = process.communicate(timeout=60)[1]
    assert process.returncode == 130, error
    assert "jaxlm: stopped by SIGINT; the same command goes on from there" in error
    step = final(tmp_path / "run")[1]
    assert step == read_lines(tmp_path / "run")[-1]["step"] >= 5
