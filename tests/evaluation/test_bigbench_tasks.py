"""Offline tasks are made from the package's archive alone, fairly ordered, once, and checked on every use.

With JAXLM_BIGBENCH set to the real archive (358 MB, see `bigbench_tasks.DOWNLOAD`) its counts are compared as well:
`JAXLM_BIGBENCH=FILE python -m pytest tests/evaluation/test_bigbench_tasks.py`, 10 seconds.
"""

from __future__ import annotations

import io
import json
import os
import tarfile
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from jaxlm.errors import UserError
from jaxlm.evaluation import bigbench_tasks
from jaxlm.evaluation.tasks import Catalogue, ask
from tests import local_tasks

REAL = os.environ.get(bigbench_tasks.VARIABLE)


def content(task: str) -> dict[str, Any]:
    """A file of the package's layout with items of our own; where options are scored the first one is right."""
    if task == "bigbench_com2sense":
        return {"examples": [{"sent": f"{i} is a number.", "label": "True"} for i in range(4)]}
    if task == "bigbench_winogrande_cloze":
        sentences = [
            ("The box holds the ball since the _ is large.", "box."),
            ("The box holds the ball since the _ is small.", "ball."),
            ("The box holds the ball, as the _ is round.", "ball."),  # has no twin
        ]
        return {"examples": [{"input": f"Context Word: x. \nQuestion: {s}", "target": [name]} for s, name in sentences]}
    examples = [{"input": f"Item {i}? ", "target_scores": {"right {x}": 1, "left": 0, " up ": 0}} for i in range(40)]
    several = {"input": "Two are right?", "target_scores": {"a": 1, "b": 1}}
    return {"examples": [*examples, several], "task_prefix": "Before.\n"}


@pytest.fixture
def archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / bigbench_tasks.SDIST
    with tarfile.open(path, "w:gz") as file:
        for task, spec in bigbench_tasks.TASKS.items():
            data = json.dumps(content(task)).encode()
            member = tarfile.TarInfo(f"bigbench-1.0.0/bigbench/benchmark_tasks/{spec.member}")
            member.size = len(data)
            file.addfile(member, io.BytesIO(data))
    monkeypatch.setenv(bigbench_tasks.VARIABLE, str(path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return path


def items(task: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (bigbench_tasks.directory() / f"{task}.jsonl").read_text().splitlines()]


class Right(local_tasks.Knowing):
    def _is_right(self, doc: dict[str, Any], answer: str) -> bool:
        return bool(answer == "right {x}")


def test_items_become_questions_whose_options_stand_in_no_telling_order(archive: Path) -> None:
    found = items("bigbench_social_iqa")
    assert len(found) == 40  # without the one that has two right answers
    assert found[3]["query"] == "Q: Item 3?\nA:" and sorted(found[3]["choices"]) == ["left", "right {x}", "up"]
    assert all(item["choices"][item["gold"]] == "right {x}" for item in found)
    assert min(Counter(item["gold"] for item in found).values()) > 5
    assert items("bigbench_truthful_qa")[0]["query"] == "Before.\nQ: Item 0?\nA:"
    assert {item["choices"][item["gold"]] for item in items("bigbench_com2sense")} == {"Yes"}


def test_a_gap_is_filled_with_the_name_of_the_twin_and_judged_by_what_follows(archive: Path) -> None:
    found = items("bigbench_winogrande_cloze")
    assert [(sorted(item["choices"]), item["ending"]) for item in found] == [
        (["The box holds the ball since the ball", "The box holds the ball since the box"], ending)
        for ending in ("is large.", "is small.")
    ]
    assert [item["choices"][item["gold"]].split()[-1] for item in found] == ["box", "ball"]


def test_the_harness_asks_them(archive: Path) -> None:
    catalogue = Catalogue(("bigbench_social_iqa", "bigbench_winogrande_cloze"))
    samples = ask(Right(), catalogue.load("bigbench_social_iqa", None), 6)["bigbench_social_iqa"]
    assert [(sample["acc"], sample["acc_norm"]) for sample in samples] == [(1.0, 1.0)] * 6
    assert samples[0]["arguments"][0][0] == "Q: Item 0?\nA:"
    task = catalogue.load("bigbench_winogrande_cloze", None)["tasks"]["bigbench_winogrande_cloze"]
    task.build_all_requests(limit=1)
    assert sorted(request.args for request in task.instances) == [
        ("The box holds the ball since the ball", " is large."), ("The box holds the ball since the box", " is large."),
    ]  # fmt: skip


def test_the_archive_is_read_once_and_what_was_damaged_is_made_again(archive: Path) -> None:
    folder = bigbench_tasks.directory()
    before = {path.name: path.read_bytes() for path in folder.glob("*.json*")}
    kept = archive.read_bytes()
    archive.unlink()
    assert bigbench_tasks.directory() == folder
    (folder / "bigbench_timedial.jsonl").write_text("{}\n")
    with pytest.raises(UserError, match=r"pip download --no-deps .* bigbench==1.0.0.*JAXLM_BIGBENCH"):
        bigbench_tasks.directory()
    archive.write_bytes(kept)
    bigbench_tasks.directory()
    assert {path.name: path.read_bytes() for path in folder.glob("*.json*")} == before


@pytest.mark.parametrize("size", [0, 100, -100])
def test_an_archive_that_is_cut_off_is_one_line(archive: Path, size: int) -> None:
    archive.write_bytes(archive.read_bytes()[:size])
    with pytest.raises(UserError, match="bigbench-1.0.0.tar.gz"):
        bigbench_tasks.directory()
    assert not list((archive.parent / "cache").rglob("*.jsonl"))


@pytest.mark.skipif(REAL is None, reason="JAXLM_BIGBENCH does not name the archive")
def test_the_real_archive_has_the_counts_of_the_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    for task, spec in bigbench_tasks.TASKS.items():
        found = items(task)
        sizes = sorted({len(item["choices"]) for item in found})
        assert len(found) == spec.num_items
        assert spec.choices == (f"{sizes[0]}-{sizes[-1]}" if sizes[1:] else str(sizes[0]))
