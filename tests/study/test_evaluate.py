"""`evaluate` writes the record that is promised, of the checkpoint it names, and refuses what it cannot evaluate."""

from __future__ import annotations

import json
import math
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import jaxlm
from jaxlm import evaluate
from jaxlm.data.loader import chosen_windows
from jaxlm.data.windows import Windows
from jaxlm.errors import UserError
from jaxlm.training.fingerprints import params_sha256

STEPS, T = 10, 16  # of the fixture
Records = tuple[dict[str, Any], dict[str, Any]]


def record(out: Path, *flags: str) -> dict[str, Any]:
    evaluate.main([f"--out={out}", *flags])
    return dict(json.loads(out.read_text()))


def test_the_record_names_the_parameters_and_has_every_key(runs: SimpleNamespace, evaluations: Records) -> None:
    for values, path in zip(evaluations, (runs.ar, runs.diffusion), strict=True):
        assert values["step"] == STEPS
        assert values["parameter_hash"] == params_sha256(jaxlm.load(path).params)
        assert (values["tasks"], values["mean_6"]) == ({}, {"acc": None, "acc_norm": None, "stderr": None})
        assert values["mean_6"] == values["mean_7"] == values["mean_8"]
        assert values["bits_per_byte"] == pytest.approx(
            values["loss"] * values["num_tokens"] / math.log(2) / values["num_bytes"]
        )


def test_loss_and_baselines_are_over_exactly_the_validation_text(runs: SimpleNamespace, evaluations: Records) -> None:
    windows = Windows.open(runs.data)
    split = windows.split("validation")
    scored = np.concatenate([split[i]["tokens"][1:][split[i]["loss_mask"][1:]] for i in range(len(split))])
    text = windows.tokenizer.decode_bytes(scored.tolist())
    for values in evaluations:
        assert (values["num_tokens"], values["num_bytes"]) == (len(scored), len(text))
        xz = values["baselines"]["xz"]
        assert xz["bits_per_byte"] == 8 * xz["compressed_bytes"] / len(text)
        gain, frequency = values["below_token_frequency"], values["baselines"]["token_frequency"]
        assert gain["nats_per_token"] == pytest.approx(frequency["loss"] - values["loss"])
    assert evaluations[0]["baselines"] == evaluations[1]["baselines"]


def test_after_a_conversion_the_loss_is_that_of_the_last_phase_and_the_whole_window_is_beside_it(
    evaluations: Records,
) -> None:
    ar, diffusion = evaluations
    by_size = diffusion["loss_by_block_size"]
    assert {label: part["block_size"] for label, part in by_size.items()} == {"block 8": 8, "whole window": 0}
    assert diffusion["loss"] == by_size["block 8"]["loss"] != by_size["whole window"]["loss"]
    assert diffusion["is_bound"] and not ar["is_bound"]
    assert "loss_by_block_size" not in ar
    assert (ar["draws"], diffusion["draws"]) == (1, 4)


def test_flags_choose_windows_checkpoint_and_parts(runs: SimpleNamespace, tmp_path: Path, evaluations: Records) -> None:
    other = tmp_path / "moved"
    shutil.copytree(runs.data, other)
    flags = (f"--workdir={runs.ar}", f"--step={STEPS}", "--what=loss", f"--data_dir={other}", "--batch_size=3")
    values = record(tmp_path / "a.json", *flags, "--limit=5", "--split=train")
    assert (values["num_windows"], values["num_tokens"], values["baselines"]) == (5, 5 * T, None)
    assert record(tmp_path / "b.json", *flags)["loss"] == pytest.approx(evaluations[0]["loss"], rel=1e-5)
    only = record(tmp_path / "c.json", f"--workdir={runs.ar}", "--what=baselines")
    assert only["loss"] is only["is_bound"] is None
    assert only.keys() == evaluations[0].keys() - {"below_token_frequency"}
    assert only["baselines"] == evaluations[0]["baselines"]


def test_the_printed_table_says_checkpoint_and_bound(
    runs: SimpleNamespace, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    values = record(tmp_path / "a.json", f"--workdir={runs.diffusion}", "--draws=2", "--limit=4")
    printed = capsys.readouterr().out
    for text in (f"step {STEPS}", values["parameter_hash"][:16], "ELBO, the loss is at most (block 8)", "xz -9"):
        assert text in printed


def test_the_loss_by_source_is_of_the_windows_that_were_chosen(
    runs: SimpleNamespace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    flags = (f"--workdir={runs.ar}", "--what=loss", "--limit=5")
    one = record(tmp_path / "one.json", *flags)
    assert "loss_by_source" not in one
    available = len(Windows.open(runs.data).split("validation"))
    third = chosen_windows(available, 5)[2]
    opened = Windows.open

    def as_a_mix(directory: str) -> Windows:
        windows = opened(directory)
        monkeypatch.setattr(windows, "source_names", ("dclm", "finepdfs"))
        monkeypatch.setattr(windows, "sources", lambda split: (np.arange(available) == third).astype(int))
        return windows

    monkeypatch.setattr(Windows, "open", as_a_mix)
    mixed = record(tmp_path / "mixed.json", *flags)
    assert "on finepdfs" in capsys.readouterr().out
    parts = mixed.pop("loss_by_source")
    assert mixed == one
    assert {name: part["num_windows"] for name, part in parts.items()} == {"dclm": 4, "finepdfs": 1}
    nats = sum(part["loss"] * part["num_tokens"] for part in parts.values())
    assert nats == pytest.approx(mixed["loss"] * mixed["num_tokens"])


@pytest.mark.parametrize(
    ("flags", "complaint"),
    [
        (["--workdir=nowhere"], "'nowhere' does not exist"),
        (["--workdir={data}"], "is no jaxlm workdir"),
        (["--workdir={ar}", "--step=3"], "has no checkpoint 3, allowed: 10"),
        (["--workdir={ar}", "--what=los"], "--what has 'los'; did you mean 'loss'?"),
        (["--workdir={ar}", "--split=test"], "invalid choice: 'test'"),
        (["--workdir={ar}", "--limit=0"], "--limit is 0, allowed: at least 1"),
        (["--workdir={ar}", "--draws=3"], "--draws is 3, allowed: 1 for an autoregressive model"),
        (["--workdir={ar}", "--data_dir={ar}"], "a directory made by prepare_data"),
        (["--workdir={ar}", "--data_dir={other}"], "another tokenizer"),
        (["--workdir={ar}", "--out={ar}"], "a file in a directory that exists"),
        (["--workdir={ar}", "--out={ar}/no/where.json"], "a file in a directory that exists"),
    ],
)
def test_mistakes_are_one_line_and_leave_no_file(
    runs: SimpleNamespace, tmp_path: Path, flags: list[str], complaint: str
) -> None:
    out = tmp_path / "evaluation.json"
    given = [flag.format(**vars(runs)) for flag in flags]
    with pytest.raises(UserError) as error:
        evaluate.main([f"--out={out}", *given])
    assert complaint in str(error.value)
    assert len(str(error.value).splitlines()) == 1
    assert list(tmp_path.iterdir()) == []
