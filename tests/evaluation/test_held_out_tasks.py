"""Tasks from held-out text: the right answer is what the text says, and nothing but reading it finds it."""

from __future__ import annotations

import json
import random
import statistics
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from jaxlm.config import PrepareConfig
from jaxlm.data.prepare import prepare
from jaxlm.data.windows import Windows
from jaxlm.errors import UserError
from jaxlm.evaluation import held_out_tasks
from jaxlm.evaluation.held_out_tasks import ORDER, PASSAGE, TASKS, WORD

ITEMS = 12
SYLLABLES = ("ba", "ko", "mi", "tu", "re", "sol", "fa", "ni")


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two hundred texts of 40 made-up words, half of them held out."""
    root, draw = tmp_path_factory.mktemp("text"), random.Random(3)
    words = ["".join(draw.choices(SYLLABLES, k=draw.randint(2, 3))) for _ in range(60)]
    for number in range(200):
        (root / f"{number:03}.txt").write_text(" ".join(draw.choices(words, k=40)) + ".\n")
    config = PrepareConfig(files=f"{root}/*.txt", tokenizer="train:300", seq_len=96, validation_share=0.5)
    prepare(config, root / "data", report=lambda text: None)
    return root / "data"


@pytest.fixture(scope="module")
def items(data: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[dict[str, Any]]]:
    folder = tmp_path_factory.mktemp("tasks") / "tasks"
    assert held_out_tasks.write(data, folder, ITEMS) == dict.fromkeys(TASKS, ITEMS)
    return {task: [json.loads(line) for line in (folder / f"{task}.jsonl").read_text().splitlines()] for task in TASKS}


def test_the_right_answer_is_what_follows(data: Path, items: dict[str, list[dict[str, Any]]]) -> None:
    windows = Windows.open(data)
    split = windows.split("validation")
    held_out = "\n".join(
        " ".join(windows.tokenizer.decode_bytes(split[i]["tokens"].tolist()).decode("utf-8", "ignore").split())
        for i in range(len(split))
    )
    for of_task in items.values():
        for item in of_task:
            assert f"{item['query']} {item['choices'][item['gold']]}" in held_out
    for item in items[PASSAGE]:
        assert sum(f"{item['query']} {choice}" in held_out for choice in item["choices"]) == 1


def test_each_item_has_options_of_its_own_that_are_alike(items: dict[str, list[dict[str, Any]]]) -> None:
    for task in (PASSAGE, WORD):
        of_task = items[task]
        assert len({tuple(sorted(item["choices"])) for item in of_task}) > len(of_task) // 2  # not the same four again
        assert len({item["choices"][item["gold"]] for item in of_task}) == len(of_task)
        assert all(len(set(item["choices"])) == 4 for item in of_task)
        assert len({item["gold"] for item in of_task}) == 4
    for item in items[ORDER]:
        first, second = item["choices"]
        assert first != second and Counter(first.split()) == Counter(second.split()) and len(first) == len(second)


def test_what_is_said_without_reading_is_right_as_often_as_chance() -> None:
    """Whatever an answer is worth by itself: over texts, right once in four, and scattered as items of their own."""
    draw, shares = random.Random(5), []
    for study in range(300):
        pairs = [(f"text {study} {k}", f"{draw.randrange(10**9):09}") for k in range(64)]
        of_study = list(held_out_tasks._among_four(pairs, lambda answer: (len(answer),)))
        assert len(of_study) == len(pairs)
        shares.append(statistics.mean(max(item["choices"]) == item["choices"][item["gold"]] for item in of_study))
    binomial = (0.25 * 0.75 / 64) ** 0.5
    assert abs(statistics.mean(shares) - 0.25) < 4 * binomial / len(shares) ** 0.5
    # Chance of q^3 for the answer at quantile q: 4/7 of the variance of a coin that all items share.
    assert 0.45 < statistics.variance(shares) / binomial**2 < 0.7


def test_the_same_windows_make_the_same_files(data: Path, tmp_path: Path) -> None:
    held_out_tasks.write(data, tmp_path / "tasks", ITEMS)
    before = {file.name: (file.stat().st_mtime_ns, file.read_text()) for file in (tmp_path / "tasks").iterdir()}
    held_out_tasks.write(data, tmp_path / "tasks", ITEMS)
    assert {f.name: (f.stat().st_mtime_ns, f.read_text()) for f in (tmp_path / "tasks").iterdir()} == before


def test_fewer_items_than_asked_for_are_told(data: Path, tmp_path: Path) -> None:
    told: list[str] = []
    found = held_out_tasks.write(data, tmp_path / "tasks", 10_000, told.append)
    assert all(0 < found[task] < 10_000 for task in TASKS)
    assert any(line == f"{WORD}: {found[WORD]} items of the 10000 that were asked for" for line in told)


def test_text_that_is_too_short_is_refused(tmp_path: Path) -> None:
    for number in range(20):
        (tmp_path / f"{number}.txt").write_text(f"{number} is a number, and so it stays for a while, as they do\n")
    config = PrepareConfig(
        files=f"{tmp_path}/*.txt", tokenizer="train:300", seq_len=4, validation_share=0.5, min_bytes=1
    )
    prepare(config, tmp_path / "data", report=lambda text: None)
    with pytest.raises(UserError, match="held_out_passage has no item in the"):
        held_out_tasks.write(tmp_path / "data", tmp_path / "tasks", 4)
    assert not (tmp_path / "tasks").exists()
