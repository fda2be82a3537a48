"""Prompts and answers: how they are read, and what windows make of them."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from jaxlm.config import PrepareConfig
from jaxlm.data.cleaning import TRAIN, VALIDATION, split_documents
from jaxlm.data.document import Document
from jaxlm.data.prepare import prepare
from jaxlm.data.sources.files import Files
from jaxlm.data.windows import Windows

from .corpus import settings, silent


def pairs(count: int) -> list[dict[str, str]]:
    return [{"prompt": f"What is {i} and {i}?\r\n", "completion": f" It is {2 * i}. \n"} for i in range(count)]


def write(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.fixture(scope="module")
def windows(tmp_path_factory: pytest.TempPathFactory) -> Windows:
    root = tmp_path_factory.mktemp("prompts")
    long_one = {"prompt": "7 " * 60, "completion": "Long."}
    prepare(settings(write(root / "pairs.jsonl", [*pairs(60), long_one])), root / "data", silent)
    return Windows.open(root / "data")


def test_rows_of_every_format_are_prompt_and_completion_or_text(tmp_path: Path) -> None:
    import pyarrow
    import pyarrow.parquet

    rows = [{"prompt": "Q: ", "completion": "A", "id": 1}, {"prompt": "", "completion": "B", "id": 2}]
    lines = write(tmp_path / "a.jsonl", rows)
    (tmp_path / "a.jsonl.gz").write_bytes(gzip.compress(lines.read_bytes()))
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), tmp_path / "a.parquet")
    expected = [Document("Q: A", "files", prompt_chars=3), Document("B", "files")]
    for name in ("a.jsonl", "a.jsonl.gz", "a.parquet"):
        assert list(Files(str(tmp_path / name), PrepareConfig()).documents()) == expected
    assert expected[0].parts == ("Q: ", "A") and expected[1].parts == ("B",)
    mixed = write(tmp_path / "b.jsonl", [{"text": "whole"}, {**rows[0], "text": "wins"}, rows[0]])
    read = list(Files(str(mixed), PrepareConfig()).documents())
    assert [document.parts for document in read] == [("whole",), ("wins",), ("Q: ", "A")]


def test_windows_score_the_answers_and_their_ends_alone(windows: Windows) -> None:
    """Prompt and answer are encoded apart: the ids are those of a prompt that somebody types."""
    encode, end = windows.tokenizer.encode, windows.tokenizer.end_of_text_id
    expected = [i for n in range(0, 60, 10) for i in (*encode(f" It is {2 * n}."), end)] + [*encode("Long."), end]
    split = windows.split("validation")
    rows = [split[i] for i in range(len(split))]
    scored = np.concatenate([row["tokens"][1:][row["loss_mask"][1:]] for row in rows]).tolist()
    assert scored == expected
    assert windows.text("validation").decode() == "".join(f" It is {2 * n}." for n in range(0, 60, 10)) + "Long."
    prompt = encode("What is 10 and 10?\n")
    tokens = np.concatenate([rows[0]["tokens"], *(row["tokens"][1:] for row in rows[1:])]).tolist()
    assert any(tokens[i : i + len(prompt)] == prompt for i in range(len(tokens)))
    assert windows.statistics["removed"]["windows_of_nothing_but_prompt"] > 0
    assert all(row["loss_mask"][1:].any() for row in rows)


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"prompt": "Q"}, "no key 'completion' beside 'prompt', allowed: both, or --config.text_column=prompt"),
        ({"completion": "A"}, "no key 'prompt' beside 'completion', allowed: both, or --config.text_column=completion"),
        ({"prompt": "Q", "completion": " \n"}, "'completion' is empty, allowed: text, which is what is scored"),
        ({"prompt": ["Q"], "completion": "A"}, "'prompt' is a list, allowed: a string"),
    ],
)
def test_a_row_that_is_neither_text_nor_a_pair(
    refused: Callable[..., str], tmp_path: Path, row: dict[str, Any], message: str
) -> None:
    path = write(tmp_path / "a.jsonl", [{"prompt": "Q", "completion": "A"}, row])
    assert refused(files=path) == f"file {path}, line 2: {message}"


def test_few_pairs_are_split_between_them_and_not_within() -> None:
    pair = Document("prompt" * 20 + "answer" * 20, "files", prompt_chars=120)
    split = list(split_documents([pair, pair, pair], 0.1))
    assert split == [(TRAIN, pair), (TRAIN, pair), (VALIDATION, pair)]
