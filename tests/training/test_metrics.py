"""metrics.jsonl after a kill, and the clock of tokens per second."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from jaxlm.config import RunConfig
from jaxlm.data.windows import Windows
from jaxlm.errors import UserError
from jaxlm.training import loop, metrics
from jaxlm.training.metrics import Meter, MetricsWriter, read_lines


def test_lines_after_the_checkpoint_and_a_torn_one_are_dropped(tmp_path: Path) -> None:
    lines = [{"step": 1, "loss": 3.0}, {"step": 2, "loss": 2.0}, {"step": 2, "eval": "validation"}, {"step": 3}]
    text = "".join(json.dumps(line) + "\n" for line in lines) + '{"step": 4, "lo'
    (tmp_path / "metrics.jsonl").write_text(text)
    with MetricsWriter(tmp_path, 2, []) as writer:
        assert writer.evaluated == {2}
        writer.write({"step": 3, "loss": 1.0})
    assert read_lines(tmp_path) == [*lines[:3], {"step": 3, "loss": 1.0}]
    assert not list(tmp_path.glob("*.tmp"))


def test_sinks_get_the_numbers_under_the_name_of_what_they_measure(tmp_path: Path) -> None:
    class Seen:
        def __init__(self) -> None:
            self.calls: list[tuple] = []

        def write(self, *call: object) -> None:
            self.calls.append(call)

        def close(self) -> None:
            self.calls.append(("closed",))

    sink = Seen()
    with MetricsWriter(tmp_path, 0, [sink]) as writer:
        writer.write({"step": 1, "loss": 3.0, "mfu": None, "mfu_convention": "six_n"})
        writer.write({"step": 1, "eval": "validation", "loss": 2, "is_bound": True})
    assert sink.calls == [(1, "train", {"loss": 3.0}), (1, "validation", {"loss": 2.0}), ("closed",)]


def test_a_validation_on_a_mix_logs_the_loss_of_each_source(
    tiny: Callable[..., RunConfig], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = Windows.open

    def as_a_mix(directory: str) -> Windows:
        windows = opened(directory)
        monkeypatch.setattr(windows, "source_names", ("dclm", "finepdfs"))
        monkeypatch.setattr(windows, "sources", lambda split: np.arange(len(windows.split(split))) % 2)
        return windows

    monkeypatch.setattr(Windows, "open", as_a_mix)
    loop.train(tiny(train={"total_tokens": 128, "eval_windows": 7}), tmp_path / "run", kind="train")
    (line,) = [line for line in read_lines(tmp_path / "run") if "eval" in line]
    parts = line["by_source"]
    assert list(parts) == ["dclm", "finepdfs"]
    assert sum(part["num_windows"] for part in parts.values()) == line["num_windows"] == 7
    nats = sum(part["loss"] * part["num_tokens"] for part in parts.values())
    assert nats == pytest.approx(line["loss"] * line["num_tokens"])


def test_a_missing_package_is_named_before_anything_is_made(
    tiny: Callable[..., RunConfig], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(UserError, match="train.wandb_project is 'mine', allowed without the package wandb: ''"):
        metrics.check_packages(tiny(train={"wandb_project": "mine"}))
    with pytest.raises(UserError, match="train.tensorboard is True, allowed without the package tensorboardX: False"):
        metrics.check_packages(tiny(train={"tensorboard": True}))


def test_the_first_step_and_pauses_do_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(metrics.time, "monotonic", lambda: now[0])
    meter = Meter(num_devices=2, peak_flops=1e3)
    now[0] += 50  # starting up
    meter.add(10)
    assert meter.read(6.0) == {"tokens_per_sec": None, "mfu": None}
    for _ in range(2):
        now[0] += 1
        meter.add(10)
    with meter.paused():
        now[0] += 30
    assert meter.read(6.0) == {"tokens_per_sec": 10.0, "mfu": 10.0 * 6 / 2000}
    now[0] += 2
    meter.add(10)
    assert meter.read(6.0)["tokens_per_sec"] == 5.0


def test_a_device_without_a_known_peak_has_no_mfu() -> None:
    meter = Meter(num_devices=1, peak_flops=None)
    meter.add(10)
    meter.add(10)
    assert meter.read(6.0)["mfu"] is None
