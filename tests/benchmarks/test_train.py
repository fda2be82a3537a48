"""The training step beside transformers: who is compared with whom, that both really work, and what is said of it."""

from __future__ import annotations

import importlib.util
import json
import statistics
from pathlib import Path
from typing import Any

import pytest

from jaxlm import benchmark, command_line
from jaxlm.benchmarks import train
from jaxlm.benchmarks.train import OURS, THEIRS, Settings
from jaxlm.config import RunConfig
from jaxlm.errors import UserError

TINY = """
from jaxlm import config

def get_config(family="llama3"):
    run = config.run()
    run.model.update(dict(family=family, vocab_size=128, num_layers=2, hidden_size=32, intermediate_size=64))
    run.model.update(dict(num_heads=2, num_kv_heads=1, head_dim=16, max_positions=16))
    run.train.update(dict(seq_len=16, batch_tokens=64, total_tokens=6_400))
    return run
"""
SETTINGS = Settings(batch=2, seq_len=16, rounds=2, steps=2)


@pytest.fixture(scope="module")
def config_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("configs") / "tiny.py"
    file.write_text(TINY)
    return file


@pytest.fixture
def config(config_file: Path) -> RunConfig:
    return command_line.load_config(str(config_file), [], RunConfig)


@pytest.fixture(scope="module")
def both(config_file: Path) -> dict[str, Any]:
    return train.measure(command_line.load_config(str(config_file), [], RunConfig), SETTINGS)


def test_the_same_architecture_trains_on_both_sides(both: dict[str, Any]) -> None:
    assert (both["what"], both["family"], both["reference"]) == ("train", "llama3", "LlamaForCausalLM")
    assert both[OURS]["parameters"] == both[THEIRS]["parameters"] == 22_688
    for name in (OURS, THEIRS):
        # ln 128 = 4.85 before the first step; the second side would not start there if it read other tokens.
        assert both[name]["loss"]["first"] == pytest.approx(4.85, abs=0.1)
        assert both[name]["loss"]["last"] < both[name]["loss"]["first"]
        assert both[name]["peak_bytes"] > 50e6 and both[name]["first_step_seconds"] > 0
    assert both[OURS]["compile_seconds"] > 0 and both[THEIRS]["compile_seconds"] is None


def test_the_ratio_is_that_of_the_medians(both: dict[str, Any]) -> None:
    for name in (OURS, THEIRS):
        assert len(both[name]["rounds"]) == SETTINGS.rounds and min(both[name]["rounds"]) > 0
        assert both[name]["tokens_per_sec"] == statistics.median(both[name]["rounds"])
    assert both["ratio"] == both[OURS]["tokens_per_sec"] / both[THEIRS]["tokens_per_sec"]


def test_the_conditions_are_told(both: dict[str, Any]) -> None:
    conditions = both["conditions"]
    assert {"date", "cpu", "cores", "load_average", "allocator", "git_revision", "clip_norm"} <= conditions.keys()
    assert (conditions["dtype"], conditions["batch"], conditions["seq_len"]) == ("float32", 2, 16)
    assert {"jax", "torch", "transformers"} <= conditions["versions"].keys()
    assert conditions["threads"].keys() == {OURS, THEIRS}


def test_the_table_has_the_same_numbers(both: dict[str, Any]) -> None:
    text = train.table(both)
    for number in ("22,688", f"{both['ratio']:.3f} times", f"{both[OURS]['tokens_per_sec']:.1f}", "float32"):
        assert number in text


def test_without_a_class_of_transformers_ours_is_measured_alone(
    config_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)  # nor are its packages needed
    flags = ["--batch=2", "--seq_len=16", "--rounds=1", "--steps=1", "--dtype=bfloat16", "--json"]
    diffusion = [f"--config={config_file}:dhara", "--config.objective.kind=diffusion"]
    benchmark.main([*diffusion, *flags, f"--out={tmp_path / 'out.json'}"])
    printed = json.loads(capsys.readouterr().out)
    assert printed == json.loads((tmp_path / "out.json").read_text())
    assert printed["reference"] is printed["ratio"] is printed[THEIRS] is None
    assert printed[OURS]["tokens_per_sec"] > 0
    assert "model.canon_set is 'AC'" in printed["reference_missing"]
    assert "objective.kind is 'diffusion'" in printed["reference_missing"]
    assert printed["reference_missing"] in train.table(printed)


def test_the_batch_is_one_forward_of_the_asked_size(config: RunConfig) -> None:
    found = train.at_size(config, Settings(batch=600, seq_len=12))
    assert (found.train.batch_size, found.train.seq_len, found.train.accumulation) == (600, 12, 1)
    assert found.train.num_steps == 1
    assert found.execution.dtype == "float32"


def test_models_of_different_sizes_are_not_compared() -> None:
    with pytest.raises(RuntimeError, match="not the same number of parameters.*'jaxlm': 1, 'transformers': 2"):
        train.check_parameters({OURS: {"parameters": 1}, THEIRS: {"parameters": 2}})


def test_a_loss_that_is_no_number_is_no_measurement() -> None:
    with pytest.raises(RuntimeError, match="loss of jaxlm is not finite"):
        train.checked(OURS, {"losses": [1.0, float("nan")]})


def test_a_missing_package_is_named_with_its_extra(config: RunConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(UserError, match=r"needs the package torch; .*pip install 'jaxlm\[hf\]'"):
        train.reference_class(config)


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--what=trian"], "invalid choice: 'trian'"),
        (["--rounds=0"], "--rounds is 0, allowed: at least 1"),
        (["--seq_len=17"], "train.seq_len is 17, allowed: at most model.max_positions = 16"),
        (["--out=nowhere/at/all.json"], "--out is 'nowhere/at/all.json', allowed: a file in a directory that exists"),
    ],
)
def test_mistakes_are_refused_before_anything_starts(config_file: Path, flags: list[str], message: str) -> None:
    with pytest.raises(UserError) as refused:
        benchmark.main([f"--config={config_file}", *flags])
    assert message in str(refused.value)
