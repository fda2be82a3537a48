"""The picture of the statistics, and the histogram that it is drawn from."""

from __future__ import annotations

from pathlib import Path

import pytest

from jaxlm import prepare_data
from jaxlm.data.document import Document
from jaxlm.data.pictures import draw
from jaxlm.data.statistics import Counts
from jaxlm.data.windows import read_fingerprint


def counts() -> Counts:
    found = Counts()
    for tokens in (1, 2, 3, 4, 900):
        found.add("train", Document("x" * 4 * tokens, "long"), tokens)
    found.add("validation", Document("x" * 9, "short"), 3)
    return found


def test_lengths_are_counted_by_powers_of_two() -> None:
    lengths = counts().result({"train": 1, "validation": 1}, {})["lengths"]
    assert lengths == {"long": [1, 2, 1, 0, 0, 0, 0, 0, 0, 1], "short": [0, 1]}


@pytest.mark.parametrize("weights", [{}, {"long": 0.6, "short": 0.4}])
def test_the_same_statistics_give_the_same_picture(tmp_path: Path, weights: dict[str, float]) -> None:
    statistics = counts().result({"train": 1, "validation": 1}, {})
    for name in ("a.png", "b.png"):
        draw(statistics, weights, tmp_path / name)
    assert (tmp_path / "a.png").read_bytes() == (tmp_path / "b.png").read_bytes()
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.png", "b.png"]


def test_the_command_draws_it_once_and_the_windows_do_not_depend_on_it(tmp_path: Path, corpus: Path) -> None:
    flags = ["--config=configs/data/files.py", f"--config.files={corpus}", "--config.tokenizer=train:300"]
    out = tmp_path / "data"
    prepare_data.main([*flags, f"--out={out}"])
    picture, before = out / "statistics.png", read_fingerprint(out)
    drawn = picture.read_bytes()
    picture.unlink()
    prepare_data.main([*flags, f"--out={out}"])
    assert picture.read_bytes() == drawn and read_fingerprint(out) == before
