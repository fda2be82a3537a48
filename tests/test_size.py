"""The command, and the study's counts and FLOPs, exactly."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from jaxlm import size


def printed(capsys: pytest.CaptureFixture[str], *argv: str) -> str:
    size.main(list(argv))
    return capsys.readouterr().out


@pytest.mark.parametrize("file", ["configs/llama3_canon.py", "configs/dhara.py"])
def test_the_study_has_its_published_size(file: str, capsys: pytest.CaptureFixture[str]) -> None:
    found = json.loads(printed(capsys, f"--config={file}", "--json"))
    assert (found["total"], found["active"], found["non_embedding"]) == (71_344_512, 71_344_512, 52_027_776)
    assert found["by_part"]["canon"] == 98_304
    assert sum(found["by_part"].values()) == found["total"]
    mega = {name: round(value / 1e6, 2) for name, value in found["flops_per_token"].items()}
    assert mega == {"six_n": 428.07, "with_attention": 579.06, "with_causal_attention": 503.56}


def test_the_study_s_own_shape_is_warned_about(capsys: pytest.CaptureFixture[str]) -> None:
    # Narrow, and with a vocabulary that the scaling chapter gives to models of 200M and more.
    found = json.loads(printed(capsys, "--config=configs/llama3_canon.py", "--json"))
    assert [text.split()[0] for text in found["warnings"]] == ["model.hidden_size"] * 2 + ["model.vocab_size"]


def test_the_table_shows_the_same_numbers(capsys: pytest.CaptureFixture[str]) -> None:
    text = printed(capsys, "--config=configs/llama3_canon.py")
    for number in ("71,344,512", "52,027,776", "98,304", "428.07", "579.06", "503.56"):
        assert number in text


def test_an_override_changes_the_size(capsys: pytest.CaptureFixture[str]) -> None:
    argv = ["--config=configs/llama3_canon.py", "--config.model.family=llama3", "--config.model.canon_set=", "--json"]
    assert json.loads(printed(capsys, *argv))["total"] == 71_246_208


def test_a_picture_comes_with_the_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "size.svg"
    text = printed(capsys, "--config=configs/llama3.py", "--config.model.num_layers=2", f"--plot={path}")
    assert "training memory" in text and path.is_file()
