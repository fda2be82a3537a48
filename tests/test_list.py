"""`list` shows what is registered and what is on disk, and runs no config to do so."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from jaxlm import list as listing


def test_every_config_has_its_line(capsys: pytest.CaptureFixture[str]) -> None:
    listing.main(["--json"])
    found = json.loads(capsys.readouterr().out)
    assert {"llama3", "llama3_canon"} <= found["families"].keys()
    assert {"files", "package_docs", "tfds"} <= found["sources"].keys()
    assert {"study", "mobilellm8", "offline", "bigbench_social_iqa"} <= found["tasks"].keys()
    assert "configs/pocket/dhara.py" in found["configs"]
    assert all(line for entries in found.values() for line in entries.values())


def test_the_text_has_the_same_names(capsys: pytest.CaptureFixture[str]) -> None:
    listing.main([])
    text = capsys.readouterr().out
    assert "llama3_canon" in text and "package_docs" in text and "configs/llama3_canon.py" in text


def test_elsewhere_it_says_where_configs_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    listing.main([])
    assert "none here; run in the checkout" in capsys.readouterr().out


def test_a_config_is_read_and_not_run(tmp_path: Path) -> None:
    file = tmp_path / "a.py"
    file.write_text('"""One line.\n\nMore."""\nraise SystemExit\n')
    assert listing.first_line(file) == "One line."
