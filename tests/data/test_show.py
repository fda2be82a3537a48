"""What `prepare_data --show` prints."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from jaxlm import prepare_data
from jaxlm.data.show import LONGEST, show
from jaxlm.data.windows import Windows
from jaxlm.errors import UserError

from .corpus import texts, write_lines


def prepared(file: Path, out: Path, capsys: pytest.CaptureFixture[str], seq_len: int = 16) -> str:
    """What the command prints for the first two windows, and that it prints them of a finished directory, too."""
    flags = [
        "--config=configs/data/files.py", f"--config.files={file}", f"--out={out}", "--show=2",
        "--config.tokenizer=train:300", f"--config.seq_len={seq_len}", "--config.min_bytes=1",
    ]  # fmt: skip
    prepare_data.main(flags)
    first = capsys.readouterr().out
    prepare_data.main(flags)
    again = capsys.readouterr().out
    shown = again[: again.rindex("\n", 0, -1)]
    assert "nothing to do" in again and shown in first
    return shown


def test_prompts_are_marked_documents_have_a_line_each_and_control_characters_are_spelt_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [{"prompt": f"Q {i}\x1b[31m\n", "completion": f"A {i}é"} for i in range(100)]
    file = tmp_path / "pairs.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    head, first, second, *_ = prepared(file, tmp_path / "data", capsys, seq_len=32).splitlines()
    assert head.startswith("train window 0 of ") and ": 33 tokens, " in head
    scored = head.partition("; scored: ")[2]
    row = Windows.open(tmp_path / "data").split("train")[0]
    assert scored.startswith(f"{row['loss_mask'][1:].sum()} tokens, ")
    assert first == r"    1 | {not scored: Q 1\x1b[31m\n}A 1é<|endoftext|>"
    assert second.startswith(r"    2 | {not scored: Q 2\x1b[31m\n}A 2é")


def test_a_long_text_is_cut_in_its_middle(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = write_lines(tmp_path / "long.jsonl", [f"{i} " + "word " * 2000 for i in range(40)])
    _, line, *_ = prepared(file, tmp_path / "data", capsys, seq_len=3000).splitlines()
    assert " characters ...] " in line and len(line) < LONGEST + 60


def test_the_source_is_named_where_there_are_several(windows: Windows, monkeypatch: pytest.MonkeyPatch) -> None:
    assert show(windows, "train", 1).startswith(
        f"train window 0 of {len(windows.split('train'))}: 17 tokens, 1 document;"
    )
    monkeypatch.setattr(windows, "source_names", ("dclm", "finepdfs"))
    monkeypatch.setattr(windows, "sources", lambda split: np.arange(len(windows.split(split))) % 2)
    heads = [line for line in show(windows, "train", 3).splitlines() if line.startswith("train")]
    assert [head.partition(", from ")[2].partition(":")[0] for head in heads] == ["dclm", "finepdfs", "dclm"]
    whole = show(windows, "validation", 10**6).splitlines()
    assert whole[-1].startswith("      | {filling: ") and len(texts(120)[::10]) > 1


def test_a_directory_that_is_there_needs_no_config(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = write_lines(tmp_path / "texts.jsonl", [f"{i} " + "word " * 60 for i in range(40)])
    shown = prepared(file, tmp_path / "data", capsys, seq_len=16)
    prepare_data.main([f"--out={tmp_path / 'data'}", "--show=1"])
    assert capsys.readouterr().out.splitlines()[0] == shown.splitlines()[0]
    for argv, message in (
        ([], "--config is missing"),
        (["--show=1", "--config.seq_len=4"], "--config is missing"),
    ):
        with pytest.raises(UserError, match=message):
            prepare_data.main([f"--out={tmp_path / 'data'}", *argv])


def test_a_number_of_windows_below_zero_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="--show is -1, allowed"):
        prepare_data.main(["--config=configs/data/files.py", f"--out={tmp_path / 'out'}", "--show=-1"])
